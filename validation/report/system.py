"""The system as it was tested: nodes, their ports, and what the probes found on them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from validation.model import Bom, Compared, LabLink, Node
from validation.model.node_facts import NodeFacts
from validation.report.agreement import emulated_devices
from validation.report.documents import RunDocuments
from validation.report.numbers import number, plural

_NAMES = {
    "virt": "Virtualisation",
    "lab": "Lab",
    "model": "Server model",
    "cpu_model": "Processor",
    "cpu_sockets": "Processor sockets",
    "cpu_cores": "Processor cores",
    "cpu_count": "Processors that programs may use",
    "memory_gib": "Memory, GiB",
    "memory_beside_gib": "Memory at no processor, GiB",
    "gpu_count": "GPUs",
    "gpu_model": "GPU model",
    "nic_model": "Network adapter",
    "gpu_root_ports": "Host ports that the GPUs share",
    "fabric_ports": "Fabric ports",
    "rdma_devices": "RDMA devices",
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
    "fabric_port_count": "Fabric ports, number",
    "fabric_port_rate": "Rate of fabric ports",
    "container_toolkit": "NVIDIA container toolkit",
    "dcgm": "DCGM",
    "slurm": "Slurm",
    "stack_release": "Stack release",
    "stand_ins": "Stand-ins",
    "not_applicable": "Not applicable on this node",
    "drift": "Moved since provisioning",
    "reboot_pending": "Reboots that wait",
    "numa_nodes": "NUMA nodes",
    "nvswitches": "NVSwitches",
    "driver_loaded": "NVIDIA driver, loaded",
    "fabric_manager_state": "NVIDIA Fabric Manager, state",
    "docker_package": "Docker, package",
    "runc": "runc",
    "training_nccl": "NCCL of the training",
    "training_cudnn": "cuDNN of the training",
    "training_image": "Image of the training",
    "nvlink_unread": "NVLink, not read because",
    "nvlink_disabled": "NVLinks disabled by the driver's parameter",
    "clock_offset_s": "Clock, offset in s",
}
_SPEED = re.compile(r"(\d+ Mbit/s)")
_MATERIALS = {*Bom.model_fields, "fabric_port_rate"}


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
    """One value of a fact and the nodes that have it; `nodes` is in words.

    `odd` names those of them in whose group most nodes have another value.
    """

    value: str
    nodes: str
    count: int
    odd: tuple[str, ...] = ()


@dataclass(frozen=True)
class AsBuiltChecks:
    """A part or component as declared and as found, with the nodes (in words) of which both are true.

    `agrees` is None where one of the two is not known: then nothing is confirmed.
    """

    part: str
    declared: str | None
    found: str | None
    agrees: bool | None
    nodes: str


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
    """Nodes and facts. `materials` and `stack` are what was declared, against what was found.

    `without_facts` names the nodes of which nothing is known.
    """

    nodes: tuple[NodeRow, ...]
    facts: tuple[FactRow, ...]
    without_facts: tuple[str, ...]
    materials: tuple[AsBuiltChecks, ...] = ()
    stack: tuple[AsBuiltChecks, ...] = ()

    @property
    def differences(self) -> tuple[FactRow, ...]:
        """The facts in which nodes differ."""
        return tuple(f for f in self.facts if f.differs)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.12g}"
    return ("; ".join(map(str, value)) if isinstance(value, tuple) else str(value)) or "none"


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
        hardware=f"virtual ({node.virtual_words})"
        if node.virtual
        else node.bom.model or "physical, model not declared",
        facts_measured=measured,
    )


def found_facts(documents: RunDocuments) -> dict[str, NodeFacts]:
    """Node -> its facts, of the nodes that answered."""
    found: dict[str, NodeFacts] = {}
    latest = documents.latest
    for planned in documents.plan.measurements:
        result = latest.get(planned.id)
        facts = result.facts_of(NodeFacts) if result is not None and result.status == "ok" else None
        if facts is not None and planned.nodes:
            found[planned.nodes[0]] = facts
    return found


def _has_words(value: object) -> bool:
    """False for records that are read by the judge alone, and nobody has put into words."""
    parts = value if isinstance(value, tuple) else (value,)
    return not any(isinstance(part, BaseModel) and type(part).__str__ is BaseModel.__str__ for part in parts)


def fact_texts(documents: RunDocuments) -> dict[str, dict[str, str]]:
    """Node -> fact -> its value as text, of the nodes that answered. What nobody looked at is left out."""
    return {
        name: {key: _text(value) for key, value in facts if key != "type" and value is not None and _has_words(value)}
        for name, facts in found_facts(documents).items()
    }


def fact_title(key: str) -> str:
    """A fact in words."""
    return _NAMES.get(key, key)


def system(documents: RunDocuments) -> System:
    """Nodes from the topology, facts from the results of the `facts` measurements, comparisons from the judge."""
    nodes = documents.topology.nodes
    names = [n.name for n in nodes]
    found = fact_texts(documents)
    shown = {n.name: n for n in nodes if n.os_stand_in or n.emulated_gpus}
    for name in found.keys() & shown.keys():
        found[name] = {key: shown[name].component(key, text) for key, text in found[name].items()}
    devices, virtual = emulated_devices(documents), {n.name for n in nodes if n.virtual}
    for name, facts in found.items():
        facts |= {k: _with_emulated(facts[k], k, devices.get(name)) for k in ("gpu_model", "driver") if k in facts}
        if name in virtual and "fabric_ports" in facts:
            facts["fabric_ports"] = _by_driver(facts["fabric_ports"], documents.topology.lab_link)
    materials, stack = _compared(documents, "pf.bom"), _compared(documents, "pf.stack")
    odd = {(name, c.key) for by_node in (materials, stack) for name, parts in by_node.items() for c in parts if c.odd}
    rows = []
    for key in dict.fromkeys([*_NAMES, *NodeFacts.model_fields]):
        by_value: dict[str, list[str]] = {}
        for name in names:
            if key in found.get(name, {}):
                by_value.setdefault(found[name][key], []).append(name)
        if by_value:
            values = tuple(
                FactValue(v, _who(who, len(found), len(names)), len(who), tuple(n for n in who if (n, key) in odd))
                for v, who in sorted(by_value.items(), key=lambda item: -len(item[1]))
            )
            rows.append(FactRow(_NAMES.get(key, key), values))
    return System(
        nodes=tuple(_node_row(n, n.name in found) for n in nodes),
        facts=tuple(rows),
        without_facts=tuple(n for n in names if n not in found),
        materials=_built(materials, shown, devices),
        stack=_built(stack, shown, devices),
    )


def _with_emulated(text: str, key: str, devices: Mapping[str, str] | None) -> str:
    """A fact of a node in words, with what its emulated GPUs show beside it."""
    value = (devices or {}).get(key)
    return f"{text} (emulated GPUs: {value})" if value else text


def _by_driver(ports: str, link: LabLink | None) -> str:
    """Ports of a virtual node: the speed that sysfs gives is a constant of their driver."""
    shaped = f"; the link is shaped to {number(link.rate_gbps)} Gbit/s" if link is not None else ""
    return _SPEED.sub(rf"\1 (a constant of the virtual port's driver{shaped})", ports)


def _compared(documents: RunDocuments, criterion: str) -> dict[str, Sequence[Compared]]:
    """Node -> its parts as the judge compared them."""
    criteria = documents.verdict.criteria if documents.verdict else ()
    return {j.subject: j.compared for c in criteria if c.id == criterion for j in c.judgements}


def _worth_showing(part: Compared) -> bool:
    """True for what is declared, the bill of materials, and the release that provisioning wrote down."""
    shown = part.key in _MATERIALS or (part.key == "stack_release" and part.found)
    return part.declared is not None or bool(shown)


def _built(
    by_node: Mapping[str, Sequence[Compared]], nodes: Mapping[str, Node], devices: Mapping[str, Mapping[str, str]]
) -> tuple[AsBuiltChecks, ...]:
    """One row for each part and distinct pair of declared and found; what disagrees first."""
    groups: dict[str, dict[tuple[str | None, str | None, bool | None], list[str]]] = {}
    for name, parts in by_node.items():
        for part in filter(_worth_showing, parts):
            declared, found = (None if text is None else _text(text) for text in (part.declared, part.found))
            found = nodes[name].component(part.key, found) if found and name in nodes else found
            if found and part.key in ("gpu_model", "driver"):
                found = _with_emulated(found, part.key, devices.get(name))
            if part.key == "gpu_count" and declared and name in nodes:
                declared = nodes[name].component(part.key, declared)
            groups.setdefault(part.key, {}).setdefault((declared, found, part.equal), []).append(name)
    order = {False: 0, None: 1, True: 2}
    return tuple(
        AsBuiltChecks(_NAMES.get(key, key), *pair, nodes=_who(names, len(by_node), len(by_node)))
        for key, rows in groups.items()
        for pair, names in sorted(rows.items(), key=lambda item: order[item[0][2]])
        if pair[:2] != (None, None)
    )


_MANY = 24


def _who(nodes: list[str], answered: int, all_nodes: int) -> str:
    if len(nodes) == answered and answered > 1:
        return f"all {plural(answered, 'node')}" + (" that answered" if answered < all_nodes else "")
    if len(nodes) > _MANY:
        return f"{plural(len(nodes), 'node')}: {', '.join(nodes[: _MANY // 2])}, … {nodes[-1]}"
    return ", ".join(nodes)
