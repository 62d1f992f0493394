"""Facts of a node that several measurements read, and those of them that are not the same.

A report shows each on its own page. Where two pages would contradict each other, a note says so, with who read what.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from validation.kinds import KINDS
from validation.measures.collectives.facts import CollectivesFacts
from validation.measures.compute.rates import ComputeFacts
from validation.measures.gpu.copies_facts import GpuCopyFacts
from validation.measures.gpu.health import GpuHealthFacts
from validation.measures.gpu.load import GpuLoadFacts
from validation.measures.gpu.tools import GpuToolsFacts
from validation.measures.rdma.ports import RdmaPortsFacts
from validation.measures.training.facts import TrainingFacts, TurnsFacts
from validation.measures.training.long import LongTrainingFacts
from validation.model import Measurement, Node
from validation.model.node_facts import NodeFacts
from validation.report.documents import RunDocuments

_NUMBERED = re.compile(r"\d+(\.\d+)+")
Reading = tuple[str, str]
"""A fact, and its value in words."""
_EMULATED = (GpuCopyFacts, GpuHealthFacts, GpuLoadFacts, GpuToolsFacts)


def emulated_devices(documents: RunDocuments) -> dict[str, dict[str, str]]:
    """Node with emulated GPUs -> what these show of themselves: `gpu_model` and `driver`."""
    found: dict[str, dict[str, str]] = {}
    for measurement, facts in _facts(documents, _EMULATED):
        if facts.emulated:
            shown = found.setdefault(measurement.nodes[0], {})
            shown |= {key: value for key, value in _shown(facts).items() if value}
    return found


def _shown(facts: Any) -> dict[str, str]:
    names = dict.fromkeys(gpu.name for gpu in getattr(facts, "gpus", ()))
    return {"driver": str(facts.driver), "gpu_model": ", ".join(names)}


def readings(documents: RunDocuments) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Node -> fact -> value -> titles of the measurements that read it. What emulated GPUs show is not among them."""
    nodes = {node.name: node for node in documents.topology.nodes}
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for measurement, facts in _facts(documents, _READ):
        name = KINDS[measurement.kind].title
        for node in measurement.nodes if isinstance(facts, _JOBS) else measurement.nodes[:1]:
            for fact, value in _read(nodes[node], facts) if node in nodes else ():
                kinds = found.setdefault(node, {}).setdefault(fact, {}).setdefault(value, [])
                kinds += [name] if name not in kinds else []
    return found


def contradictions(documents: RunDocuments) -> tuple[str, ...]:
    """One line for each fact of which a node's measurements say different things."""
    return tuple(
        f"{node}: measurements do not agree on its {fact}: "
        + "; ".join(f"{value} ({', '.join(kinds)})" for value, kinds in values.items())
        for node, facts in readings(documents).items()
        for fact, values in facts.items()
        if len(values) > 1
    )


_JOBS = (CollectivesFacts, TrainingFacts, TurnsFacts, LongTrainingFacts)
"""Facts of a job of several nodes, which run the same image."""


_READ = (NodeFacts, *_EMULATED, RdmaPortsFacts, ComputeFacts, *_JOBS)
"""Facts that `_read` reads. A fleet's results are mostly others."""


def _facts(documents: RunDocuments, of: tuple[type, ...]) -> Iterator[tuple[Measurement, Any]]:
    latest = documents.latest
    wanted = {form: issubclass(form, of) for form in {type(result.facts) for result in latest.values()}}
    for measurement in documents.plan.measurements:
        result = latest.get(measurement.id)
        if result is not None and wanted[type(result.facts)] and result.status == "ok" and measurement.nodes:
            yield measurement, result.facts


def _read(node: Node, facts: Any) -> Iterator[Reading]:
    """What facts say that others say too; nothing where they say nothing."""
    if isinstance(facts, NodeFacts):
        yield from _of_node(node, facts)
    elif isinstance(facts, _EMULATED):
        yield from _of_gpus(facts)
    elif isinstance(facts, RdmaPortsFacts):
        yield from _mtus((port.interface, port.mtu) for port in facts.ports)
    elif isinstance(facts, ComputeFacts):
        yield from _versions(torch=facts.torch)
        models = {device.name for device in facts.devices} if facts.where == "cuda" else set()
        yield from (("GPU model", name) for name in sorted(models))
        yield from _serials((device.address, device.serial) for device in facts.devices)
    elif isinstance(facts, CollectivesFacts):
        yield from _versions(torch=facts.torch, nccl=facts.nccl)
    elif isinstance(facts, _JOBS):
        yield from _versions(torch=facts.torch)


def _of_node(node: Node, facts: NodeFacts) -> Iterator[Reading]:
    if facts.driver_loaded or not node.emulated_gpus:
        yield from _versions(driver=facts.driver_loaded or facts.driver)
    yield from _versions(torch=facts.torch, nccl=facts.training_nccl or "")
    if facts.gpu_count:
        yield "number of GPUs", str(facts.gpu_count)
        yield "GPU model", facts.gpu_model
    yield from _mtus((port.interface, port.mtu) for port in facts.fabric_ports)


def _of_gpus(facts: Any) -> Iterator[Reading]:
    if facts.emulated:
        return
    yield from _versions(driver=facts.driver)
    gpus = getattr(facts, "gpus", ())
    if gpus:
        yield "number of GPUs", str(len(gpus) + len(getattr(facts, "lost", ())))
        yield from (("GPU model", name) for name in dict.fromkeys(gpu.name for gpu in gpus))
        yield from _serials((gpu.address, getattr(gpu, "serial", "")) for gpu in gpus)


def _serials(gpus: Iterable[tuple[str, str]]) -> Iterator[Reading]:
    for address, serial in gpus:
        if address and serial not in ("", "0"):
            yield f"serial number of the GPU at {address}", serial


def _versions(**said: str) -> Iterator[Reading]:
    """The version's number alone: packages and programs write the rest of it differently."""
    words = {"driver": "NVIDIA driver", "torch": "PyTorch", "nccl": "NCCL of the training"}
    for key, text in said.items():
        number = _NUMBERED.search(text)
        if number:
            yield words[key], number[0]


def _mtus(ports: Iterable[tuple[str, int | None]]) -> Iterator[Reading]:
    for interface, mtu in ports:
        if mtu is not None:
            yield f"MTU of {interface}", str(mtu)
