"""Copies between GPUs at the same time: on emulated devices, read whole or refused, reported and never judged."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import MIB, built
from tests.support.gpu_copies_case import planned
from tests.support.gpu_copies_probed import probed, read
from tests.support.site import criterion, lab, result, verdict_of
from toolkit.engine import build, host_modules
from validation.kinds.parsing import ParseError
from validation.measures.gpu.copies_facts import BY_SMS, TOGETHER, GpuCopy, GpuCopyFacts
from validation.probes import gpu_bench, gpu_sm, gpu_together

pytestmark = pytest.mark.engines
LACKS = build.missing_tools() or host_modules.lacks_compiler()
compiles = pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")


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
    assert len(judged) == 9 + 3 + 2 * 6
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


def by_sms(facts: GpuCopyFacts) -> dict[str, GpuCopy]:
    return {copy.words: copy for copy in facts.copies if copy.what in BY_SMS}


@compiles
def test_copies_by_sms_are_inside_each_gpu_and_both_ways_of_each_pair(tmp_path: Path) -> None:
    doc = probed(tmp_path, 2)
    facts = read(doc, 2)
    found = by_sms(facts)
    assert sorted(found) == [
        "GPU 0 reads from GPU 1 by its SMs", "GPU 0 writes to GPU 1 by its SMs", "GPU 1 reads from GPU 0 by its SMs",
        "GPU 1 writes to GPU 0 by its SMs", "inside GPU 0 by its SMs", "inside GPU 1 by its SMs",
    ]  # fmt: skip
    assert all(copy.verified and len(copy.gb_s) == 6 and copy.bytes == MIB for copy in found.values())
    assert (facts.holes, facts.no_sm_copies) == ([], "")
    report = json.loads(doc["stdout"])

    def refused(change: Any, words: str) -> None:
        other = json.loads(json.dumps(report))
        change(next(cell for cell in other["cells"] if cell["what"] == "sm_local"), other["cells"])
        with pytest.raises(ParseError, match=words):
            read({**doc, "stdout": json.dumps(other)}, 2)

    refused(lambda cell, cells: cells.remove(cell), "copies are there")
    refused(lambda cell, _: cell.update(counted=MIB), "counted of copies of")
    refused(lambda cell, _: cell.update(bytes=MIB // 2, counted=MIB), "copies are there")
    wrong = json.loads(json.dumps(report))
    next(cell for cell in wrong["cells"] if cell["what"] == "sm_read")["verified"] = False
    (hole,) = read({**doc, "stdout": json.dumps(wrong)}, 2).holes
    assert hole.endswith("by its SMs, 1048576 bytes: its data were wrong")


@compiles
def test_where_the_code_is_not_taken_copies_by_sms_are_not_measured_and_no_hole(tmp_path: Path) -> None:
    bare = tmp_path / "lib"
    shutil.copytree(built() / "devices", bare, ignore=shutil.ignore_patterns("elastic-ai-kernels-*"))
    facts = read(probed(tmp_path, 2, bare), 2)
    assert (by_sms(facts), facts.holes) == ({}, [])
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU (209)" in facts.no_sm_copies
    rehearsal = lab(("gpu1",), emulated_gpus=2)
    plan = planned(rehearsal)
    verdict = verdict_of(rehearsal, plan, [result(plan.measurements[0], facts=facts)])
    last = criterion(verdict, "tr.together").judgements[-1]
    assert (last.verdict, "copies by SMs: cuModuleLoadData" in last.reason) == ("not-measured", True)


def test_the_code_of_copies_by_sms_is_that_of_emulated_gpus() -> None:
    assert (host_modules.KERNELS / "copy.ptx").read_text() == gpu_sm.PTX


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
