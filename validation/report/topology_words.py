"""How the GPUs of a node are joined, in words for its drawing: layout of its server, NVLinks, distances."""

from __future__ import annotations

from collections.abc import Iterable

from validation.model.node_facts import NodeFacts
from validation.model.nvlink import NvGpu, joined
from validation.model.pci import DISTANCES, PciCard
from validation.report.numbers import NONE
from validation.report.server_layouts import Named, recognise


def notes(facts: NodeFacts, at: Named = str) -> tuple[str, ...]:
    """Sentences about the whole node. `at`: how they name a card by its PCI address."""
    known = recognise(facts, at)
    said = [f"Laid out as {known.words}."] if known is not None else []
    return (*said, *_nvlinks(facts, at))


def _nvlinks(facts: NodeFacts, at: Named) -> Iterable[str]:
    gpus = facts.nvlink
    if max(facts.gpu_count, len(gpus or ())) < 2:
        return
    if gpus is None:
        yield f"NVLink between the GPUs: not known: {facts.nvlink_unread or 'NVML was not asked'}."
        return
    if not any(gpu.up for gpu in gpus):
        yield "NVLink between the GPUs: none is up."
        return
    through = any(gpu.peers["switch"] for gpu in gpus)
    usual = max(gpu.up for gpu in gpus)
    odd = [f"GPU {at(gpu.address)}: {gpu.up}" for gpu in gpus if gpu.up != usual]
    pairs = sorted(set(joined(gpus).values()))
    if through:
        said = f"NVLinks of each GPU to NVSwitches: {usual}"
    else:
        between = " to ".join(map(str, dict.fromkeys((pairs[0], pairs[-1])))) if pairs else "0"
        said = f"NVLinks of each GPU: {usual}, {between} between each two"
    yield said + (f" ({', '.join(odd)} only)." if odd else ".")


def of_card(card: PciCard, facts: NodeFacts | None) -> tuple[str, str]:
    """(distance to each fabric port in the words of `nvidia-smi topo`, NVLinks up) of a GPU; of a port nothing."""
    if card.what != "gpu" or facts is None:
        return NONE, NONE
    ports = [other for other in facts.pci if other.what == "nic"]
    known = [(card.distance(port), port.interface) for port in ports]
    near = sorted(known, key=lambda one: (DISTANCES.index(one[0]) if one[0] else len(DISTANCES), one[1]))
    said = ", ".join(f"{port} {distance or '?'}" for distance, port in near)
    return said or NONE, _up(link_of(card, facts))


def link_of(card: PciCard, facts: NodeFacts | None) -> NvGpu | None:
    """A GPU's NVLinks; None where nothing tells of them."""
    told = facts.nvlink or () if facts is not None else ()
    return next((gpu for gpu in told if gpu.address == card.address and card.what == "gpu"), None)


def _up(gpu: NvGpu | None) -> str:
    if gpu is None:
        return "not known"
    down = f", down: {', '.join(map(str, gpu.down))}" if gpu.down else ""
    return f"{gpu.up} up{down}"
