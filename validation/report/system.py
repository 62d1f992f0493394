"""The system as it was tested: nodes, their ports, and what the probes found on them."""

from __future__ import annotations

from dataclasses import dataclass

from validation.model import Node, Scalar
from validation.report.documents import RunDocuments
from validation.report.numbers import number, plural

_NAMES = {
    "virt": "Virtualisation",
    "lab": "Lab",
    "model": "Server model",
    "gpu_count": "GPUs",
    "gpu_model": "GPU model",
    "nic_model": "Network adapter",
    "fabric_ports": "Fabric ports",
    "rdma_devices": "RDMA devices",
    "rdma_ports": "RDMA of the fabric ports",
    "pci": "PCI Express links",
    "os": "Operating system",
    "kernel": "Kernel",
    "python": "Python",
    "openmpi": "Open MPI",
    "docker": "Docker",
    "horovod": "Horovod",
    "torch": "PyTorch",
    "probes": "Probes of this toolkit",
    "driver": "NVIDIA driver",
    "fabric_manager": "NVIDIA Fabric Manager",
    "cuda": "CUDA toolkit",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "ofed": "RDMA user space",
    "container_toolkit": "NVIDIA container toolkit",
    "dcgm": "DCGM",
    "slurm": "Slurm",
    "stack_release": "Stack release",
    "stand_ins": "Stand-ins",
    "not_applicable": "Not applicable on this node",
    "drift": "Moved since provisioning",
    "reboot_pending": "Reboots that wait",
}


@dataclass(frozen=True)
class NodeRow:
    """A node as the inventory declares it."""

    name: str
    roles: str
    ports: tuple[str, ...]
    slots: int
    hardware: str
    facts_measured: bool


@dataclass(frozen=True)
class FactValue:
    """One value of a fact and the nodes that have it; `nodes` is in words."""

    value: str
    nodes: str
    count: int


@dataclass(frozen=True)
class FactRow:
    """A fact with its distinct values, the commonest first. More than one value is a difference between nodes."""

    name: str
    values: tuple[FactValue, ...]

    @property
    def differs(self) -> bool:
        """True when not all nodes agree."""
        return len(self.values) > 1


@dataclass(frozen=True)
class System:
    """Nodes and facts. `without_facts` names the nodes of which nothing is known."""

    nodes: tuple[NodeRow, ...]
    facts: tuple[FactRow, ...]
    without_facts: tuple[str, ...]

    @property
    def differences(self) -> tuple[FactRow, ...]:
        """The facts in which nodes differ."""
        return tuple(f for f in self.facts if f.differs)


def _text(value: Scalar | list[str]) -> str:
    if isinstance(value, list):
        return "; ".join(value) or "none"
    if value is None or value == "":
        return "none"
    return str(value)


def _node_row(node: Node, measured: bool) -> NodeRow:
    ports = tuple(
        f"{p.interface} {p.address}/{p.prefix}" + (f", {number(p.rate_gbps)} Gbit/s" if p.rate_gbps is not None else "")
        for p in node.ports
    )
    return NodeRow(
        name=node.name,
        roles=", ".join(node.groups),
        ports=ports,
        slots=node.slots,
        hardware=f"virtual ({node.virtual})" if node.virtual else node.bom.model or "physical, model not declared",
        facts_measured=measured,
    )


def system(documents: RunDocuments) -> System:
    """Nodes from the topology, facts from the results of the `facts` measurements."""
    names = [n.name for n in documents.topology.nodes]
    found: dict[str, dict[str, str]] = {}
    kinds = {m.id: m for m in documents.plan.measurements if m.kind == "facts"}
    for result in documents.latest.values():
        planned = kinds.get(result.measurement)
        if planned is not None and result.status == "ok" and planned.nodes:
            found[planned.nodes[0]] = {key: _text(value) for key, value in result.facts.items()}
    keys = list(dict.fromkeys([*_NAMES, *(k for facts in found.values() for k in sorted(facts))]))
    rows = []
    for key in keys:
        by_value: dict[str, list[str]] = {}
        for name in names:
            if name in found and key in found[name]:
                by_value.setdefault(found[name][key], []).append(name)
        if by_value:
            ordered = sorted(by_value.items(), key=lambda item: -len(item[1]))
            values = tuple(FactValue(v, _who(nodes, len(found), len(names)), len(nodes)) for v, nodes in ordered)
            rows.append(FactRow(_NAMES.get(key, key), values))
    return System(
        nodes=tuple(_node_row(n, n.name in found) for n in documents.topology.nodes),
        facts=tuple(rows),
        without_facts=tuple(n for n in names if n not in found),
    )


def _who(nodes: list[str], answered: int, all_nodes: int) -> str:
    if len(nodes) == answered and answered > 1:
        return f"all {plural(answered, 'node')}" + (" that answered" if answered < all_nodes else "")
    return ", ".join(nodes)
