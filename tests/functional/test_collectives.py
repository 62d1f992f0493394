"""Collective operations: parsed from torch and nccl-tests, refused where nothing was proved, judged by ceilings."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import rdma_case
from tests.support.collectives_documents import TESTS, TESTS_PARAMS, document, healthy_collectives, table
from tests.support.collectives_documents import all_tables as nccl_tests
from tests.support.collectives_documents import torch_document as torch
from tests.support.site import ALL, LAB, REAL_FACTS, criterion, hardware, healthy, judged, plan_of, verdict_of
from validation.kinds import job_for, parse
from validation.kinds.parsing import ParseError
from validation.measures.collectives import collectives_probe
from validation.measures.collectives.bounds import Layout, bound, ceiling
from validation.measures.collectives.facts import CollectivesFacts
from validation.measures.collectives.nccl_tests import table as read
from validation.model import Measurement, Node, Result, Topology, VerdictDoc
from validation.probes.asked import make
from validation.probes.collectives_rank import OPS, factor
from validation.probes.tool import Ran

RECORDED = json.loads((Path(__file__).parents[1] / "data/kinds/collectives.json").read_text())
SERVERS = hardware(["gpu1", "gpu2", "gpu3"], slots=8)
BIG = 16 << 30


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def rates(doc: dict[str, Any], params: dict[str, Any] | None = None) -> dict[str, float]:
    _, facts = parse("collectives", doc, TESTS_PARAMS if params is None else params)  # type: ignore[arg-type]
    assert isinstance(facts, CollectivesFacts)
    return {row.op: row.busbw_gb_s for row in facts.rows if row.bytes == max(r.bytes for r in facts.rows)}


# --- parsing ----------------------------------------------------------------------------------------------------------


def test_gloo_on_two_processes_is_recorded_and_read() -> None:
    samples, facts = parse("collectives", RECORDED["document"], RECORDED["params"])
    assert isinstance(facts, CollectivesFacts)
    assert (facts.backend, facts.world_size, facts.hosts) == ("gloo", 2, ("gpu1", "gpu2"))
    assert {gap.op for gap in facts.left_out} == {"reduce_scatter"}
    assert "gloo does not have it" in facts.left_out[0].why
    assert len([s for s in samples if s.metric == "all_reduce_busbw_gb_s"]) == 6


def test_bus_bandwidth_follows_the_fields_formulas() -> None:
    assert [factor(op, 8) for op in OPS] == [1.75, 0.875, 0.875, 0.875, 1.0]
    found = rates(torch())
    assert found["all_reduce"] == pytest.approx(1.75 * BIG / (25 + 1.75 * BIG / 478.9e3) / 1e3, rel=1e-3)


def test_both_tools_agree() -> None:
    ours, theirs = rates(torch()), rates(TESTS)
    assert set(ours) == set(theirs) == set(OPS)
    assert all(theirs[op] == pytest.approx(ours[op], rel=0.001) for op in OPS)


@pytest.mark.parametrize(
    "row",
    [  # forms of releases from 2020 to 2026, as in NVIDIA/nccl-tests issues 44 and 128, dgx-spark-playbooks pull 103
        "   134217728      16777216   float   3298.6   40.69   71.21  0e+00   3070.3   43.72   76.50  0e+00",
        "   134217728  33554432     float     sum    3298.6   40.69   71.21  4e-07   3070.3   43.72   76.50  4e-07",
        "   134217728  33554432     float     sum   -1  3298.6   40.69   71.21      0  3070.3   43.72   76.50    N/A",
    ],
)
def test_tables_of_older_releases_are_read(row: str) -> None:
    sizes = "minBytes 134217728 maxBytes 134217728 step: 2(factor)"
    text = (
        f" nThread 1 nGpus 1 {sizes} warmup iters: 5 iters: 20 validation: 1\n"
        "   Rank  0 Pid   1320 on ip-172-31-20-228 device  0 [0x00] Tesla V100-SXM2-16GB\n"
        f"{row}\n Out of bounds values : 0 OK\n Avg bus bandwidth    : 71.21\n"
    )
    found = read(text, "old")
    assert found.ranks == (("ip-172-31-20-228", "0/00", "Tesla V100-SXM2-16GB"),)
    assert found.rows[0].busbw == 71.21


def all_of(text: Callable[[str], str]) -> dict[str, Any]:
    return document("".join(f"== {op}\n{text(op)}" for op in OPS), "nccl-tests")


@pytest.mark.parametrize(
    ("doc", "why"),
    [
        (nccl_tests(devices=[0, 1, 2, 3, 4, 5, 6, 6]), "two ranks share GPU 6/0000:1d:00"),
        (nccl_tests(wrong="12"), "12 values were wrong"),
        (nccl_tests(wrong="N/A"), "not checked"),
        (nccl_tests(hosts=["gpu1"]), "an average of 0 GB/s|1 rank"),
        (document("", "nccl-tests"), "tables of nothing"),
        (document("", "torch"), "0 reports from rank 0"),
        (all_of(lambda op: table(op, hosts=["gpu1"]) * 8), "more than one"),
        (all_of(lambda op: ""), "no .*header"),
        (all_of(lambda op: table(op)[:-400] + "\n"), "no .*in the output"),
        (document(f"== all_reduce\n{table()}", "nccl-tests"), "one of each"),
        (torch(devices=["GPU 0000:17:00.0 X"] * 8), "two ranks share GPU 0000:17:00.0 X of gpu1"),
        (torch(["gpu1"] * 7 + ["gpu2"]), "7 ranks on gpu1, 8 on each node planned|1 ranks on gpu2"),
        (torch(["gpu1"] * 4), "4"),
        (torch(rows=[]), "0 sizes measured"),
        (torch(backend="gloo", devices=["cpu x86_64"] * 7 + ["GPU 0000:17:00.0 X"]), "1 of 8 ranks have a GPU"),
    ],
)  # fmt: skip
def test_what_proves_nothing_is_refused(doc: dict[str, Any], why: str) -> None:
    with pytest.raises(ParseError, match=why):
        parse("collectives", doc, TESTS_PARAMS)  # type: ignore[arg-type]


def test_n_jobs_of_one_rank_are_no_job_of_n() -> None:
    alone = json.loads(torch(["gpu1"])["stdout"])
    with pytest.raises(ParseError, match="8 reports from rank 0"):
        parse("collectives", document((json.dumps(alone) + "\n") * 8, "torch"), TESTS_PARAMS)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["seconds", "busbw_gb_s"])
def test_a_rate_follows_from_its_bytes_and_seconds(key: str) -> None:
    report = json.loads(torch()["stdout"])
    report["rows"][-1][key][0] *= 1.01
    with pytest.raises(ParseError, match="do not follow"):
        parse("collectives", document(json.dumps(report), "torch"), TESTS_PARAMS)  # type: ignore[arg-type]


def test_wrong_elements_and_lost_rows_are_refused() -> None:
    report = json.loads(torch()["stdout"])
    report["rows"][3]["wrong"] = 2
    with pytest.raises(ParseError, match="2 elements were wrong"):
        parse("collectives", document(json.dumps(report), "torch"), TESTS_PARAMS)  # type: ignore[arg-type]
    cut = all_of(lambda op: "".join(line for line in table(op).splitlines(True) if not line.startswith("  8589934592")))
    with pytest.raises(ParseError, match="21 of 22 sizes are there"):
        parse("collectives", cut, TESTS_PARAMS)  # type: ignore[arg-type]


def test_sizes_that_did_not_fit_are_said() -> None:
    text = all_of(lambda op: table(op, sizes=[8192 * 2**k for k in range(19)]))["stdout"]
    with pytest.raises(ParseError, match="was run up to 2147483648 bytes, 17179869184 planned"):
        parse("collectives", document(text, "nccl-tests"), TESTS_PARAMS)  # type: ignore[arg-type]
    reduced = text.replace(
        "# Using devices", "# Reducing maxBytes to 2147483648 due to memory limitation\n# Using devices"
    )
    _, facts = parse("collectives", document(reduced, "nccl-tests"), TESTS_PARAMS)  # type: ignore[arg-type]
    assert isinstance(facts, CollectivesFacts)
    assert facts.left_out[0].bytes == (BIG // 4, BIG // 2, BIG)


# --- the job ----------------------------------------------------------------------------------------------------------


def command(fabric: str, label: str, topology: Topology) -> str:
    m = plan_of(topology, ALL, fabric).measurement(f"collectives.{label}")
    return " ".join(collectives_probe.torch_command(make(collectives_probe.Asked, job_for(m, topology).probe.params)))


def test_it_is_started_as_a_training_is() -> None:
    line = command("tcp10", "two", LAB)
    assert "mpirun -np 2 -H 10.78.0.13:1,10.78.0.14:1 --bind-to none --map-by slot --mca plm_rsh_args -p 50000" in line
    assert "--meet tcp://10.78.0.13:29541" in line
    assert "NCCL_IB_DISABLE=1" in line
    assert "--sizes 4096,65536,1048576" in line


def test_on_hardware_each_server_is_measured_by_itself_then_two_then_all() -> None:
    plan = plan_of(SERVERS)
    mine = [m for m in plan.measurements if m.kind == "collectives"]
    assert [m.id for m in mine] == [
        f"collectives.{x}" for x in ("inside.gpu1", "inside.gpu2", "inside.gpu3", "two", "all")
    ]
    assert [m.params["ranks"] for m in mine] == [8, 8, 8, 16, 24]
    assert tuple(m.id for m in mine[:3]) in plan.rounds
    assert "NCCL_IB_DISABLE=0" in command("roce40", "all", rdma_case.machines(3))


def test_every_rail_takes_part_on_an_rdma_fabric() -> None:
    machines = rdma_case.machines(2)
    node = machines.nodes[-1]
    rail = node.ports[0].model_copy(update={"interface": "fab1", "address": "10.79.0.14"})
    two = machines.model_copy(
        update={"nodes": (*machines.nodes[:-1], node.model_copy(update={"ports": (*node.ports, rail)}))}
    )
    assert f"fab1@{rail.address}" in command("roce40", "two", two)


# --- judging ----------------------------------------------------------------------------------------------------------


def on_gpus(
    fabric: str = "ib-ndr", topology: Topology = SERVERS, spoil: dict[str, Any] | None = None, gpus: bool = True
) -> VerdictDoc:
    """A run on H100 whose collectives are healthy, but for `spoil`: a scale of the figures, changes of the document."""
    plan = plan_of(topology, ("training",), fabric)

    def one(m: Measurement) -> Result:
        if m.kind != "collectives":
            return healthy(m, facts=REAL_FACTS)
        return healthy_collectives(m, gpus=gpus, **{"port_gb_s": 50.0, **(spoil or {})})

    return verdict_of(topology, plan, [one(m) for m in plan.measurements], fabric=fabric)


def test_healthy_gpus_pass_in_a_node_and_across_nodes() -> None:
    found = criterion(on_gpus(), "tr.nccl")
    assert (found.verdict, found.coverage) == ("pass", "5/5 jobs")
    inside = [f"gpu{i}, 8 ranks" for i in (1, 2, 3)]
    assert [str(j.about) for j in found.judgements] == [*inside, "cluster, 16 ranks", "cluster, 24 ranks"]
    assert [j.bound.floor for j in found.judgements[:3]] == [460.0] * 3
    assert found.judgements[3].bound.floor != found.judgements[4].bound.floor, "two nodes and several are judged apart"


def test_over_tcp_all_ports_count_for_nccl_is_told_of_all() -> None:
    def second(node: Node) -> Node:
        first = node.ports[0].model_copy(update={"rdma": False})
        other = first.model_copy(update={"interface": "fab1", "address": f"10.79.0.{node.name[-1]}"})
        return node.model_copy(update={"ports": (first, other)})

    two = SERVERS.model_copy(update={"nodes": tuple(second(node) for node in SERVERS.nodes)})
    job = job_for(plan_of(two).measurement("collectives.two"), two)
    assert len(job.probe.params["ends"]) == 4
    found = criterion(on_gpus("tcp10", two, {"port_gb_s": 2.4}), "tr.nccl")
    assert [j.reason_code for j in found.judgements[3:]] == ["within-bounds"] * 2


def test_slow_gpus_fail_and_figures_above_the_ceiling_are_refused() -> None:
    slow = criterion(on_gpus(spoil={"scale": 0.5}), "tr.nccl")
    assert (slow.verdict, {j.reason_code for j in slow.judgements}) == ("fail", {"below-floor"})
    fast = criterion(on_gpus(spoil={"scale": 2.0}), "tr.nccl")
    assert (fast.verdict, fast.reason_code) == ("not-measured", "above-ceiling")


def test_the_others_are_reported_and_refused_above_their_ceiling() -> None:
    assert criterion(on_gpus(), "tr.collect").reason_code == "reported"
    found = criterion(on_gpus(spoil={"scale": 1.3}), "tr.collect")
    refused = [str(j.about) for j in found.judgements if j.reason_code == "above-ceiling"]
    inside = [f"gpu{i}, {op}, 8 ranks" for i in (1, 2, 3) for op in ("all_gather", "reduce_scatter", "send_recv")]
    assert refused == inside


def test_processors_of_hardware_prove_nothing_of_gpus() -> None:
    found = criterion(on_gpus(gpus=False), "tr.nccl")
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert "not every rank had a GPU of its own" in found.reason


def test_a_rehearsal_is_measured_and_shown_and_not_judged() -> None:
    found = criterion(judged(None), "tr.nccl")
    assert (found.verdict, found.reason_code) == ("not-measured", "virtual")
    assert found.judgements[0].value is not None
    assert "by gloo" in found.reason


def test_small_messages_are_not_judged() -> None:
    plan = plan_of(SERVERS, ("training",), "ib-ndr")
    m = plan.measurement("collectives.inside.gpu1")
    m = m.model_copy(update={"params": {**m.params, "sizes": ("8192",)}})
    one = healthy_collectives(m, gpus=True)
    results = [one if r.measurement == m.id else r for r in (healthy(x) for x in plan.measurements)]
    found = criterion(verdict_of(SERVERS, plan, results, fabric="ib-ndr"), "tr.nccl")
    assert any("too small to be judged" in j.reason for j in found.judgements)


def test_unknown_gpus_have_no_floor_and_the_figure_is_shown() -> None:
    found = criterion(on_gpus(spoil={"model": "NVIDIA Z100"}), "tr.nccl").judgements[0]
    assert (found.verdict, found.reason_code) == ("not-measured", "no-bound")
    assert "no floor is known for 8 x NVIDIA Z100" in found.reason


@pytest.mark.parametrize(
    ("op", "at", "gb_s"),
    [
        ("all_reduce", Layout(8, 1, "NVIDIA H100 80GB HBM3", None), 700),
        ("all_gather", Layout(8, 1, "NVIDIA H200", None), 450),
        ("all_reduce", Layout(8, 1, "NVIDIA A100-SXM4-80GB", None), 300),
        ("all_reduce", Layout(8, 1, "NVIDIA B200", None), 1400),
        ("all_reduce", Layout(8, 2, "NVIDIA H100 80GB HBM3", 400), 750),
        ("all_reduce", Layout(8, 4, "NVIDIA H100 80GB HBM3", 400), 516.7),
        ("all_reduce", Layout(8, 128, "NVIDIA H100 80GB HBM3", 400), 402.8),
        ("all_reduce", Layout(8, 128, "NVIDIA H100 80GB HBM3", 400, sharp=True), 799.2),
        ("all_to_all", Layout(8, 2, "NVIDIA H100 80GB HBM3", 400), 93.8),
        ("all_to_all", Layout(8, 4, "NVIDIA H100 80GB HBM3", 200), 32.3),
        ("all_reduce", Layout(4, 2, "NVIDIA GB200", 200), None),  # NVLink may reach across these nodes
        ("all_reduce", Layout(8, 1, "NVIDIA L4", None), None),
        ("send_recv", Layout(8, 2, "NVIDIA H100 80GB HBM3", 400), None),
    ],
)
def test_ceilings_by_nodes_and_operation(op: str, at: Layout, gb_s: float | None) -> None:
    found = ceiling(op, at)
    assert (found and found[0]) == (gb_s if gb_s is None else pytest.approx(gb_s, abs=0.05))


def test_switches_that_add_up_raise_the_ceiling_and_not_the_floor() -> None:
    rings = bound("all_reduce", Layout(8, 8, "NVIDIA H100 80GB HBM3", 400), "m", 0.58, "s")
    sharp = bound("all_reduce", Layout(8, 8, "NVIDIA H100 80GB HBM3", 400, sharp=True), "m", 0.58, "s")
    assert rings is not None
    assert sharp is not None
    assert sharp.floor == rings.floor
    assert (sharp.ceiling or 0) > 1.5 * (rings.ceiling or 0) > 0


# --- nccl-tests in the container --------------------------------------------------------------------------------------

BIN = "/usr/local/bin"


def container(monkeypatch: pytest.MonkeyPatch, programs: set[str], linked: set[str]) -> None:
    """A training container with `programs` of nccl-tests, of which `linked` have MPI."""

    def run(command: list[str], **_: object) -> Ran:
        if command[1] == "which":
            there = [f"{BIN}/{name}" for name in command[2:] if name in programs]
            return Ran(command, int(len(there) < len(command[2:])), "".join(f"{path}\n" for path in there), "")
        assert command[1] == "ldd"
        mpi = command[2].rpartition("/")[2] in linked
        return Ran(command, 0, "\tlibmpi.so.40 => /opt/hpcx/libmpi.so.40\n" if mpi else "\tlibc.so.6 => /lib\n", "")

    monkeypatch.setattr(collectives_probe, "run_tool", run)


def test_programs_of_nccl_tests_that_are_built_without_mpi_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_for(plan_of(SERVERS).measurement("collectives.two"), SERVERS)
    asked = make(collectives_probe.Asked, job.probe.params)
    alone = set(collectives_probe.PROGRAMS.values())
    both = alone | {f"{name}_mpi" for name in alone}
    container(monkeypatch, alone, set())
    assert collectives_probe.nccl_tests(asked) == ("", "")
    container(monkeypatch, alone, alone)
    assert collectives_probe.nccl_tests(asked) == (BIN, "")
    container(monkeypatch, both, both - alone)  # NVIDIA's images have both
    assert collectives_probe.nccl_tests(asked) == (BIN, "_mpi")
    assert f"{BIN}/all_reduce_perf_mpi" in collectives_probe.tests_command(asked, BIN, "all_reduce", "_mpi")
    container(monkeypatch, set(), set())
    assert collectives_probe.nccl_tests(asked) == ("", "")
