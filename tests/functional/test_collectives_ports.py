"""What the ports of each node carried during collective operations: read from sysfs, parsed, judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import rdma_case
from tests.support.collectives_documents import document_of, healthy_collectives, nccl_log
from tests.support.engine_run import ROOT
from tests.support.site import criterion, healthy, plan_of, result, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.collectives.ports import least_bytes
from validation.model import Judgement, Measurement, Result
from validation.probes import port_bytes

ID = "tr.ncclports"
SITE = rdma_case.machines(2)
GB = 10**9
Ports = dict[tuple[str, str], Any]


def line(host: str, ports: Ports, ours: tuple[str, ...] = ("fab0", "mlx5_0:1"), **more: Any) -> str:
    """One line of a node's first rank."""
    told = [
        {"port": name, "way": way, "ours": name in ours, "below": False, "sent": sent, "received": sent, **more}
        for (way, name), sent in ports.items()
    ]
    return f"\n{port_bytes.MARK}{json.dumps({'host': host, 'ports': told})}\n"


def rdma(sent: Any, ethernet: Any = 1000) -> Ports:
    return {("rdma", "mlx5_0:1"): sent, ("ethernet", "fab0"): ethernet, ("ethernet", "eno1"): 40000}


def judged(each: dict[str, Ports], label: str = "two", fabric: str = "roce40", more: str = "") -> Judgement:
    """The judgement on one job of two nodes whose ports carried these."""
    plan = plan_of(SITE, ("preflight", "training"), fabric)
    ports = {r.measurement: r for r in rdma_case.results(SITE, plan)} if fabric != "tcp10" else {}

    def one(m: Measurement) -> Result:
        if m.kind != "collectives":
            return ports[m.id] if m.id in ports and m.kind != "facts" else healthy(m)
        told: dict[str, Any] = {"port_gb_s": 5.0 if ports else 1.25}
        if m.params["label"] == label:
            hosts = [name for name in m.params["hosts"] for _ in range(int(str(m.params["ranks_per_node"])))]  # type: ignore[union-attr]
            lines = "".join(line(host, carried) for host, carried in each.items() if host in hosts)
            told["stderr"] = nccl_log(hosts, bool(ports)) + lines + more
        return healthy_collectives(m, **told)

    results = [one(m) for m in plan.measurements if m.kind != "ib-fabric"]
    found = criterion(verdict_of(SITE, plan, results, fabric=fabric), ID)
    where = plan.measurement(f"collectives.{label}" if label == "two" else "collectives.inside.gpu1")
    mine: Judgement = next(j for j in found.judgements if where.id in j.evidence)
    return mine


def least(fabric: str = "roce40") -> float:
    """What each of the two nodes has to send."""
    plan = plan_of(SITE, ("training",), fabric)
    m = plan.measurement("collectives.two")
    return least_bytes(parse("collectives", document_of(m, port_gb_s=5.0), m.params)[1])  # type: ignore[arg-type]


# --- judged -----------------------------------------------------------------------------------------------------------


def test_bytes_over_the_fabrics_rdma_pass_and_are_told() -> None:
    enough = int(1.8 * least())
    found = judged({"gpu1": rdma(enough), "gpu2": rdma(enough)})
    assert (found.verdict, found.reason_code) == ("pass", "within-bounds"), found.reason
    assert f"gpu1 sent mlx5_0:1 {enough / 1e9:.4g} GB by RDMA (at least {least() / 1e9:.4g} GB is its part)" in str(
        found.text
    )


def test_a_node_whose_bytes_went_as_tcp_over_the_same_port_is_named_and_no_other() -> None:
    enough = int(1.8 * least())
    found = judged({"gpu1": rdma(enough), "gpu2": rdma(1000, enough)})
    assert (found.verdict, found.reason_code) == ("fail", "not-working")
    assert found.reason.startswith("gpu2 sent mlx5_0:1 0.001 MB by RDMA, of at least ")
    assert f"{enough / 1e9:.4g} GB over fab0 as Ethernet went beside the fabric's RDMA" in found.reason
    assert "gpu1" not in found.reason


@pytest.mark.parametrize("fabric", ["roce40", "tcp10"])
def test_bytes_over_another_port_fail_and_a_little_of_ssh_does_not(fabric: str) -> None:
    enough, part = int(1.8 * least(fabric)), least(fabric)
    mine = rdma(enough) if fabric == "roce40" else {("ethernet", "fab0"): enough, ("ethernet", "eno1"): 40000}
    astray = {**mine, ("ethernet", "eno1"): int(0.06 * part)}
    found = judged({"gpu1": mine, "gpu2": astray}, fabric=fabric)
    assert found.verdict == "fail"
    assert found.reason.startswith("gpu2: ")
    assert "GB over eno1 as Ethernet went beside the fabric's" in found.reason
    little = {**mine, ("ethernet", "eno1"): int(0.04 * part)}
    assert judged({"gpu1": mine, "gpu2": little}, fabric=fabric).verdict == "pass"


def test_an_adapter_in_software_counts_its_rdma_as_ethernet() -> None:
    soft = {("rdma", "mlx5_0:1"): None, ("ethernet", "fab0"): int(1.8 * least())}
    assert judged({"gpu1": soft, "gpu2": soft}).verdict == "pass"


def test_gpus_of_one_node_need_no_network() -> None:
    quiet = judged({"gpu1": rdma(5000)}, label="inside")
    assert quiet.verdict == "pass", quiet.reason
    loud = judged({"gpu1": rdma(50 * GB)}, label="inside")
    assert loud.verdict == "fail"
    assert loud.reason == "gpu1: 50 GB over mlx5_0:1 by RDMA left the node, whose GPUs need no network"


