"""Preflight: are these the machines, the software, the ports and the MTU that were promised?"""

from __future__ import annotations

from validation.base.counting import number_of
from validation.measures.fabric import switches
from validation.measures.hardware.plan import bmcs
from validation.model import Endpoint, Found, Measurement, Node, Param
from validation.plan.request import PORTS, Part, Request, Suite, on_one_node, pair_id, pair_rounds


def plan(request: Request) -> Part:
    """Facts of every node in one round, on RDMA fabrics their RDMA ports in another, then the path MTU of every
    ordered pair of fabric ports.
    """
    part = Part()
    facts = request.serving("facts")
    if request.topology.here is not None:
        facts = _of_one_machine(request.topology.nodes[0], request.topology.here, facts, part)
    if facts and request.topology.nodes:
        part.rounds.append([looking(node, facts) for node in request.topology.nodes])
    part.rounds += bmcs(request, part)
    part.rounds += _gpu_health(request)
    part.rounds += _gpu_container(request)
    part.rounds += _cabling(request, part)
    part.rounds += switches.planned(request, part)
    part.rounds += _rdma_ports(request, "", {})
    part.rounds += _ib_fabric(request)
    mtu = request.serving("path-mtu")
    if request.topology.here is not None:
        part.leave_out("one machine by itself has no second end", *mtu)
        mtu = ()

    def path_mtu(source: Endpoint, destination: Endpoint) -> Measurement:
        return Measurement(
            id=pair_id("path-mtu", source, destination),
            suite="preflight",
            kind="path-mtu",
            nodes=(source.node, destination.node),
            endpoints=(source, destination),
            params={"mtu": request.fabric.mtu},
            criteria=mtu,
            estimated_s=0.4,
            timeout_s=60.0,
        )

    if mtu:
        part.rounds += pair_rounds(request.topology, request.fabric, PORTS, path_mtu, part)
    return part


def looking(node: Node, criteria: tuple[str, ...] = ()) -> Measurement:
    """A look at a node: its facts."""
    return on_one_node(node, "preflight", "facts", criteria, estimated_s=0.6, timeout_s=60.0)


def _of_one_machine(node: Node, found: Found, facts: tuple[str, ...], part: Part) -> tuple[str, ...]:
    """Of the criteria that facts serve, those that have something to be judged on a machine as it was found."""
    bare = () if found.gpus and node.ports else ("pf.numa",) if found.gpus or node.ports else ("pf.numa", "pf.pcie")
    if not found.gpus:
        part.leave_out("no GPU in this machine: nothing of GPUs was measured", *bare)
    elif found.gpu_trouble:
        part.leave_out(f"{number_of(found.gpus, 'GPU')}, not measured: {found.gpu_trouble}")
    if found.gpus and bare:
        part.leave_out("no network port with a card of its own is up and has an address", *bare)
    portless = () if node.ports else ("pf.ports",)
    if portless:
        part.leave_out("no network port with a card of its own is up and has an address", *portless)
    return tuple(id_ for id_ in facts if id_ not in (*bare, *portless))


def closing(request: Request) -> list[list[Measurement]]:
    """GPUs, RDMA ports and InfiniBand fabric once more, after the suites that load them: what grew, what went down."""
    return [
        *_gpu_health(request, "-after"),
        *bmcs(request, None, "-after"),
        *_rdma_ports(request, "-after", {"brief": True}),
        *_ib_fabric(request, "-after"),
    ]


def _gpu_health(request: Request, suffix: str = "") -> list[list[Measurement]]:
    """Every node that is to have GPUs."""
    here, criteria = request.topology.here, request.serving("gpu-health")
    nodes = [node for node in request.topology.nodes if node.gpus or (here is not None and here.gpus)]
    if not nodes or not criteria:
        return []
    return [
        [
            on_one_node(node, "preflight", "gpu-health", criteria, estimated_s=1.0, timeout_s=90.0, suffix=suffix)
            for node in nodes
        ]
    ]


def _gpu_container(request: Request) -> list[list[Measurement]]:
    """Every node that is to have GPUs; not a machine that nobody declared, whose units are not ours to reload."""
    criteria = request.serving("gpu-container")
    nodes = [node for node in request.topology.nodes if node.gpus and request.topology.here is None]
    if not nodes or not criteria:
        return []
    return [
        [on_one_node(node, "preflight", "gpu-container", criteria, estimated_s=5.0, timeout_s=180.0) for node in nodes]
    ]


def _cabling(request: Request, part: Part) -> list[list[Measurement]]:
    """Every node with fabric ports, on Ethernet. One machine by itself has no map and no other to compare with."""
    criteria = request.serving("cabling")
    if request.topology.here is not None:
        part.leave_out("one machine by itself has no map of cables", *criteria)
        return []
    nodes = [node for node in request.topology.nodes if node.ports]
    if not nodes or not criteria or request.fabric.link_layer != "Ethernet":
        return []
    return [[on_one_node(node, "preflight", "cabling", criteria, estimated_s=0.5, timeout_s=90.0) for node in nodes]]


def _with_rdma(request: Request) -> list[Node]:
    if not request.fabric.needs_rdma:
        return []
    return [node for node in request.topology.nodes if any(port.rdma for port in node.ports)]


def _rdma_ports(request: Request, suffix: str, params: dict[str, Param]) -> list[list[Measurement]]:
    nodes, criteria = _with_rdma(request), request.serving("rdma-ports")
    if not nodes or not criteria:
        return []
    link = request.topology.lab_link
    return [
        [
            on_one_node(
                node,
                "preflight",
                "rdma-ports",
                criteria,
                estimated_s=4.0 if link is not None and link.emulated else 0.5,
                timeout_s=90.0,
                params=params,
                suffix=suffix,
            )
            for node in nodes
        ]
    ]


def _ib_fabric(request: Request, suffix: str = "") -> list[list[Measurement]]:
    """The InfiniBand fabric seen from one node, the head where it has a port: all others see the same."""
    nodes, criteria = _with_rdma(request), request.serving("ib-fabric")
    if not nodes or not criteria:
        return []
    first = next((node for node in nodes if "heads" in node.groups), nodes[0])
    return [[on_one_node(first, "preflight", "ib-fabric", criteria, estimated_s=5.0, timeout_s=300.0, suffix=suffix)]]


SUITE = Suite("preflight", 10, plan, closing=closing)
