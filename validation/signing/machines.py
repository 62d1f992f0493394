"""What machines a run is about, alike ones together: model, GPUs, ports. As found on them; else as declared, and so
called.
"""

from __future__ import annotations

from dataclasses import dataclass

from validation.facts import NodeFacts
from validation.facts.gpu_health import GpuHealthFacts
from validation.model import Node
from validation.report.documents import RunDocuments
from validation.report.numbers import plural, quantity
from validation.report.system import found_facts

_SERIALS, _NODES = 8, 6
"""How many serial numbers and names of nodes are written out."""


@dataclass(frozen=True)
class Delivered:
    """Nodes that are alike. `gpus`: how many each has, emulated ones among them. `known`: found on the nodes, else only
    declared. `serials`: of their GPUs, where the driver tells.
    """

    machine: str
    gpus: int
    gpu_words: str
    port_words: str
    known: bool
    nodes: tuple[str, ...]
    serials: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """On one line: `2 x PowerEdge C4140, each with 4 x Tesla V100, 1 port of 40 Gbit/s: gpu1, gpu2`."""
        names = ", ".join(self.nodes[:_NODES]) + (f", … {self.nodes[-1]}" if self.nodes[_NODES:] else "")
        each = "each with" if len(self.nodes) > 1 else "with"
        said = "" if self.known else " (declared, not found out)"
        return f"{len(self.nodes)} x {self.machine}, {each} {self.gpu_words}, {self.port_words}{said}: {names}"

    @property
    def serial_words(self) -> str:
        """Serial numbers of the GPUs; "" where none is known."""
        more = f" and {len(self.serials) - _SERIALS} more" if self.serials[_SERIALS:] else ""
        return ", ".join(self.serials[:_SERIALS]) + more


def delivered(documents: RunDocuments) -> tuple[Delivered, ...]:
    """The machines of a run, those with most GPUs first."""
    found = found_facts(documents)
    serials = _serials(documents)
    groups: dict[tuple[str, int, str, str, bool], list[str]] = {}
    for node in documents.topology.nodes:
        groups.setdefault(_kind(node, found.get(node.name)), []).append(node.name)
    made = [
        Delivered(*kind, nodes=tuple(names), serials=tuple(s for name in names for s in serials.get(name, ())))
        for kind, names in groups.items()
    ]
    return tuple(sorted(made, key=lambda one: -one.gpus))


def _kind(node: Node, facts: NodeFacts | None) -> tuple[str, int, str, str, bool]:
    bom = node.bom
    model = (facts.model if facts is not None else None) or bom.model or "machine of unknown model"
    machine = f"{model} (virtual: {node.virtual_words})" if node.virtual else model
    real = facts.gpu_count if facts is not None else bom.gpu_count or 0
    name = (facts.gpu_model if facts is not None else bom.gpu_model) or "GPU of unknown model"
    parts = [f"{real} x {name}"] if real else []
    parts += [plural(node.emulated_gpus, "emulated GPU")] if node.emulated_gpus else []
    return machine, real + node.emulated_gpus, " and ".join(parts) or "no GPU", _ports(node), facts is not None


def _ports(node: Node) -> str:
    rates = sorted({port.rate_gbps for port in node.ports if port.rate_gbps is not None})
    of = f" of {' or '.join(quantity(rate, 'Gbit/s') for rate in rates)}" if rates else ""
    return f"{plural(len(node.ports), 'fabric port')}{of}" if node.ports else "no fabric port"


def _serials(documents: RunDocuments) -> dict[str, tuple[str, ...]]:
    """Node -> serial numbers of its GPUs, as the driver told them."""
    found: dict[str, tuple[str, ...]] = {}
    for planned in documents.plan.measurements:
        result = documents.latest.get(planned.id)
        facts = result.facts_of(GpuHealthFacts) if result is not None and result.status == "ok" else None
        if facts is not None and planned.nodes and not facts.emulated:
            told = tuple(gpu.serial for gpu in facts.gpus if gpu.serial and gpu.serial != "0")
            found.setdefault(planned.nodes[0], told)
    return found
