"""What a run counts: GPUs, ports, nodes, memory, from every document that says a number, held against each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from validation.measures.gpu.copies_facts import GpuCopyFacts
from validation.measures.gpu.kinds import gpus_of
from validation.measures.gpu.load import GpuLoadFacts
from validation.model import Node
from validation.model.node_facts import NodeFacts
from validation.report.documents import RunDocuments
from validation.report.numbers import plural
from validation.report.system import system


def disagreements(documents: RunDocuments) -> list[str]:
    """In words, which two numbers of a run do not agree."""
    found = list(_nodes(documents))
    for node in documents.topology.nodes:
        found += _gpus(documents, node)
        found += _ports_and_memory(documents, node)
    return found


def _facts(documents: RunDocuments, node: Node, form: type) -> Iterator[Any]:
    for m in documents.plan.measurements:
        result = documents.latest.get(m.id)
        facts = (
            result.facts_of(form) if result is not None and result.status == "ok" and m.nodes == (node.name,) else None
        )
        if facts is not None:
            yield facts


def _nodes(documents: RunDocuments) -> Iterator[str]:
    shown, there = [row.name for row in system(documents).nodes], [n.name for n in documents.topology.nodes]
    if shown != there:
        yield f"the report shows nodes {shown}, the topology has {there}"
    strange = {name for m in documents.plan.measurements for name in m.nodes} - set(there)
    if strange:
        yield f"the plan has nodes {strange} that the topology has not"


def _gpus(documents: RunDocuments, node: Node) -> Iterator[str]:
    """`Node.gpus` decides: the plan asks for as many, the probes find as many, the report says which are emulated."""
    said = gpus_of(node, documents.topology) or 0
    if said != node.gpus:
        yield f"{node.name}: {said} GPUs are planned for, {node.gpus} are to be there"
    for m in documents.plan.measurements:
        if m.nodes == (node.name,) and m.params.get("gpus") not in (None, node.gpus):
            yield f"{m.id}: asks for {m.params['gpus']} GPUs, {node.gpus} are to be there"
    for facts in (*_facts(documents, node, GpuCopyFacts), *_facts(documents, node, GpuLoadFacts)):
        if len(facts.gpus) != node.gpus:
            yield f"{node.name}: {type(facts).__name__} has {len(facts.gpus)} GPUs, {node.gpus} are to be there"
    for facts in _facts(documents, node, NodeFacts):
        if facts.gpu_count + node.emulated_gpus != node.gpus:
            yield f"{node.name}: {facts.gpu_count} GPUs on its buses, {node.bom.gpu_count} declared"
    for row in system(documents).materials:
        if (row.part == "GPUs" and node.name in row.nodes.split(", ")) or (
            row.part == "GPUs" and row.nodes == "all nodes"
        ):
            for text in filter(None, (row.declared, row.found)):
                if sum(map(int, re.findall(r"\d+", text))) != node.gpus:
                    yield f"{node.name}: the bill of materials reads {text!r}, {node.gpus} are to be there"


def _ports_and_memory(documents: RunDocuments, node: Node) -> Iterator[str]:
    declared = node.bom
    if declared.fabric_port_count not in (None, len(node.ports)):
        yield f"{node.name}: {plural(declared.fabric_port_count or 0, 'port')} declared, {len(node.ports)} listed"
    for facts in _facts(documents, node, NodeFacts):
        if len(facts.fabric_ports) != len(node.ports):
            yield f"{node.name}: {plural(len(facts.fabric_ports), 'port')} found, {len(node.ports)} listed"
        memory = facts.memory_gib
        if None not in (declared.memory_gib, memory) and abs(memory / declared.memory_gib - 1) > 0.1:
            yield f"{node.name}: {memory} GiB found, {declared.memory_gib} declared"
