"""Latency of host memory: chased for real on this machine, never called another NUMA node's, refused as a cache's."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import criterion, hardware, plan_of, result, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.node import memory_latency_probe as probed
from validation.model import Sample
from validation.probes.asked import make

RECORDED = json.loads((Path(__file__).parents[1] / "data/kinds/memory-latency.json").read_text())
SMALL = {"repeats": 3, "loads": 1 << 14, "ring_bytes": 8 << 20}
here = pytest.mark.skipif(platform.machine() != "x86_64", reason="the chase is machine code of x86_64")


@here
def test_it_chases_for_real_and_what_it_reports_is_read_whole() -> None:
    before = os.sched_getaffinity(0)
    doc = probed.probe(make(probed.Asked, SMALL))
    assert doc["error"] is None
    samples, facts = parse("memory-latency", doc, SMALL)
    assert isinstance(facts, dict)
    assert isinstance(facts["pairs_ns"], dict)
    near = [s.value for s in samples if s.metric == "memory_latency_ns"]
    assert len(near) == 3
    assert min(near) > 0
    assert facts["ring_bytes"] == SMALL["ring_bytes"]
    assert os.sched_getaffinity(0) == before


@here
def test_a_ring_is_one_cycle_over_all_its_elements_in_a_random_order() -> None:
    ring = probed.Ring(probed.Loops(), 1 << 18, 0)
    ring.link(1 << 18, lap=True)
    met, at = [], ring.at
    for _ in range((1 << 18) // probed.STRIDE_BYTES):
        at = ring.loops.chase(at, 1)
        met.append((at - ring.at) // probed.STRIDE_BYTES)
    assert sorted(met) == list(range(len(met)))
    assert met[-1] == 0
    steps = {after - before for before, after in pairwise(met)}
    assert len(steps) > len(met) // 2  # nothing to be fetched ahead


@here
def test_memory_is_bound_to_its_node_as_the_kernel_itself_reports() -> None:
    ring = probed.Ring(probed.Loops(), 4 << 20, 0)
    ring.link(4 << 20)
    maps = Path("/proc/self/numa_maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    mine = [line.split()[1] for line in lines if line.startswith(f"{ring.begin:x} ")]
    assert ring.unbound or not lines or mine == ["bind:0"]
    assert ring.pages().keys() <= {0}


def test_another_architecture_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    doc = probed.probe(make(probed.Asked, SMALL))
    assert "this is riscv64" in str(doc["error"])
    assert doc["stdout"] == ""


def test_more_memory_than_there_is_is_not_tried() -> None:
    doc = probed.probe(probed.Asked(repeats=1, loads=1, ring_bytes=1 << 50))
    assert "MiB are needed" in str(doc["error"]) or platform.machine() != "x86_64"


class TwoNodes:
    """In place of a ring on a machine with two NUMA nodes, each a second away from the other."""

    lies: dict[int, dict[int, int]]

    def __init__(self, loops: object, size: int, node: int) -> None:
        self.node, self.unbound, self.size = node, "Operation not permitted", size

    def link(self, size: int, lap: bool = False) -> None:
        pass

    def chase(self, loads: int) -> dict[str, Any]:
        ns = 80 if min(os.sched_getaffinity(0)) == self.node else 140
        return {"cpu_ns": ns * loads, "elapsed_ns": ns * loads, "ns": float(ns)}

    def pages(self) -> dict[int, int]:
        return self.lies[self.node]

    def huge_share(self) -> float:
        return 1.0


def two_nodes(monkeypatch: pytest.MonkeyPatch, lies: dict[int, dict[int, int]]) -> Any:
    at = [{0, 1}]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: at[-1])
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: at.append(set(cpus)))
    monkeypatch.setattr(probed, "Loops", object)
    monkeypatch.setattr(probed, "nodes_of", lambda _: ({0: [0], 1: [1]}, [0, 1]))
    monkeypatch.setattr(probed, "spare_bytes", lambda _: None)
    monkeypatch.setattr(TwoNodes, "lies", lies, raising=False)
    monkeypatch.setattr(probed, "Ring", TwoNodes)
    return probed.probe(make(probed.Asked, SMALL))


def test_each_pair_of_processors_and_memory_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, facts = parse("memory-latency", two_nodes(monkeypatch, {0: {0: 99}, 1: {1: 99}}), SMALL)
    assert isinstance(facts, dict)
    assert facts["pairs_ns"] == {"0-0": 80, "1-0": 140, "0-1": 140, "1-1": 80}
    assert {s.value for s in samples if s.metric == "memory_latency_ns"} == {80.0}
    assert {s.value for s in samples if s.metric == "memory_far_latency_ns"} == {140.0}


@pytest.mark.parametrize(("lies", "why"), [({0: 60, 1: 40}, "0.4 of it lies there"), ({}, "nobody knows")])
def test_memory_that_lies_elsewhere_is_never_called_another_nodes(
    lies: dict[int, int], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, facts = parse("memory-latency", two_nodes(monkeypatch, {0: {0: 99}, 1: lies}), SMALL)
    assert isinstance(facts, dict)
    assert facts["pairs_ns"] == {"0-0": 80, "1-0": 140}
    assert facts["bound"] is False
    assert isinstance(facts["left_out"], list)
    assert [str(words).partition(": ")[2].startswith(why) for words in facts["left_out"]] == [True, True]
    assert len(samples) == 6


def test_where_memory_lies_is_read_from_the_kernel(tmp_path: Path) -> None:
    maps = "7f0000000000 default anon=3 N0=3\n7f0000200000 bind:1 anon=512 dirty=512 N0=2 N1=510 kernelpagesize_kB=4\n"
    assert probed.placed(maps, 0x7F0000200000) == {0: 2, 1: 510}
    assert probed.placed(maps, 0x7F0000400000) == {}
    smaps = (
        "7f0000000000-7f0000200000 rw-p\nAnonHugePages:   0 kB\n7f0000200000-7f0000600000 rw-p\nAnonHugePages: 2048 kB"
    )
    assert probed.huge_bytes(smaps, 0x7F0000200000) == 2 << 20
    folder = tmp_path / "devices/system/node"
    for node, cpus in ((0, "0-3"), (1, "4-7"), (2, "")):
        (folder / f"node{node}").mkdir(parents=True)
        (folder / f"node{node}/cpulist").write_text(f"{cpus}\n")
        (folder / f"node{node}/meminfo").write_text(
            f"Node {node} MemTotal: 900 kB\nNode {node} MemFree: 100 kB\nNode {node} Active(file): 20 kB\n"
        )
    (folder / "has_memory").write_text("0-2\n")
    assert probed.nodes_of({1, 2, 5}, tmp_path) == ({0: [1, 2], 1: [5]}, [0, 1, 2])
    assert probed.nodes_of({3}, tmp_path / "without") == ({0: [3]}, [0])
    assert probed.spare_bytes(1, tmp_path) == 120 << 10


def test_the_ring_has_lines_of_four_times_the_last_cache() -> None:
    assert probed.ring_bytes(0, 0) == probed.LEAST_BYTES
    assert probed.ring_bytes(0, 60 << 20) == 512 << 20
    assert probed.ring_bytes(0, 480 << 20) == 4 << 30


def changed(change: Callable[[Any], object]) -> Any:
    report = json.loads(RECORDED["document"]["stdout"])
    change(report)
    return {**RECORDED["document"], "stdout": json.dumps(report)}


def faster(report: Any, times: float) -> None:
    for chase in report["cells"][0]["chases"]:
        chase["cpu_ns"], chase["ns"] = chase["cpu_ns"] / times, chase["ns"] / times


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r["cells"].pop(),
        lambda r: r["cells"].append(r["cells"][0]),
        lambda r: r["cells"][0].update(memory_of=1),
        lambda r: r["cells"][0].update(placed_share=0.5),
        lambda r: r["cells"][0]["chases"].pop(),
        lambda r: r["cells"][0]["chases"].reverse(),
        lambda r: r["cells"][0]["chases"][0].update(cpu_ns=1000),
        lambda r: r["cells"][0]["chases"][0].update(elapsed_ns=1000),
        lambda r: r.update(loads=1),
        lambda r: r.update(ring_bytes=r["ring_bytes"] // 2),
        lambda r: r.update(rings=[]),
        lambda r: r["rings"][0].update(cpu_ns=1 << 30, elapsed_ns=1 << 30, ns=1024.0),
        lambda r: faster(r, 20),  # 15 ns: a cache's
    ],
)
def test_what_does_not_add_up_is_refused(change: Callable[[Any], object]) -> None:
    assert parse("memory-latency", RECORDED["document"], RECORDED["params"])
    with pytest.raises(ParseError):
        parse("memory-latency", changed(change), RECORDED["params"])


def test_it_is_reported_of_each_node_and_not_judged() -> None:
    topology = hardware(("gpu1", "gpu2"))
    plan = plan_of(topology, ("compute",))
    mine = [m for m in plan.measurements if m.kind == "memory-latency"]
    assert [dict(m.params) for m in mine] == [RECORDED["params"]] * 2
    results = [
        result(m, [Sample(metric="memory_latency_ns", value=90.0 + i, unit="ns") for i in range(9)]) for m in mine
    ]
    found = criterion(verdict_of(topology, plan, results), "co.memlat")
    assert [(j.subject, j.verdict, j.reason_code, j.value) for j in found.judgements] == [
        ("gpu1", "not-applicable", "reported", 94.0),
        ("gpu2", "not-applicable", "reported", 94.0),
    ]