def test_a_port_that_carried_far_less_than_the_others_is_a_remark() -> None:
    half = int(1.8 * least())
    both = {("rdma", "mlx5_0:1"): half, ("rdma", "mlx5_1:1"): half // 10}
    text = "".join(line(host, both, ("mlx5_0:1", "mlx5_1:1")) for host in ("gpu1", "gpu2"))
    found = judged({}, more=text)
    assert (found.verdict, found.reason_code) == ("pass", "remarked")
    assert "mlx5_1:1 of gpu1 carried " in found.reason


@pytest.mark.parametrize(
    ("each", "words"),
    [
        ({}, "no counter shows what the ports of gpu1, gpu2 carried"),
        ({"gpu1": rdma(1 << 50)}, "no counter shows what the ports of gpu2 carried"),
        ({"gpu1": rdma(1 << 50), "gpu2": rdma(None, None)}, "gpu2: fab0: no counter of bytes"),
    ],
)
def test_what_no_counter_tells_is_no_pass(each: dict[str, Ports], words: str) -> None:
    found = judged(each)
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert words in found.reason


def test_programs_of_nccl_tests_are_added_up() -> None:
    part = int(1.1 * least() / 2)
    twice = "".join(line(host, rdma(part)) for host in ("gpu1", "gpu2") for _ in range(2))
    assert judged({}, more=twice).verdict == "pass"
    once = "".join(line(host, rdma(part)) for host in ("gpu1", "gpu2"))
    assert judged({}, more=once).verdict == "fail"


# --- parsed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (line("gpu9", rdma(5)), "bytes of the ports of gpu9, which has no rank"),
        (line("gpu1", {**rdma(5)}).replace("fab0", "eno1"), "a port twice"),
        (line("gpu1", rdma(-5)), ""),
        (f"{port_bytes.MARK}{{", ""),
    ],
)
def test_lines_that_cannot_be_are_refused(text: str, words: str) -> None:
    m = plan_of(SITE, ("training",), "roce40").measurement("collectives.two")
    with pytest.raises(ParseError, match=words or None):
        parse("collectives", document_of(m, stderr=text), m.params)  # type: ignore[arg-type]


def test_the_least_follows_from_operations_sizes_and_how_often() -> None:
    m = plan_of(SITE, ("training",), "roce40").measurement("collectives.two")
    facts: Any = parse("collectives", document_of(m), m.params)[1]
    each = {row.op: 0.0 for row in facts.rows}
    for row in facts.rows:
        assert row.times == 30
        each[row.op] += 30 * row.bytes
    ranks = facts.world_size
    half = sum(each[op] / 2 for op in ("all_reduce", "reduce_scatter", "all_gather"))
    assert least_bytes(facts) == pytest.approx(half + each["all_to_all"] * ranks / 4 + each["send_recv"])
    assert result(m, [], facts=facts)


# --- read -------------------------------------------------------------------------------------------------------------


def sysfs(root: Path, **counts: int) -> Path:
    for name, value in counts.items():
        for direction in ("tx", "rx"):
            path = root / "class/net" / name / "statistics" / f"{direction}_bytes"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
    return root


def test_counters_are_read_and_their_growth_is_told(tmp_path: Path) -> None:
    root = sysfs(tmp_path, lo=7, fab0=100, bond0=100, eno1=50, docker0=9)
    (root / "class/net/bond0/lower_fab0").mkdir()
    counters = root / "class/infiniband/mlx5_0/ports/1/counters"
    counters.mkdir(parents=True)
    for name in ("port_xmit_data", "port_rcv_data"):
        (counters / name).write_text("1000\n")
    (root / "class/infiniband/rxe0/ports/1").mkdir(parents=True)
    before = port_bytes.read(root)
    assert before["rdma", "mlx5_0:1"] == (4000, 4000)
    assert ("ethernet", "lo") not in before
    assert ("rdma", "rxe0:1") not in before
    sysfs(root, fab0=300, bond0=300, eno1=20)
    (counters / "port_xmit_data").write_text("2000\n")
    told = port_bytes.grown(before, port_bytes.read(root), ["bond0"], ["mlx5_0:1", "rxe0:1"], root)
    ports = {(port["way"], port["port"]): port for port in told["ports"]}
    assert (ports["rdma", "mlx5_0:1"]["sent"], ports["rdma", "mlx5_0:1"]["received"]) == (4000, 0)
    assert (ports["ethernet", "bond0"]["sent"], ports["ethernet", "bond0"]["ours"]) == (200, True)
    assert (ports["ethernet", "fab0"]["below"], ports["ethernet", "docker0"]["below"]) == (True, False)
    assert ports["ethernet", "eno1"]["sent"] is None  # fell: it began anew
    assert ports["rdma", "rxe0:1"]["sent"] is None  # has none


def test_a_program_in_a_ranks_place_is_waited_for_and_the_first_rank_of_a_node_tells(tmp_path: Path) -> None:
    rank = ROOT / "validation/probes/collectives_rank.py"
    for local, code in (("0", 3), ("1", 3)):
        environment = {**os.environ, "OMPI_COMM_WORLD_LOCAL_RANK": local}
        command = [sys.executable, "-I", str(rank), "--ends", "lo@127.0.0.1", "--time-limit-s", "30", "--run"]
        command += [sys.executable, "-c", "print('worked'); raise SystemExit(3)"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, "worked\n"), done.stderr
        lines = [one for one in done.stderr.splitlines() if one.startswith(port_bytes.MARK)]
        assert len(lines) == (local == "0")
        if lines:
            told = json.loads(lines[0].removeprefix(port_bytes.MARK))
            assert [port["ours"] for port in told["ports"] if port["port"] == "lo"] == [True]
