"""The records of kinds: each has a probe that understands what its job asks, whatever is planned."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.support.site import hardware, lab, plan_of
from validation.base.errors import RunError
from validation.kinds import KINDS, job_for, title
from validation.measures.fabric import serve_probe, soak_fabric_probe
from validation.measures.rdma import rdma_serving_probe
from validation.plan.suites import SUITES
from validation.probes import asked
from validation.probes.__main__ import find, parse
from validation.run.catalogue import load_criteria

ROOT = Path(__file__).parents[2]


def test_every_kind_has_a_probe_of_its_name_and_what_it_needs_exists() -> None:
    for kind in KINDS.values():
        assert find(kind.name).Asked
        assert kind.title != kind.name
        assert kind.needs in ("", *KINDS)
        assert kind.needs != kind.name


def test_every_kind_says_what_it_measures_with_which_tool_and_where_that_is_explained() -> None:
    for kind in KINDS.values():
        assert re.fullmatch(r"[A-Z][^\n]+\.", kind.measures), kind.name
        assert kind.tool
        assert not kind.tool.endswith("."), kind.name
        assert (ROOT / "docs" / kind.more).is_file(), kind.name
    judged = {c.kind for c in load_criteria()}
    page = (ROOT / "docs/reference/measured.md").read_text(encoding="utf-8")
    for kind in KINDS.values():
        section = page.partition(f'<a id="{kind.name}"></a>')[2].partition("\n### ")[0]
        assert kind.measures in section
        assert ("| Criterion |" in section) == (kind.name in judged)
    assert max(map(len, page.splitlines())) < 400
    for c in load_criteria():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{c.id}` |"))
        assert all(word is None or word in row for word in (c.metric, c.unit)), row


@pytest.mark.parametrize("fabric", ["tcp10", "roce40", "ib-edr"])
def test_every_planned_job_is_a_call_that_its_probes_understand(fabric: str) -> None:
    for topology in (lab(), hardware()):
        for m in plan_of(topology, tuple(SUITES), fabric).measurements:
            job = job_for(m, topology)
            assert job.node in m.nodes
            args = parse(list(job.probe.words))
            assert type(args.asked) is find(m.kind).Asked
            if job.server is not None:
                end = asked.read(serve_probe.Asked, job.server.words[1])
                ends = {**rdma_serving_probe.ENDS, "soak-fabric": soak_fabric_probe.Asked}
                assert asked.make(ends.get(end.tool, serve_probe.Tcp), end.asked)
                assert job.server_node == m.endpoints[1].node


def test_a_plan_of_another_release_or_topology_is_refused() -> None:
    m = plan_of(lab()).measurements[0]
    with pytest.raises(RunError):
        job_for(m.model_copy(update={"kind": "nvbandwidth"}), lab())
    with pytest.raises(RunError):
        job_for(m.model_copy(update={"nodes": ("gone",)}), lab())
    assert title("nvbandwidth") == "nvbandwidth"


@dataclass
class Wanted:
    """Parameters of a probe that does not exist."""

    name: str
    how: Literal["fast", "slow"]
    count: int = 1
    share: float = 0.5
    brief: bool = False


@pytest.mark.parametrize(
    "given",
    [
        [],
        {},
        {"name": "x", "how": "fast", "size": 1},
        {"name": "x", "how": "quick"},
        {"name": 3, "how": "fast"},
        {"name": "x", "how": "fast", "count": 1.5},
        {"name": "x", "how": "fast", "count": True},
        {"name": "x", "how": "fast", "share": "0.5"},
        {"name": "x", "how": "fast", "brief": 1},
    ],
    ids=json.dumps,
)
def test_parameters_that_do_not_fit_are_refused(given: object) -> None:
    assert asked.read(Wanted, '{"name": "x", "how": "slow", "share": 1}').share == 1
    with pytest.raises(ValueError):  # noqa: PT011 - its words are of no interest
        asked.read(Wanted, json.dumps(given))


@pytest.mark.parametrize("words", [["tool"], ["nvbandwidth"], ["../facts"], ["facts", "{"], ["facts", '{"rdma": 1}']])
def test_a_probe_that_does_not_exist_or_cannot_be_asked_so_is_a_usage_error(words: list[str]) -> None:
    with pytest.raises(SystemExit) as fault:
        parse(words)
    assert fault.value.code == 2
