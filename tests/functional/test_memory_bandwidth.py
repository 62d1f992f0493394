"""Host memory bandwidth: taken for real on this machine, refused where it does not add up, judged by the platform."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import criterion, hardware, lab, plan_of, result, verdict_of
from validation.kinds import KINDS, job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.node.memory_bandwidth_probe import BLOCK_BYTES, Asked, array_bytes, caches, probe
from validation.model import Plan, Platform, Sample, Topology
from validation.probes.asked import make

RECORDED = json.loads((Path(__file__).parents[1] / "data/kinds/memory-bandwidth.json").read_text())
XEON = Platform(sockets=2, memory_channels=6, memory_mts=2666)  # 255.9 GB/s
ID = "co.membw"


def test_it_copies_for_real_and_what_it_reports_is_read_whole() -> None:
    copies: list[float] = []
    for window_s in (0.02, 0.2, 2.0):  # on a full machine half a second may pass before a process is there at all
        asked = {"repeats": 2, "window_s": window_s, "array_bytes": BLOCK_BYTES}
        doc = probe(make(Asked, asked))
        assert doc["error"] is None
        samples, facts = parse("memory-bandwidth", doc, asked)
        copies = [s.value for s in samples if s.metric == "memory_copy_gb_s"]
        assert len(copies) == 2
        assert facts["cpus"] == len(os.sched_getaffinity(0))
        if max(copies) > 0:
            break
    assert max(copies) > 0


def test_more_memory_than_there_is_is_not_tried() -> None:
    doc = probe(Asked(repeats=1, window_s=0.01, array_bytes=1 << 50))
    assert "MiB are needed" in str(doc["error"])
    assert doc["stdout"] == ""


def test_arrays_are_four_times_the_caches(tmp_path: Path) -> None:
    for cpu in (0, 1):
        for index, (level, kind, size, shared) in enumerate(
            [(1, "Instruction", 32, cpu), (1, "Data", 32, cpu), (3, "Unified", 65536, "0-1")]
        ):
            folder = tmp_path / f"cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            for name, text in {"level": level, "type": kind, "size": f"{size}K", "shared_cpu_list": shared}.items():
                (folder / name).write_text(f"{text}\n")
    assert caches(tmp_path) == 64 << 20
    assert caches(tmp_path / "nothing") == 0
    assert array_bytes(5, 1) == BLOCK_BYTES
    assert array_bytes(0, 1) >= 4 * caches()


def changed(change: Any) -> dict[str, Any]:
    report = json.loads(RECORDED["document"]["stdout"])
    change(report)
    return {**RECORDED["document"], "stdout": json.dumps(report)}


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["copy"].pop(),
        lambda r: r["copy"][0].update(verified=False),
        lambda r: r["copy"][0].update(cpu=r["copy"][1]["cpu"]),
        lambda r: r["copy"][0]["windows"].pop(),
        lambda r: r["copy"][0]["windows"].reverse(),
        lambda r: r["copy"][0]["windows"][0].update(bytes=10 * r["copy"][0]["windows"][0]["bytes"]),
        lambda r: r["copy"][0]["windows"][0].update(end_s=0.01),
        lambda r: r.update(array_bytes=BLOCK_BYTES // 2),
        lambda r: r.pop("copy"),
    ],
)
def test_what_does_not_add_up_is_refused(change: Any) -> None:
    assert parse("memory-bandwidth", RECORDED["document"], RECORDED["params"])
    with pytest.raises(ParseError):
        parse("memory-bandwidth", changed(change), RECORDED["params"])  # type: ignore[arg-type]


def planned(topology: Topology) -> Plan:
    """Suite compute without its other kinds."""
    plan = plan_of(topology, ("compute",))
    mine = tuple(m for m in plan.measurements if m.kind == "memory-bandwidth")
    ids = {m.id for m in mine}
    rounds = [tuple(id_ for id_ in one if id_ in ids) for one in plan.rounds]
    return plan.model_copy(update={"measurements": mine, "rounds": tuple(one for one in rounds if one)})


def declared(platform: Platform) -> Topology:
    whole = hardware(("gpu1", "gpu2"))
    return whole.model_copy(update={"nodes": tuple(n.model_copy(update={"platform": platform}) for n in whole.nodes)})


def judged(topology: Topology, gb_s: float) -> Any:
    plan = planned(topology)
    results = [
        result(m, [Sample(metric="memory_copy_gb_s", value=gb_s * (1 + i / 1000), unit="GB/s") for i in range(10)])
        for m in plan.measurements
    ]
    return criterion(verdict_of(topology, plan, results), ID)


@pytest.mark.parametrize(
    ("gb_s", "verdict", "code"),
    [
        (180, "pass", "within-bounds"),
        (120, "fail", "below-floor"),  # half of the channels are empty
        (270, "not-measured", "above-ceiling"),
    ],
)
def test_the_bound_follows_from_the_declared_memory(gb_s: float, verdict: str, code: str) -> None:
    found = judged(declared(XEON), gb_s)
    assert (found.verdict, found.reason_code) == (verdict, code)
    bound = found.judgements[0].bound
    assert bound.ceiling == pytest.approx(255.936)
    assert bound.floor == pytest.approx(0.6 * bound.ceiling)
    assert [j.subject for j in found.judgements] == ["gpu1", "gpu2"]


def test_without_a_declared_platform_it_is_reported_and_not_judged() -> None:
    found = judged(declared(Platform(sockets=2)), 180)
    assert (found.verdict, found.reason_code) == ("not-measured", "no-bound")
    assert found.judgements[0].value == pytest.approx(180, rel=0.01)
    assert "memory_channels, memory_mts" in found.judgements[0].reason


def test_virtual_nodes_prove_nothing_and_are_measured_one_after_another() -> None:
    topology = lab(("gpu1", "gpu2"))
    found = judged(topology, 500)
    assert (found.verdict, found.reason_code) == ("not-measured", "virtual")
    plan = planned(topology)
    assert [len(ids) for ids in plan.rounds] == [1, 1]
    assert len(planned(hardware(("gpu1", "gpu2"))).rounds) == 1
    m = plan.measurements[0]
    job = job_for(m, topology)
    assert make(Asked, job.probe.params).repeats == m.params["repeats"]
    assert KINDS[m.kind].headline == "memory_copy_gb_s"
