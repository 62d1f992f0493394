"""One list of a server's parts, out of what its BMC lists and what its own system shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from validation.base.counting import number_of
from validation.base.visible import visible
from validation.measures.gpu.health import GpuHealthFacts
from validation.measures.hardware.facts import BmcFacts, BmcNode
from validation.measures.hardware.parts_judge import MADE_BY_RAID
from validation.model import Plan, Result, Topology
from validation.model.listed_parts import KINDS, KindRead, ListedKind, ListedPart, Reader, ServerParts
from validation.model.node_facts import NodeFacts
from validation.model.parts import HostParts, Part
from validation.probes.host_parts import said, serial

_SECTIONS: dict[ListedKind, tuple[str, ...]] = {
    "gpu": ("Processors",), "nic": ("NetworkAdapters",), "drive": ("Storage",), "dimm": ("Memory",),
    "psu": ("power",),
}  # fmt: skip
"""What of a BMC lists a kind, as `missing` names it."""


def listed(
    node: str, bmc: BmcNode | None, facts: NodeFacts | None, health: GpuHealthFacts | None = None, model: str = ""
) -> ServerParts:
    """The parts of a server. `bmc`: None where no BMC was asked; `facts`: None where the node was not looked at;
    `health`: its GPUs by NVML; `model`: where neither names it.
    """
    host = facts.parts if facts is not None else None
    own = _serial(host.serial) if host is not None else None
    usable, why = _usable(bmc, own)
    reads, parts = [], []
    for kind in KINDS:
        by_bmc = [_listed(kind, one, "bmc") for one in usable.of(kind) if _there(one)] if usable is not None else []
        by_node, unseen = _by_node(kind, host, facts, health)
        if kind == "nic":
            by_node = _cards(by_node)
        parts += _merged(by_bmc, by_node)
        unread = _unread(kind, usable) if usable is not None else [why]
        by: list[Reader] = ["bmc"] if usable is not None and not unread else []
        by += ["node"] if not unseen else []
        reads.append(KindRead(kind=kind, by=tuple(by), why=tuple(map(visible, [*unread, *unseen]))))
    named = usable.server.model if usable is not None else None
    return ServerParts(
        node=node,
        model=_text(named or (facts.model if facts is not None else None) or model),
        service_tag=own or (_tag(usable) if usable is not None else None),
        emulated=usable is not None and usable.emulated,
        driver=_text(facts.driver_loaded or facts.driver) if facts is not None else None,
        parts=tuple(parts),
        read=tuple(reads),
    )


def _usable(bmc: BmcNode | None, own: str | None) -> tuple[BmcNode | None, str]:
    """The BMC if it was read and is this server's own; why not, else."""
    if bmc is None:
        return None, "no BMC was read"
    if bmc.error:
        return None, f"the BMC: {bmc.error}"
    tags = {one.casefold() for one in map(_serial, (bmc.server.service_tag, bmc.server.serial)) if one}
    if own and tags and own.casefold() not in tags:
        return None, f"the BMC is of server {bmc.server.service_tag or bmc.server.serial}, another one"
    return bmc, ""


def _unread(kind: ListedKind, bmc: BmcNode) -> list[str]:
    """Why the BMC may not have listed all parts of a kind. Of a server that is off, or starts, many list only some."""
    state = bmc.server.power_state
    off = [f"the BMC reports the server's power as {state}"] if kind != "psu" and state not in (None, "On") else []
    return [*bmc.unread("Systems", *_SECTIONS[kind]), *off]


def _there(part: Part) -> bool:
    """Whether it is in its place: a BMC lists the empty place of a power supply too, and pf.power needs that."""
    return not (part.kind == "psu" and part.health == "Absent")


def _tag(bmc: BmcNode) -> str | None:
    """The service tag as the node's DMI has it: Dell's is the SKU; the SKU of others is of the product."""
    said, maker = bmc.server, (bmc.server.maker or "dell").casefold()
    both = (said.service_tag, said.serial) if "dell" in maker else (said.serial, said.service_tag)
    return next(filter(None, map(_serial, both)), None)


def _text(text: str | None) -> str | None:
    """A text that firmware gave: None for a placeholder, and what cannot be seen in it written out."""
    found = said(text)
    return visible(found) if found else None


def _serial(text: str | None) -> str | None:
    """A serial number, None for what firmware writes in place of one."""
    found = serial(text)
    return visible(found) if found else None


def _listed(kind: ListedKind, part: Part, by: Reader) -> ListedPart:
    slot = _text(part.slot) or "unnamed"
    return ListedPart(
        kind=kind,
        slot=slot if by == "bmc" else None,
        node_slot=slot if by == "node" else None,
        model=_text(part.model),
        serial=_serial(part.serial),
        part_number=_text(part.part_number),
        firmware=_text(part.firmware),
        macs=part.macs,
        by=(by,),
    )


