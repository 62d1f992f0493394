"""The probe of siloed and pooled jobs, against real engine servers on loopback and a pool with a queue."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.functional.test_remoting_probes import folder, pool  # noqa: F401 - fixtures
from validation.kinds import parse
from validation.measures.remoting import remoting_pooled_probe
from validation.measures.remoting.pooled import PooledFacts
from validation.measures.remoting.remoting_pooled_probe import INFER, TRAIN, Job

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here, which builds the reference engine"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here, which builds the kernels of emulated GPUs"),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root: the stand-in gives leases to root alone"),
    pytest.mark.engines,
]

SIZES: dict[str, Any] = {"steps": 6, "pace_ms": 1, "inputs": 7, "hidden": 5}
JOBS = [
    Job("A1", "A", 0.0, "1", TRAIN, 8, **SIZES),
    Job("A2", "A", 0.0, "1/2", INFER, 4, **SIZES),
    Job("B1", "B", 0.1, "1/2", TRAIN, 4, **SIZES),
]
PARAMS: dict[str, Any] = {"servers": ["gpu1", "gpu2"], "gpus": 1, "jobs": [job.words for job in JOBS]}
#: What sacct prints of the stand-in's leases.
SACCT = """
import json, os, sys
known = json.load(open(os.environ["POOL_STAND_IN"] + "/leases.json"))
nodes = os.environ["STAND_IN_NODES"].split()
for number in sys.argv[3].split(","):
    one = known[number]
    print(number, one["submitted"], one["started"], one.get("ended", "Unknown"), nodes[one["gpus"][0]], sep="|")
"""


@pytest.fixture
def queue(pool: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """Two servers with a GPU each, whose leases wait for one another."""
    monkeypatch.setenv("STAND_IN_NODES", "gpu1 gpu2")
    monkeypatch.setenv("STAND_IN_QUEUES", "1")
    (pool / "sacct.py").write_text(SACCT)
    path = pool / "bin/sacct"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {pool}/sacct.py "$1" "$2" "$3"\n')
    path.chmod(0o755)
    return pool


def asked(**changes: Any) -> Any:
    return remoting_pooled_probe.probe(remoting_pooled_probe.Asked(**{**PARAMS, "limit_s": 120.0, **changes}))


def test_jobs_run_siloed_and_pooled_and_compute_the_same(queue: Path) -> None:
    doc = asked()
    assert doc["error"] is None
    _, facts = parse("remoting-pooled", doc, {**PARAMS, "servers": ("gpu1", "gpu2"), "jobs": tuple(PARAMS["jobs"])})
    assert isinstance(facts, PooledFacts)
    assert facts.wrong() == []
    assert len(facts.runs) == 6
    assert {run.gpu for run in facts.of("siloed", "A")} == {"gpu1:0"}
    assert {run.gpu for run in facts.of("siloed", "B")} == {"gpu2:1"}
    assert {run.result for run in facts.of("siloed")} == {run.result for run in facts.of("pooled")}


def test_a_program_that_fails_is_told_with_what_it_said(queue: Path) -> None:
    doc = asked(jobs=[*PARAMS["jobs"], Job("B2", "B", 0.1, "1", TRAIN, 8, **{**SIZES, "inputs": 1 << 28}).words])
    assert doc["error"] is None
    params = {**PARAMS, "servers": ("gpu1", "gpu2")}
    params["jobs"] = (*PARAMS["jobs"], Job("B2", "B", 0.1, "1", TRAIN, 8, **{**SIZES, "inputs": 1 << 28}).words)
    _, facts = parse("remoting-pooled", doc, params)
    assert isinstance(facts, PooledFacts)
    wrong = facts.wrong()
    assert [words.split(" ended with ")[0] for words in wrong] == ["B2 siloed", "B2 pooled"]
    assert all("elastic-ai-train" in words for words in wrong)


def test_servers_with_too_few_gpus_are_not_measured_and_it_is_said(queue: Path) -> None:
    doc = asked(gpus=2)
    assert (doc["error"], doc["facts"]["unmade"]) == (None, "gpu1 has fewer than 2 GPUs")


def test_a_program_that_does_not_end_is_ended_and_gives_its_lease_back(queue: Path) -> None:
    endless = Job("A1", "A", 0.0, "1", TRAIN, 8, **{**SIZES, "steps": 1 << 20})
    doc = asked(jobs=[endless.words, JOBS[2].words], limit_s=4.0)
    assert doc["error"] == "siloed: not all jobs came to an end within 4 s"
