"""A lab of virtual machines with Soft-RoCE ports, and what their ports say of themselves; tests spoil it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.site import FACTS, LAB_LINK, REAL_FACTS, hardware, healthy, node, plan_of, result, verdict_of
from tests.support.tool_documents import doc as tool_doc
from validation.kinds import parse
from validation.model import Measurement, Plan, Port, Result, Sample, Topology, VerdictDoc

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
    return dict(tool_doc("rdma-ports", json.dumps(facts), facts, tool="probes", tool_version=""))


def vms(gpus: int = 3, light: tuple[str, ...] = ("head",), emulated: bool = True) -> Topology:
    """`light` as containers whose ports carry TCP only, gpu1... as virtual machines."""
    nodes = [node(name, 11 + i, {"rdma": False}) for i, name in enumerate(light)]
    nodes += [node(f"gpu{i}", 12 + i, virtual="qemu", emulated=emulated) for i in range(1, gpus + 1)]
    return Topology(site="lab", nodes=tuple(nodes), lab_link=LAB_LINK.model_copy(update={"emulated": emulated}))


def machines(count: int = 3) -> Topology:
    """The same GPU servers as real machines."""
    return hardware([f"gpu{i}" for i in range(1, count + 1)], first=13)


VMS, REAL = vms(), machines()
PREFLIGHT, TRANSPORT = ("preflight",), ("transport",)
LOADED = (*PREFLIGHT, *TRANSPORT)
CONTAINERS = ("head", "client1")
VM_LAB = vms(2, CONTAINERS)
VM_PLAN = plan_of(VM_LAB, TRANSPORT, "roce40")
Spoil = Callable[[dict[str, Any], bool], None]
"""Changes what a node's probe says; the second argument is True for the reading after the load."""


def port_facts(topology: Topology, m: Measurement, spoil: Spoil | None = None) -> dict[str, Any]:
    """What the probe of an rdma-ports measurement prints."""
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
    return facts


def ports_of(topology: Topology, m: Measurement, spoil: Spoil | None) -> Result:
    """The result of an rdma-ports measurement, through the real parser."""
    samples, parsed = parse("rdma-ports", document(port_facts(topology, m, spoil)), m.params)  # type: ignore[arg-type]
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


def rdma(plan: Plan) -> list[Measurement]:
    """RDMA's own transport between two ports."""
    return [m for m in plan.measurements if m.kind.startswith("rdma-") and m.endpoints]


PORT = Port(interface="fab0", address="10.78.0.12", prefix=24)