def _by_node(
    kind: ListedKind, host: HostParts | None, facts: NodeFacts | None, health: GpuHealthFacts | None
) -> tuple[list[ListedPart], list[str]]:
    """Parts of a kind by the node's own system, and why that is not all of them."""
    if kind == "gpu" and (host is None or host.gpus is None) and health is not None and not health.unread:
        return [_by_nvml(health, at) for at in range(len(health.gpus))], []
    on_bus = sum(card.what == "gpu" for card in facts.pci) if facts is not None else 0
    if kind == "gpu" and facts is not None and not facts.gpu_count and not on_bus and (host is None or not host.gpus):
        return [], []  # no GPU on its PCI buses, so that there is nothing to read
    if facts is None:
        return [], ["the node was not looked at"]
    if host is None:
        return [], ["the node does not show its parts (a container, or an earlier release of the toolkit)"]
    if kind == "psu":
        return [], ["a node's own system does not show them"]
    group = {"gpu": host.gpus, "nic": host.nics, "drive": host.drives, "dimm": host.dimms}[kind]
    if group is None:
        why = [one.why for one in host.unread if one.what == f"{kind}s"]
        return [], [f"by the node: {why[0]}" if why else "the node does not show them"]
    real = [part for part in group if not (kind == "drive" and MADE_BY_RAID.search(part.model or ""))]
    hidden = ["a controller hides its drives from the node"] if len(real) < len(group) else []
    if kind == "gpu" and len(real) < on_bus:
        hidden.append(f"nvidia-smi lists {len(real)} of the {number_of(on_bus, 'GPU')} on the node's PCI buses")
    return [_listed(kind, part, "node") for part in real], hidden


def _by_nvml(health: GpuHealthFacts, at: int) -> ListedPart:
    gpu = health.gpus[at]
    slot = gpu.address.lower() or f"GPU {gpu.index}"
    part = Part(kind="gpu", slot=slot, model=gpu.name, serial=gpu.serial, firmware=gpu.vbios)
    return _listed("gpu", part, "node")


def _cards(ports: Iterable[ListedPart]) -> list[ListedPart]:
    """Network cards of a node's ports: those with one serial number are one card."""
    cards: dict[str, list[ListedPart]] = {}
    for port in ports:
        cards.setdefault((port.serial or f"port {port.node_slot}").casefold(), []).append(port)
    return [_card(mine) for mine in cards.values()]


def _card(ports: Sequence[ListedPart]) -> ListedPart:
    """The card of these ports."""
    slots = ", ".join(port.node_slot or "unnamed" for port in ports)
    return ports[0].model_copy(update={"node_slot": slots, "macs": tuple(mac for port in ports for mac in port.macs)})


def _merged(by_bmc: Sequence[ListedPart], by_node: Sequence[ListedPart]) -> list[ListedPart]:
    """Parts of a kind, each once: those of both sides by serial number, MAC address, or the name of their place."""
    left, found = list(by_node), []
    for part in by_bmc:
        other = next((one for one in left if _same(part, one)), None)
        if other is not None:
            left.remove(other)
            ports = [one for one in left if one.serial is None and set(part.macs) & set(one.macs)]
            left = [one for one in left if one not in ports]
            other = _card([other, *ports]) if ports else other
        found.append(part if other is None else _both(part, other))
    bare = [part for part in found if part.serial is None]
    if left and len(found) == len(left) == len(bare) and any(part.serial for part in left):
        return left  # the BMC gives none of their serial numbers, and the node does
    if found and not any(part.serial or part.macs for part in left) and len(left) <= len(found):
        return found  # ports and parts that cannot be told apart from those that the BMC lists
    return [*found, *left]


def _same(bmc: ListedPart, node: ListedPart) -> bool:
    if bmc.serial and node.serial:
        return bmc.serial.casefold() == node.serial.casefold()
    if set(bmc.macs) & set(node.macs):
        return True
    return bmc.slot is not None and bmc.slot.rpartition(".")[2] == node.node_slot


def _both(bmc: ListedPart, node: ListedPart) -> ListedPart:
    return bmc.model_copy(
        update={
            "node_slot": node.node_slot,
            "model": bmc.model or node.model,
            "serial": bmc.serial or node.serial,
            "part_number": bmc.part_number or node.part_number,
            "firmware": bmc.firmware or node.firmware,
            "macs": tuple(dict.fromkeys((*bmc.macs, *node.macs))),
            "by": ("bmc", "node"),
        }
    )


def site_parts(topology: Topology, plan: Plan, latest: Mapping[str, Result]) -> tuple[ServerParts, ...]:
    """Every server of a run in the order of the inventory. `latest`: measurement -> the result that counts."""
    facts: dict[str, NodeFacts] = {}
    health: dict[str, GpuHealthFacts] = {}
    bmcs: dict[str, BmcNode] = {}
    for planned in plan.measurements:
        result = latest.get(planned.id) if planned.nodes else None
        if result is None or result.status != "ok":
            continue
        if planned.kind == "bmc":
            for one in found.nodes if (found := result.facts_of(BmcFacts)) is not None else ():
                if one.node not in bmcs or bmcs[one.node].error:
                    bmcs[one.node] = one
        elif planned.kind == "facts" and (looked := result.facts_of(NodeFacts)) is not None:
            facts[planned.nodes[0]] = looked
        elif planned.nodes[0] not in health and (gpus := result.facts_of(GpuHealthFacts)) is not None:
            health[planned.nodes[0]] = gpus
    return tuple(
        listed(node.name, bmcs.get(node.name), facts.get(node.name), health.get(node.name), node.bom.model or "")
        for node in topology.nodes
    )
