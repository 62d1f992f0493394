"""The system as it was tested: nodes, their ports, and what the probes found on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from validation.model import Node, Scalar
from validation.parsers.facts import COMPONENTS
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
    "fabric_port_count": "Fabric ports, number",
    "container_toolkit": "NVIDIA container toolkit",
    "dcgm": "DCGM",
    "slurm": "Slurm",
    "stack_release": "Stack release",
    "stand_ins": "Stand-ins",
    "not_applicable": "Not applicable on this node",
    "drift": "Moved since provisioning",
    "reboot_pending": "Reboots that wait",
}

#: Facts in which the nodes of a group are meant to be alike; an odd one out is marked.
_ALIKE = {"virt", "model", "gpu_count", "gpu_model", "nic_model", *COMPONENTS}


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
class Built:
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
    materials: tuple[Built, ...] = ()
    stack: tuple[Built, ...] = ()

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


Facts = Mapping[str, Scalar | list[str]]


def _found(documents: RunDocuments) -> dict[str, Facts]:
    """Node -> its facts, of the nodes that answered."""
    found: dict[str, Facts] = {}
    latest = documents.latest
    for planned in documents.plan.measurements:
        if planned.kind != "facts" or not planned.nodes:
            continue
        result = latest.get(planned.id)
        if result is not None and result.status == "ok":
            found[planned.nodes[0]] = result.facts
    return found


def fact_texts(documents: RunDocuments) -> dict[str, dict[str, str]]:
    """Node -> fact -> its value as text, of the nodes that answered."""
    return {name: {key: _text(value) for key, value in facts.items()} for name, facts in _found(documents).items()}


def fact_title(key: str) -> str:
    """A fact in words."""
    return _NAMES.get(key, key)


def system(documents: RunDocuments) -> System:
    """Nodes from the topology, facts from the results of the `facts` measurements."""
    nodes = documents.topology.nodes
    names = [n.name for n in nodes]
    measured = _found(documents)
    found = fact_texts(documents)
    keys = list(dict.fromkeys([*_NAMES, *(k for facts in found.values() for k in sorted(facts))]))
    rows = []
    for key in keys:
        by_value: dict[str, list[str]] = {}
        for name in names:
            if name in found and key in found[name]:
                by_value.setdefault(found[name][key], []).append(name)
        if by_value:
            odd = _odd(documents, {name: found[name][key] for name in names if key in found.get(name, {})})
            ordered = sorted(by_value.items(), key=lambda item: -len(item[1]))
            values = tuple(
                FactValue(
                    v, _who(who, len(found), len(names)), len(who), tuple(n for n in who if n in odd and key in _ALIKE)
                )
                for v, who in ordered
            )
            rows.append(FactRow(_NAMES.get(key, key), values))
    return System(
        nodes=tuple(_node_row(n, n.name in found) for n in nodes),
        facts=tuple(rows),
        without_facts=tuple(n for n in names if n not in found),
        materials=_built({n.name: _materials(n, measured.get(n.name)) for n in nodes}),
        stack=_built({n.name: _stack(n, found.get(n.name)) for n in nodes}),
    )


def _odd(documents: RunDocuments, values: Mapping[str, str]) -> set[str]:
    """Nodes with another value than most of their group; where a group has no majority nobody is odd."""
    odd: set[str] = set()
    for group in {g for n in documents.topology.nodes for g in n.groups}:
        members = [n.name for n in documents.topology.nodes if group in n.groups and n.name in values]
        ranking = Counter(values[name] for name in members).most_common()
        if len(ranking) > 1 and ranking[0][1] > ranking[1][1]:
            odd |= {name for name in members if values[name] != ranking[0][0]}
    return odd


Pairs = dict[str, tuple[str | None, str | None, bool | None]]
"""Part -> (declared, found, whether they agree)."""


def _pair(declared: str | None, found: str | None) -> tuple[str | None, str | None, bool | None]:
    return declared, found, None if declared is None or found is None else declared == found


def _materials(node: Node, facts: Facts | None) -> Pairs:
    declared = node.bom.model_dump()
    if declared["gpu_count"] == 0 and declared["gpu_model"] is None:
        declared["gpu_model"] = ""  # who declares no GPU need not name its model
    pairs: Pairs = {}
    ports = facts.get("fabric_ports") if facts is not None else None
    for key, value in declared.items():
        seen = None
        if facts is not None and key in facts:
            seen = _text(facts[key])
        elif key == "fabric_port_count" and isinstance(ports, list):
            seen = str(sum(1 for port in ports if "=absent" not in port))
        pairs[_NAMES.get(key, key)] = _pair(None if value is None else _text(value), seen)
    rates = {f"{number(p.rate_gbps)} Gbit/s" for p in node.ports if p.rate_gbps is not None}
    speeds = _speeds(ports) if isinstance(ports, list) and not node.virtual else set()
    pairs["Rate of fabric ports"] = _pair(", ".join(sorted(rates)) or None, ", ".join(sorted(speeds)) or None)
    return pairs


def _speeds(ports: list[str]) -> set[str]:
    """Negotiated rates of the ports that know one; a virtual port's mean nothing."""
    return {f"{number(int(m[1]) / 1000)} Gbit/s" for port in ports if (m := re.search(r"speed=([1-9]\d*)", port))}


def _stack(node: Node, facts: Mapping[str, str] | None) -> Pairs:
    keys = ["stack_release", *node.stack] if facts and facts.get("stack_release") not in (None, "none") else node.stack
    return {
        _NAMES.get(key, key): _pair(
            _text(node.stack[key]) if key in node.stack else None, None if facts is None else facts.get(key)
        )
        for key in keys
    }


def _built(by_node: Mapping[str, Pairs]) -> tuple[Built, ...]:
    """One row for each part and distinct pair of declared and found; what disagrees first."""
    groups: dict[str, dict[tuple[str | None, str | None, bool | None], list[str]]] = {}
    for name, pairs in by_node.items():
        for part, pair in pairs.items():
            groups.setdefault(part, {}).setdefault(pair, []).append(name)
    order = {False: 0, None: 1, True: 2}
    return tuple(
        Built(part, *pair, nodes=_who(names, len(by_node), len(by_node)))
        for part, rows in groups.items()
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
