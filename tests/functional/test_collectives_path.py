"""The ways that NCCL takes are proved from its own log: the traps in which a rate alone looks fine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import rdma_case
from tests.support.collectives_documents import healthy_collectives, nccl_log
from tests.support.site import GPU, NIC, REAL_FACTS, below, criterion, healthy, plan_of, verdict_of
from validation.measures.collectives.facts import CollectivesFacts, NcclPath
from validation.measures.training.carriers import carriers
from validation.measures.training.nccl_log import nccl_path
from validation.model import Judgement, Measurement, Result, Topology

ID = "tr.ncclpath"
TWO = ["gpu1"] * 8 + ["gpu2"] * 8
SITE = rdma_case.machines(2)
NEAR = {**GPU, **below("3a")}  # behind the switch that the fabric port is behind


def judged(
    change: dict[str, Any] | None = None,
    label: str = "two",
    fabric: str = "roce40",
    topology: Topology = SITE,
    pci: list[dict[str, Any]] | None = None,
    **document: Any,
) -> Judgement:
    """The judgement on one job whose log is a healthy one but for `change`."""
    plan = plan_of(topology, ("preflight", "training"), fabric)
    rdma = fabric != "tcp10"

    def one(m: Measurement) -> Result:
        if m.kind != "collectives":
            facts = {**REAL_FACTS, **({"pci": pci} if pci else {})}
            return ports[m.id] if m.id in ports and m.kind != "facts" else healthy(m, facts=facts)
        told = {**document}
        if m.params["label"] == label:
            hosts = [name for name in m.params["hosts"] for _ in range(int(str(m.params["ranks_per_node"])))]  # type: ignore[union-attr]
            told["stderr"] = nccl_log(hosts, **{"rdma": rdma, **(change or {})})
        return healthy_collectives(m, port_gb_s=5.0 if rdma else 1.25, **told)

    ports = {r.measurement: r for r in rdma_case.results(topology, plan)} if rdma else {}
    results = [one(m) for m in plan.measurements if m.kind != "ib-fabric"]
    found = criterion(verdict_of(topology, plan, results, fabric=fabric), ID)
    where = plan.measurement(f"collectives.{label}" if label == "two" else "collectives.inside.gpu1")
    mine: Judgement = next(j for j in found.judgements if where.id in j.evidence)
    return mine


# --- the parser, on the forms of several releases ---------------------------------------------------------------------


def test_connections_devices_and_interfaces_are_read() -> None:
    path = nccl_path(nccl_log(TWO, devices=("mlx5_0:1", "mlx5_3:1"), gdr=True), TWO)
    assert path.devices == ("mlx5_0:1", "mlx5_3:1")
    assert path.sockets == ("fab0",)
    assert [str(c) for c in path.channels] == ["2 x NET/IB with GDRDMA between nodes", "14 x P2P in a node"]


@pytest.mark.parametrize(
    ("line", "transport", "gdr"),
    [  # NVIDIA/nccl issues 367, 1189, 1453, 1814; horovod issue 584
        ("Channel 07/0 : 0[0] -> 2[0] [receive] via NET/IB/3/GDRDMA", "NET/IB", True),
        ("Channel 01/0 : 0[0] -> 2[0] [receive] via NET/IBext_v8/7/GDRDMA", "NET/IBext_v8", True),
        ("Channel 06/0 : 2[6] -> 0[6] [receive] via NET/IBext_v8/1", "NET/IBext_v8", False),
        ("Channel 00 : 0[17000] -> 2[17000] [send] via NET/IB/0(1)/GDRDMA", "NET/IB", True),
        ("Ring 00 : 2 -> 0 [send] via NET/Socket/0", "NET/Socket", False),
        ("Ring 00 : 0[0] -> 1[0] via direct shared memory", "SHM", False),
        ("Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct", "SHM", False),
        ("Channel 07/0 : 0[0] -> 1[7] via P2P/CUMEM", "P2P", False),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer", "P2P", False),
    ],
)
def test_lines_of_several_releases(line: str, transport: str, gdr: bool) -> None:
    path = nccl_path(f"host:1:2 [0] NCCL INFO {line}\n", ["a", "a", "b"])
    assert [(c.transport, c.gdr, c.across) for c in path.channels] == [(transport, gdr, transport.startswith("NET"))]


def test_interfaces_of_several_releases() -> None:
    log = """\
