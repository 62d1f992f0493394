"""Copies between GPUs at the same time: on emulated devices, read whole or refused, reported and never judged."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import MIB, ROOT, built, describe
from tests.support.gpu_copies_case import planned
from tests.support.site import criterion, lab, result, verdict_of
from toolkit.engine import build, host_modules
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.gpu.copies_facts import TOGETHER, GpuCopy, GpuCopyFacts
from validation.probes import gpu_bench, gpu_together

pytestmark = pytest.mark.engines
LACKS = build.missing_tools() or host_modules.lacks_compiler()
compiles = pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")
ASKED = {"largest_bytes": MIB, "repeat": 6, "latency_count": 20, "warm_s": 0.02}


def probed(folder: Path, gpus: int, **last: Any) -> dict[str, Any]:
    """What the probe prints of so many emulated GPUs, the last of which is described so."""
    devices = describe(folder)
    (one, _) = json.loads((folder / "gpus.json").read_text())["gpus"]
    several = [
        {**one, "uuid": f"GPU-00000000-0000-0000-0000-00000000000{n}", "pci_bus_id": f"00000000:1{n}:00.0"}
        for n in range(gpus)
    ]
    several[-1] |= last
    (folder / "gpus.json").write_text(json.dumps({"gpus": several}))
    environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(built() / "devices")}
    command = [sys.executable, "-m", "validation.probes", "gpu-copies", json.dumps({**ASKED, "gpus": gpus})]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    doc: dict[str, Any] = json.loads(done.stdout)
    assert doc["error"] is None, doc["error"]
    return doc


def read(doc: dict[str, Any], gpus: int) -> GpuCopyFacts:
    facts = parse("gpu-copies", doc, {**ASKED, "gpus": gpus})[1]  # type: ignore[arg-type]
    assert isinstance(facts, GpuCopyFacts)
    return facts


def at_once(facts: GpuCopyFacts) -> dict[str, GpuCopy]:
    return {copy.words: copy for copy in facts.copies if copy.what in TOGETHER}


@compiles
def test_pairs_all_to_one_and_one_to_all_are_copied_verified_and_reported(tmp_path: Path) -> None:
    doc = probed(tmp_path, 3)
    facts = read(doc, 3)
    assert facts.holes == []
    found = at_once(facts)
    assert sorted(found) == [
        "GPU 0 and GPU 1 at once", "GPU 0 and GPU 2 at once", "GPU 0 to all others at once", "GPU 1 and GPU 2 at once",
        "GPU 1 to all others at once", "GPU 2 to all others at once", "all others to GPU 0 at once",
        "all others to GPU 1 at once", "all others to GPU 2 at once",
    ]  # fmt: skip
    assert all(copy.verified and len(copy.gb_s) == 6 and copy.access and copy.ways == 2 for copy in found.values())
    assert {(copy.what, copy.bytes) for copy in found.values()} == {
        ("pair", MIB), ("gather", MIB // 2), ("scatter", MIB)
    }  # fmt: skip
    rehearsal = lab(("gpu1",), emulated_gpus=3)
    plan = planned(rehearsal)
    verdict = verdict_of(rehearsal, plan, [result(plan.measurements[0], facts=facts)])
    judged = criterion(verdict, "tr.together").judgements
    assert len(judged) == 9
    assert {one.verdict for one in judged} == {"not-applicable"}
    assert all("reported, not judged: " in one.reason and one.reason.endswith("emulated") for one in judged)


@compiles
def test_a_bit_that_is_wrong_is_a_hole_wherever_it_arrives(tmp_path: Path) -> None:
    """The last GPU gets a wrong bit with each copy into its memory: each copy that it is a target of is known by it."""
    found = at_once(read(probed(tmp_path, 3, wrong_bits=1), 3))
    wrong = {words for words, copy in found.items() if copy.fault == "its data were wrong"}
    assert wrong >= {"GPU 0 and GPU 2 at once", "GPU 1 and GPU 2 at once", "all others to GPU 2 at once"}
    assert "GPU 0 and GPU 1 at once" not in wrong


@compiles
def test_a_gpu_that_is_lost_costs_the_pairs_that_it_is_in(tmp_path: Path) -> None:
    facts = read(probed(tmp_path, 3, lost_after=0), 3)
    found = at_once(facts)
    assert "look at dmesg" in found["GPU 0 and GPU 2 at once"].error
    assert found["GPU 0 and GPU 1 at once"].fault == ""
    assert found["all others to GPU 0 at once"].error == "too few GPUs"
    assert len(facts.holes) == 1, "the GPU, and nothing of what follows from it"


@compiles
def test_a_report_that_lacks_one_or_counts_otherwise_is_refused(tmp_path: Path) -> None:
    doc = probed(tmp_path, 3)
    report = json.loads(doc["stdout"])

    def refused(change: Any, words: str) -> None:
        other = json.loads(json.dumps(report))
        change(other["cells"])
        with pytest.raises(ParseError, match=words):
            read({**doc, "stdout": json.dumps(other)}, 3)

    def of(cells: list[dict[str, Any]], what: str) -> dict[str, Any]:
        return next(cell for cell in cells if cell["what"] == what)

    refused(lambda cells: cells.remove(of(cells, "gather")), "copies are there")
    refused(lambda cells: cells.append(of(cells, "pair")), "copies are there")
    refused(lambda cells: of(cells, "pair").update(counted=MIB), "counted of copies of")
    refused(lambda cells: of(cells, "pair").update(ways=3, counted=3 * MIB), "3 copies at once")
    refused(lambda cells: of(cells, "scatter").update(ways=1, counted=MIB), "1 copy at once")
    older = json.loads(json.dumps(report))
    older["cells"] = [cell for cell in older["cells"] if cell["what"] not in TOGETHER]
    assert at_once(read({**doc, "stdout": json.dumps(older)}, 3)) == {}, "a run before probes copied several at once"


def test_short_copies_are_up_to_sixteen_between_two_events_and_small_ones_are_timed_alone() -> None:
    between = gpu_bench.runs_between
    assert between(256 << 20, 0.0002) == 16
    assert between(256 << 20, 0.002) == 5
    assert between(1 << 30, 0.04) == 1
    assert between(4, 0.00001) == 1
    assert between(1 << 20, 0.0) == 16


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_parts_of_all_to_one_lie_beside_each_other(devices: int) -> None:
    whole = 1 << 30
    found = list(gpu_together.plan(devices, whole))
    assert len(found) == devices * (devices - 1) // 2 + (2 * devices if devices > 2 else 0)
    for what, _, _, ways in found:
        places = sorted((way.target, way.offset, way.size) for way in ways)
        assert all(one[0] != other[0] or one[1] + one[2] <= other[1] for one, other in itertools.pairwise(places)), what
        assert max(offset + size for _, offset, size in places) <= whole
