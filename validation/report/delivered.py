"""What was delivered, for page one: machines that are alike in one line, with GPUs, adapter and serial numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from validation.measures.gpu.health import GpuHealthFacts
from validation.model import Node
from validation.model.node_facts import NodeFacts
from validation.report.documents import RunDocuments
from validation.report.numbers import many, quantity
from validation.report.words import FrontWords

TIMES = "\u00d7"
_MOST_LINES, _MOST_SERIALS, _MOST_SERIAL_LINES = 5, 8, 2


@dataclass(frozen=True)
class Delivered:
    """One line: `count` machines of a group, their model, the GPUs of each, adapter, names, and GPUs' serial numbers.

    `declared` is True where no fact of the nodes shows it, and the inventory alone says so.
    """

    what: str
    model: str
    gpus: str
    adapter: str
    nodes: str
    serials: str
    declared: bool


@dataclass(frozen=True)
class _Alike:
    groups: tuple[str, ...]
    model: str
    gpus: str
    adapter: str
    declared: bool


def facts_of(documents: RunDocuments) -> dict[str, NodeFacts]:
    """Node -> its facts, of the nodes that answered."""
    found = {}
    for planned in documents.plan.measurements:
        result = documents.latest.get(planned.id) if planned.kind == "facts" and planned.nodes else None
        facts = result.facts_of(NodeFacts) if result is not None and result.status == "ok" else None
        if facts is not None:
            found[planned.nodes[0]] = facts
    return found


def serials_of(documents: RunDocuments) -> dict[str, tuple[str, ...]]:
    """Node -> serial numbers of its GPUs in their order, by NVML, else by BMC or nvidia-smi."""
    listed = {one.node: tuple(part.serial for part in one.of("gpu") if part.serial) for one in documents.parts}
    found: dict[str, tuple[str, ...]] = {}
    for planned in documents.plan.measurements:
        result = documents.latest.get(planned.id) if planned.nodes else None
        facts = result.facts_of(GpuHealthFacts) if result is not None and result.status == "ok" else None
        if facts is not None and planned.nodes[0] not in found:
            said = tuple(dict.fromkeys(gpu.serial for gpu in facts.gpus if gpu.serial))
            if said:
                found[planned.nodes[0]] = said
    return {**{node: said for node, said in listed.items() if said}, **found}


def delivered(documents: RunDocuments, words: FrontWords) -> tuple[Delivered, ...]:
    """The machines in lines, those with GPUs first; of more kinds than page one takes, the rest in the last line."""
    facts, serials = facts_of(documents), serials_of(documents)
    groups: dict[_Alike, list[Node]] = {}
    for node in documents.topology.nodes:
        groups.setdefault(_alike(node, facts.get(node.name), words), []).append(node)
    ordered = sorted(groups.items(), key=lambda item: (-max(n.gpus for n in item[1]), not item[0].gpus))
    lines = [_line(alike, nodes, serials, words) for alike, nodes in ordered[:_MOST_LINES]]
    if sum(bool(line.serials) for line in lines) > _MOST_SERIAL_LINES:
        known = [[s for node in nodes for s in serials.get(node.name, ())] for _, nodes in ordered[:_MOST_LINES]]
        lines = [replace(line, serials=_number(serial, words)) for line, serial in zip(lines, known, strict=True)]
    rest = [node for _, nodes in ordered[_MOST_LINES:] for node in nodes]
    if rest:
        what = words.labels["further"].format(nodes=words.count(len(rest), "node"))
        lines.append(Delivered(what, "", "", "", many([n.name for n in rest], 6), "", declared=False))
    return tuple(lines)


def _alike(node: Node, facts: NodeFacts | None, words: FrontWords) -> _Alike:
    labels = words.labels
    model = (facts.model if facts else "") or node.bom.model or labels["model_unknown"]
    if node.virtual_words and node.virtual_words not in model:
        model = f"{model} ({node.virtual_words})"
    return _Alike(
        groups=node.groups or ("node",),
        model=model,
        gpus=_gpus(node, facts, words),
        adapter=(facts.nic_model if facts else "") or node.bom.nic_model or "",
        declared=facts is None,
    )


def _gpus(node: Node, facts: NodeFacts | None, words: FrontWords) -> str:
    """GPUs of one machine in words; "" where it has none."""
    labels = words.labels
    model = (facts.gpu_model if facts else "") or node.bom.gpu_model or "GPU"
    count = facts.gpu_count if facts else node.bom.gpu_count or 0
    said = [f"{count} {TIMES} {model}"] if count else []
    if node.emulated_gpus:
        said.append(labels["emulated_gpus"].format(n=node.emulated_gpus))
    return ", ".join(said)


def _line(alike: _Alike, nodes: list[Node], serials: Mapping[str, tuple[str, ...]], words: FrontWords) -> Delivered:
    each = f" {words.labels['each']}" if alike.gpus and len(nodes) > 1 else ""
    known = [serial for node in nodes for serial in serials.get(node.name, ())]
    return Delivered(
        what=_counted(len(nodes), alike.groups, words),
        model=alike.model,
        gpus=alike.gpus + each,
        adapter=alike.adapter,
        nodes=many([node.name for node in nodes], 6),
        serials=_serials(known, words),
        declared=alike.declared,
    )


def _counted(number: int, groups: tuple[str, ...], words: FrontWords) -> str:
    """Their number with what they are: "2 GPU servers", or "1 machine: head, client"."""
    if len(groups) == 1:
        return words.count(number, groups[0])
    nouns = [words.plurals[g].one.replace("{n} ", "") if g in words.plurals else g.replace("_", " ") for g in groups]
    return f"{words.count(number, 'machines')}: {', '.join(nouns)}"


def _serials(known: list[str], words: FrontWords) -> str:
    if not known:
        return ""
    if len(known) > _MOST_SERIALS:
        return _number(known, words)
    return f"{words.labels['serials']}: {', '.join(known)}"


def _number(known: list[str], words: FrontWords) -> str:
    return words.labels["serials_many"].format(n=len(known)) if known else ""


def network(documents: RunDocuments, words: FrontWords) -> str:
    """The fabric in words: its rate, and the switches that the inventory declares, or that none is known."""
    labels, link = words.labels, documents.topology.lab_link
    if documents.topology.here is not None:
        return labels["no_network"]
    if link is not None:
        return labels["lab_network"].format(rate=quantity(link.rate_gbps, "Gbit/s"))
    leaves = sorted({port.leaf for node in documents.topology.nodes for port in node.ports if port.leaf})
    if leaves:
        return labels["switches"].format(names=many(leaves, 6))
    return labels["switch_unknown"]