h:1:2 [0] NCCL INFO Bootstrap : Using eth0:192.168.0.183<0>
h:1:2 [0] NCCL INFO Bootstrap: Using eth9:192.168.0.183<0>
h:1:2 [0] NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0> [1]virbr0:192.168.122.1<0> [2]eth1:fe80::21:6d%eth1<0>
h:1:2 [6] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/RoCE [RO]; OOB ibp25s0:10.20.0.120<0>
h:1:2 [0] NCCL INFO NVLS comm 0x5639e9f0e8c0 headRank 0 nHeads 8 buffSize 1048576
"""
    path = nccl_path(log, ["h"])
    assert path.sockets == ("docker0", "eth0", "eth1", "eth9", "ibp25s0", "virbr0")
    assert path.devices == ("mlx5_0:1", "mlx5_1:1")
    assert path.nvls


def test_a_log_that_says_nothing_proves_nothing() -> None:
    assert nccl_path("h:1:2 [0] NCCL INFO cudaDriverVersion 12000\n", ["h"]) == NcclPath()


def test_the_plugin_of_infiniband_is_rdma() -> None:
    (found,) = carriers("h:1:2 [0] NCCL INFO Using network IBext_v8\n")
    assert found.rdma


# --- judging ----------------------------------------------------------------------------------------------------------


def test_rdma_on_the_fabrics_ports_passes_and_its_ways_are_shown() -> None:
    found = judged()
    assert (found.verdict, found.reason_code) == ("pass", "within-bounds")
    assert "2 x NET/IB between nodes" in (found.text or "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"net": "Socket"}, "NET/Socket between nodes: not the fabric's RDMA"),
        ({"socket": "docker0"}, "TCP over docker0, fabric ports are fab0"),
        ({"devices": ["mlx5_9:1"]}, "mlx5_9:1 taken, the fabric ports are mlx5_0:1"),
        ({"devices": ["mlx5_9:1"]}, "mlx5_0:1 not taken"),
        ({"inside": "SHM/direct/direct"}, ""),  # PCIe cards of two sockets have no other way
        ({"inside": "NET/Socket/0"}, "the network between GPUs of one node"),
    ],
)
def test_between_nodes(change: dict[str, Any], why: str) -> None:
    found = judged(change)
    assert found.verdict == ("fail" if why else "pass"), found.reason
    assert why in found.reason


def test_a_socket_on_a_fabric_without_rdma_is_right_and_docker0_is_not() -> None:
    assert judged(fabric="tcp10").verdict == "pass"
    found = judged({"socket": "docker0"}, fabric="tcp10")
    assert found.verdict == "fail"
    assert "docker0" in found.reason


def test_gdrdma_is_demanded_where_port_and_gpu_are_near_and_only_there() -> None:
    assert judged({"gdr": False}).verdict == "pass", "the GPU is below another bridge of the host than the port"
    near = judged({"gdr": False}, pci=[NIC, NEAR])
    assert near.verdict == "fail"
    assert "without GDRDMA" in near.reason
    assert judged({"gdr": True}, pci=[NIC, NEAR]).verdict == "pass"


def test_some_gpus_near_a_port_want_gdrdma_of_some_connections() -> None:
    some = [NIC, NEAR, {**GPU, "address": "0000:19:00.0"}]
    assert "no connection has GDRDMA" in judged({"gdr": False}, pci=some).reason
    assert judged({"gdr": True}, pci=some).verdict == "pass"


def test_nvlinks_and_not_host_memory_inside_a_node() -> None:
    nvlinks = "Tesla V100-SXM2-16GB"
    assert judged(label="inside", model=nvlinks).verdict == "pass"
    found = judged({"inside": "SHM/direct/direct"}, label="inside", model=nvlinks)
    assert found.verdict == "fail"
    assert f"host memory, though {nvlinks} has NVLinks" in found.reason


def test_without_a_log_of_the_ways_nothing_is_proved() -> None:
    plan = plan_of(SITE, ("training",), "roce40")
    results = [
        healthy_collectives(m, port_gb_s=5.0, stderr="") if m.kind == "collectives" else healthy(m)
        for m in plan.measurements
    ]
    assert isinstance(next(r for r in results if r.measurement == "collectives.two").facts, CollectivesFacts)
    found = criterion(verdict_of(SITE, plan, results, fabric="roce40"), ID)
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert "does not tell what NCCL took" in found.reason


# --- the traffic class that NCCL sends with ---------------------------------------------------------------------------


def test_a_traffic_class_that_the_fabric_does_not_keep_from_losses_is_remarked_upon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The ports of the site force none here, and the policy keeps 106 lossless."""
    card = rdma_case.card

    def unforced(port: Any, rate_gbps: float = 40) -> dict[str, Any]:
        found = card(port, rate_gbps)
        found["qos"]["traffic_class"] = 0
        return found

    def said(*settings: str) -> Judgement:
        return judged({"settings": settings})

    hca = "NCCL_IB_HCA set to =mlx5_0:1"
    assert said(hca).reason_code == "within-bounds"  # the port overrides it: 106 for all
    monkeypatch.setattr(rdma_case, "card", unforced)
    bare = said(hca)
    assert (bare.verdict, bare.reason_code) == ("pass", "remarked")
    assert "gpu1/fab0 sends with traffic class 0 (NCCL_IB_TC is not set), 106 is lossless" in bare.reason
    other = said(hca, "NCCL_IB_TC set by environment to 96.")
    assert "gpu2/fab0 sends with traffic class 96 (NCCL_IB_TC), 106 is lossless" in other.reason
    assert said(hca, "NCCL_IB_TC set by environment to 106.").reason_code == "within-bounds"
    assert said().reason_code == "within-bounds"  # a log that tells of no setting tells nothing of it
