"""A lab of virtual machines with Soft-RoCE ports, and what their ports say of themselves; tests spoil it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.engine_case import FACTS, REAL_FACTS, healthy, node, plan_of, result, verdict_of
from validation.kinds import parse
from validation.model import LabLink, Measurement, Node, Plan, Port, Result, Sample, Topology, VerdictDoc

POLICY = {
    "roce_mode": "RoCE v2",
    "tos": 106,
    "trust": "dscp",
    "dscp_prio": {"26": 3, "48": 6},
    "pfc": [3],
}
NO_DCB = "PFC and DSCP trust: the device of fab0 has no DCB (dcb: Attribute read: Operation not supported)"
COUNTERS = {"rcvd_seq_err": 0, "out_of_seq_request": 0, "link_downed": 0, "rcvd_pkts": 40, "sent_pkts": 40}


def gid(address: str) -> str:
    """The IPv4-mapped GID of an address as sysfs writes it."""
    a, b, c, d = (int(part) for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def soft(port: Port) -> dict[str, Any]:
    """A healthy Soft-RoCE port on virtio-net, as the probe writes it (form of a run on Debian 12)."""
    return {
        "interface": port.interface, "present": True, "operstate": "up", "mtu": 9000, "device": "rxe_fab0", "port": 1,
        "state": "ACTIVE", "physical_state": "LinkUp", "link_layer": "Ethernet", "rate_gbps": 2.5,
        "rate_words": "1X SDR", "firmware": "", "board": "", "driver": "",
        "gids": [
            {"index": 0, "type": "RoCE v2", "gid": "fe80:0000:0000:0000:5054:00ff:fe00:0001", "interface": "fab0"},
            {"index": 1, "type": "RoCE v2", "gid": gid(port.address), "interface": "fab0"},
        ],
        "counters": dict(COUNTERS), "active_mtu_bytes": 4096, "active_mtu_unread": "",
        "qos": {"roce_mode": "RoCE v2", "tos": 106, "trust": None, "dscp_prio": None, "pfc": None, "pause": None,
                "ecn": None, "traffic_class": None, "unread": [NO_DCB]},
    }  # fmt: skip


def card(port: Port, rate_gbps: float = 40) -> dict[str, Any]:
    """A healthy port of an mlx5 card, lossless; made from the driver's documentation, not recorded."""
    found = soft(port)
    found.update(device="mlx5_0", rate_gbps=rate_gbps, rate_words="4X QDR", driver="mlx5_core", firmware="16.35.2000")
    found["counters"] = {"out_of_sequence": 7, "link_downed": 1, "symbol_error": 0, "tx_pause_storm_error_events": 0}
    found["qos"].update(trust="dscp", dscp_prio={"26": 3, "48": 6}, pfc=[3], pause={"rx": False, "tx": False}, ecn=True,
                        traffic_class=106, unread=[])  # fmt: skip
    return found


def document(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "rdma-ports", "tool": "probes", "tool_version": "", "command": [], "returncode": 0,
        "stdout": json.dumps(facts), "stderr": "", "facts": facts, "started": "", "ended": "", "duration_s": 1.0,
        "error": None,
    }  # fmt: skip


def vm(name: str, index: int, **changes: Any) -> Node:
    return node(name, index, virtual="qemu", emulated=True, **changes)


def vms(count: int = 3) -> Topology:
    """head as a container whose port carries TCP only, gpu1... as virtual machines."""
    head = Port(interface="fab0", address="10.78.0.11", prefix=24, rdma=False)
    nodes = [node("head", 11, ports=(head,)), *(vm(f"gpu{i}", 12 + i) for i in range(1, count + 1))]
    return Topology(site="lab", nodes=tuple(nodes), lab_link=LabLink(rate_gbps=1, rtt_max_us=1000, emulated=True))


def machines(count: int = 3) -> Topology:
    """The same GPU servers as real machines."""
    nodes = tuple(node(f"gpu{i}", 12 + i, virtual=None) for i in range(1, count + 1))
    return Topology(site="customer", nodes=nodes)


VMS, REAL = vms(), machines()
PREFLIGHT, LOADED = ("preflight",), ("preflight", "transport")
Spoil = Callable[[dict[str, Any], bool], None]
"""Changes what a node's probe says; the second argument is True for the reading after the load."""


def ports_of(topology: Topology, m: Measurement, spoil: Spoil | None) -> Result:
    """The result of an rdma-ports measurement, through the real parser."""
    make = soft if topology.lab_link is not None else card
    facts: dict[str, Any] = {
        "type": "rdma-ports",
        "ports": [make(p) for p in topology.node(m.nodes[0]).ports if p.rdma],
    }
    brief = bool(m.params.get("brief"))
    if brief:
        for port in facts["ports"]:
            for key in ("active_mtu_bytes", "active_mtu_unread", "qos"):
                del port[key]
    else:
        facts["memlock"] = {"bytes": -1, "user": "nobody", "unread": ""}
        facts["policy"] = copy.deepcopy(POLICY)
    if spoil is not None:
        spoil(facts, brief)
    samples, parsed = parse("rdma-ports", document(facts), m.params)  # type: ignore[arg-type]
    return result(m, samples, facts=parsed)


def results(
    topology: Topology, plan: Plan, spoil: Spoil | None = None, odd: str = "gpu2", mtu: float = 9000
) -> list[Result]:
    """Healthy results of everything but RDMA's own transport; what `odd` says of its ports is spoiled."""
    found = []
    for m in plan.measurements:
        if m.kind == "rdma-ports":
            found.append(ports_of(topology, m, spoil if m.nodes[0] == odd else None))
        elif m.kind == "facts":
            real = {**FACTS, **REAL_FACTS} if topology.lab_link is None else {**FACTS, "virt": "qemu"}
            found.append(result(m, facts=real))
        elif m.kind == "path-mtu":
            value = mtu if odd in m.nodes else 9000
            found.append(result(m, [Sample(metric="path_mtu_bytes", value=value, unit="bytes")]))
        elif m.kind.startswith("tcp"):
            found.append(healthy(m, link_gbps=39.5 if topology.lab_link is None else 1.0))
    return found


def judged(
    spoil: Spoil | None = None,
    topology: Topology = VMS,
    suites: Iterable[str] = LOADED,
    fabric: str = "roce40",
    **kwargs: Any,
) -> VerdictDoc:
    """The verdict of a run in which one node's ports are spoiled."""
    plan = plan_of(topology, suites, fabric)
    return verdict_of(topology, plan, results(topology, plan, spoil, **kwargs), fabric=fabric)


def failed(verdict: VerdictDoc) -> list[str]:
    return [c.id for c in verdict.criteria if c.verdict == "fail"]


PORT = Port(interface="fab0", address="10.78.0.12", prefix=24)
