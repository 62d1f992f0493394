"""Remoting where the pool's leases go by verbs: who is the client, and the packets that prove which way bytes went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.remote_train_documents import TRAIN, train_document
from tests.support.site import LAB, hardware, plan_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.remoting.plan import EMULATED_KINDS
from validation.measures.remoting.train import LARGEST_PACKET, RemoteTrainFacts
from validation.model import Plan, Topology
from validation.probes import remoting

BY_VERBS: dict[str, Any] = {**TRAIN, "transport": "verbs"}


def by_verbs(topology: Topology, without: tuple[str, ...] = (), **changes: Any) -> Topology:
    """The same site, whose leases go by verbs; nodes of these names have no RDMA."""
    nodes = []
    for node in topology.nodes:
        ports = tuple(port.model_copy(update={"rdma": node.name not in without}) for port in node.ports)
        nodes.append(node.model_copy(update={"remoting_transport": "verbs", "ports": ports, **changes}))
    return topology.model_copy(update={"nodes": tuple(nodes)})


def planned(topology: Topology) -> Plan:
    return plan_of(topology, ("preflight", "remoting"), "roce40")


def clients(plan: Plan) -> set[str]:
    return {m.nodes[0] for m in plan.measurements if m.kind == "remoting-copy"}


def carried(plan: Plan) -> set[object]:
    return {m.params.get("transport") for m in plan.measurements if m.kind == "remoting-train"}


def test_clients_with_rdma_are_measured_and_others_are_left_out_with_the_reason() -> None:
    names = ("head", "client1", "client2", "gpu1", "gpu2")
    site = hardware(names)
    clients_of = {
        node.name: node.model_copy(update={"groups": ("clients",)}) for node in site.nodes if "client" in node.name
    }
    site = site.model_copy(update={"nodes": tuple(clients_of.get(node.name, node) for node in site.nodes)})
    plan = planned(by_verbs(site, without=("client2",)))
    assert clients(plan) == {"client1"}
    assert any("from client2: the pool's leases go by verbs" in left.why for left in plan.left_out)
    assert carried(plan) == {"verbs"}
    assert carried(planned(site)) == {None}, "by TCP nothing is said"


def test_a_lab_whose_client_has_no_rdma_is_measured_from_its_last_gpu_server() -> None:
    site = by_verbs(LAB, without=("head", "client1"), emulated=True, virtual="qemu")
    plan = planned(site)
    mine = [m for m in plan.measurements if m.suite == "remoting"]
    assert {m.kind for m in mine} == set(EMULATED_KINDS)
    assert {m.nodes for m in mine} == {("gpu2", "gpu1")}
    assert carried(plan) == {"verbs"}
    why = {left.why: left.criteria for left in plan.left_out}
    assert any(words.endswith("gpu2 is the client instead") for words in why)
    left = next(criteria for words, criteria in why.items() if "are emulated" in words and "rm.isolate" in criteria)
    assert "rm.same" not in left
    assert "rm.matrix" not in left


def test_machines_that_are_not_emulated_are_measured_as_a_whole() -> None:
    plan = planned(by_verbs(LAB, without=("head", "client1"), virtual="qemu"))
    kinds = {m.kind for m in plan.measurements if m.suite == "remoting"}
    assert {"remoting-isolate", "remoting-shares", "remoting-layout"} <= kinds


def remote_bytes(key: str) -> int:
    _, facts = parse("remoting-train", train_document(), TRAIN)
    assert isinstance(facts, RemoteTrainFacts)
    return sum(getattr(run, key) for run in facts.runs if run.way == "remote")


def test_the_ports_packets_are_shown_and_too_few_for_the_bytes_are_no_training_by_verbs() -> None:
    least = {
        "sent": -(-remote_bytes("bytes_to_devices") // LARGEST_PACKET),
        "received": max(1, -(-remote_bytes("bytes_from_devices") // LARGEST_PACKET)),
    }
    assert least["sent"] > 1
    _, facts = parse("remoting-train", train_document(packets=least), BY_VERBS)
    assert isinstance(facts, RemoteTrainFacts)
    assert facts.packets is not None
    assert facts.packets.model_dump() == least
    for what in least:
        short = least | {what: least[what] - 1}
        with pytest.raises(ParseError, match=rf"RDMA ports {what} \d+ packets? for .* went another way"):
            parse("remoting-train", train_document(packets=short), BY_VERBS)
    with pytest.raises(ParseError):
        parse("remoting-train", train_document(), BY_VERBS)
    _, by_tcp = parse("remoting-train", train_document(), TRAIN)
    assert isinstance(by_tcp, RemoteTrainFacts)
    assert by_tcp.packets is None


def test_packets_are_counted_over_all_ports_of_soft_roce_and_of_adapters(tmp_path: Path) -> None:
    with pytest.raises(remoting.Unmet, match="no port that counts its packets"):
        remoting.port_packets(str(tmp_path))
    for name, count in {
        "rxe_fab0/ports/1/hw_counters/sent_pkts": 7,
        "rxe_fab0/ports/1/hw_counters/rcvd_pkts": 5,
        "mlx5_0/ports/1/counters/port_xmit_packets": 100,
        "mlx5_0/ports/1/counters/port_rcv_packets": 200,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{count}\n")
    assert remoting.port_packets(str(tmp_path)) == {"sent": 107, "received": 205}
