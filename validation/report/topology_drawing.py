"""The insides of the nodes as the facts tell them: NUMA nodes, switches, GPUs, adapters and the links to them.

One drawing for each kind of node: nodes whose cards sit alike are drawn once. What no fact tells is drawn as not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from validation.model import Node, Result
from validation.model.node_facts import NodeFacts
from validation.model.pci import PciCard, PciLink
from validation.report import topology_words
from validation.report.documents import RunDocuments
from validation.report.numbers import NONE, many, number, plural
from validation.report.svg.colour import ALARM, BLUE, INK, LINE, MUTED, PALE, PAPER, SOFT
from validation.report.svg.drawing import DataTable, Figure, cross, frame, path, rect, short, text
from validation.rules.virtual import CONTAINERS

_MOST_KINDS = 6
_MOST_CARDS = 20  # of a node; more are in the table only
_CARD, _GAP, _ROW = 104, 12, 110
_GENERATIONS = {2.5: "Gen1", 5.0: "Gen2", 8.0: "Gen3", 16.0: "Gen4", 32.0: "Gen5", 64.0: "Gen6"}


@dataclass(frozen=True)
class _Place:
    """A card in the drawing. `seen` False: declared by the inventory, and no fact shows it. `distances` to the fabric
    ports, and `nvlinks` that are up, in words.
    """

    card: PciCard
    seen: bool = True
    distances: str = NONE
    nvlinks: str = NONE


@dataclass(frozen=True)
class _Kind:
    nodes: tuple[str, ...]
    model: str
    gpu: str
    virtual: str | None
    places: tuple[_Place, ...]
    why_unknown: str | None
    joined: tuple[str, ...] = ()  # sentences of topology_words


def _link(link: PciLink) -> str:
    if link.lanes is None and link.gt_s is None:
        return "not known"
    speed = link.gt_s
    generation = _GENERATIONS.get(speed, f"{number(speed)} GT/s") if speed is not None else "speed not known"
    return f"{generation} x{link.lanes}" if link.lanes is not None else generation


def _numa(place: _Place) -> int:
    """The card's NUMA node, -1 where none is known."""
    return -1 if place.card.numa is None else place.card.numa


_GPU = PciCard(what="gpu")  # of which no fact shows how it is plugged in


def _places(node: Node, result: Result | None) -> tuple[tuple[_Place, ...], str | None]:
    """The cards of a node, and why nothing is known of how they are plugged in."""
    facts = result.facts_of(NodeFacts) if result is not None and result.status == "ok" else None
    declared = (_Place(_GPU, seen=False),) * (node.bom.gpu_count or 0)
    ports = tuple(_Place(PciCard(what="nic", interface=port.interface), seen=facts is not None) for port in node.ports)
    if facts is None:
        return (*declared, *ports), "no facts were collected from this kind of node"
    if facts.virt in CONTAINERS:
        gpus = (_Place(_GPU),) * facts.gpu_count or declared
        return (*gpus, *ports), f"a container ({facts.virt}): the PCI devices that it shows are its host's"
    found = facts.pci
    shown = {c.interface for c in found if c.what == "nic"}
    rest = tuple(p for p in ports if p.card.interface not in shown)
    missing = max((node.bom.gpu_count or 0) - sum(c.what == "gpu" for c in found), 0)
    seen = (_Place(c, True, *topology_words.of_card(c, facts)) for c in found)
    return (*seen, *rest, *declared[:missing]), None


def _alike(places: tuple[_Place, ...]) -> tuple[_Place, ...]:
    """Addresses differ between machines of one kind; what counts is where the cards sit and how they are linked."""
    found = dict.fromkeys(
        name for p in places for name in (*(port.address for port in p.card.above), p.card.host_bridge)
    )
    names = {name: f"port {number}" if name else "" for number, name in enumerate(found)}

    def renamed(card: PciCard) -> PciCard:
        above = tuple(port.model_copy(update={"address": names[port.address]}) for port in card.above)
        return card.model_copy(update={"address": "", "above": above, "host_bridge": names[card.host_bridge]})

    return tuple(replace(p, card=renamed(p.card)) for p in places)


def _kinds(documents: RunDocuments) -> list[_Kind]:
    latest = documents.latest
    results = {m.nodes[0]: latest.get(m.id) for m in documents.plan.measurements if m.kind == "facts"}
    groups: dict[object, list[str]] = {}
    first: dict[object, _Kind] = {}
    for node in documents.topology.nodes:
        result = results.get(node.name)
        facts = result.facts_of(NodeFacts) if result is not None and result.status == "ok" else None
        virt = facts.virt if facts is not None and facts.virt != "none" else None
        places, why = _places(node, result)
        kind = _Kind(
            nodes=(),
            model=(facts.model if facts else "") or node.bom.model or "model not known",
            gpu=(facts.gpu_model if facts else "") or node.bom.gpu_model or "",
            virtual=node.virtual_words or virt,
            places=places,
            why_unknown=why,
            joined=topology_words.notes(facts) if facts is not None and why is None else (),
        )
        addressless = topology_words.notes(facts, lambda _: "") if facts is not None and why is None else ()
        alike = replace(kind, places=_alike(places), joined=addressless)
        groups.setdefault(alike, []).append(node.name)
        first.setdefault(alike, kind)
    return [replace(first[key], nodes=tuple(names)) for key, names in groups.items()]


def node_figures(documents: RunDocuments) -> tuple[Figure, ...]:
    """A drawing for each kind of node, GPU nodes first. Kinds beyond the sixth share one table and have no drawing."""
    kinds = sorted(_kinds(documents), key=lambda k: -sum(p.card.what == "gpu" for p in k.places))
    drawn = tuple(_figure(kind, index) for index, kind in enumerate(kinds[:_MOST_KINDS]))
    rest = kinds[_MOST_KINDS:]
    if not rest:
        return drawn
    rows = tuple((", ".join(k.nodes), k.model, "; ".join(" ".join(_row(p)) for p in k.places)) for k in rest)
    table = DataTable("Further kinds of nodes and their cards.", ("Nodes", "Model", "Cards"), rows)
    words = f"{plural(len(rest), 'further kind')} of nodes, which differ in cards, links or NUMA nodes."
    return (
        *drawn,
        Figure("node-more", words, None, table, "Not drawn: more than six kinds; the table has their cards."),
    )


def _figure(kind: _Kind, index: int) -> Figure:
    who = f"{many(kind.nodes)}" + (f" ({len(kind.nodes)} nodes, alike)" if len(kind.nodes) > 1 else "")
    virtual = f"; virtual: {kind.virtual}" if kind.virtual else ""
    caption = " ".join([f"{who}: {kind.model}{virtual}.", *_notes(kind)])
    rows = tuple(_row(place) for place in kind.places)
    table = DataTable(
        caption=f"Cards of {who}; PCI addresses are those of {kind.nodes[0]}.",
        head=(
            *("Card", "PCI address", "NUMA node", "Link as trained", "Link as rated"),
            *("To fabric ports", "NVLinks", "Known from"),
        ),
        rows=rows or (("none", *(NONE,) * 6, "inventory and facts"),),
    )
    return Figure(f"node-{index + 1}", caption, _draw(kind, index), table, None, ("pf.pcie", "pf.numa"))


def _row(place: _Place) -> tuple[str, ...]:
    card = place.card
    return (
        "GPU" if card.what == "gpu" else f"fabric port {card.interface}",
        card.address or "not known",
        str(card.numa) if card.numa is not None else "not known",
        _link(card.link)
        + (" (BELOW its rating)" if card.short else " (below its rating while idle)" if card.slow else ""),
        _link(card.rated),
        place.distances,
        place.nvlinks,
        "facts" if place.seen else "the inventory only",
    )


def _draw(kind: _Kind, index: int) -> Markup:
    numas = sorted({_numa(p) for p in kind.places}) or [-1]
    columns = {numa: [p for p in kind.places if _numa(p) == numa] for numa in numas}
    for numa, here in columns.items():
        here.sort(key=lambda p: (_behind(p) or "~", p.card.what != "gpu", p.card.interface, p.card.address))
        columns[numa] = here[: max(_MOST_CARDS // len(numas), 1)] if len(kind.places) > _MOST_CARDS else here
    across = 5 if len(numas) == 1 else 3  # cards in one line of a NUMA node
    widths = {n: max(min(len(here), across), 2) * (_CARD + _GAP) + _GAP for n, here in columns.items()}
    lines = max((len(here) + across - 1) // across for here in columns.values())
    width = sum(widths.values()) + 26 * (len(numas) - 1) + 4
    height = 40 + max(lines, 1) * _ROW
    body: list[Markup] = []
    x = 2.0
    for position, numa in enumerate(numas):
        body += _socket(numa, columns[numa], x, widths[numa], lines, across)
        if position and numa >= 0 and numas[position - 1] >= 0:
            body.append(path("M", x - 26, 26, "H", x, stroke=MUTED, thick=1.4, dash="2 3"))
            body.append(text(x - 13, 18, "?", 11, "middle", MUTED))
        x += widths[numa] + 26
    gpus = sum(p.card.what == "gpu" for p in kind.places)
    description = (
        f"{plural(gpus, 'GPU')} and {plural(len(kind.places) - gpus, 'fabric port')} on "
        + (", ".join(f"NUMA node {n}" if n >= 0 else "an unknown NUMA node" for n in numas))
        + ". "
        + " ".join(_notes(kind))
    )
    return frame(f"node-{index + 1}-drawing", f"Inside {kind.nodes[0]}", description, max(width, 480), height, body)


def _behind(place: _Place) -> str:
    """The port of the host that it shares with others through a switch, "" for a card in a port of the host's own."""
    return place.card.root_port if place.card.uplinks else ""


def _notes(kind: _Kind) -> list[str]:
    notes = []
    gpus = [p.card.root_port for p in kind.places if p.card.what == "gpu"]
    if kind.why_unknown:
        notes.append(f"PCI Express and NUMA: not known: {kind.why_unknown}.")
    elif kind.places and all(p.card.link.lanes is None and p.card.numa is None for p in kind.places):
        notes.append("PCI Express and NUMA: not known: the devices name neither link nor NUMA node.")
    notes += kind.joined
    if len(gpus) > 1 and kind.why_unknown:
        notes.append("NVLink between the GPUs: not known.")
    if len(gpus) > 1 and all(gpus):
        notes.append(f"Ports of the host that the GPUs share: {len(set(gpus))} (PCI Express root ports).")
    if len({p.card.numa for p in kind.places if p.card.numa is not None}) > 1:
        notes.append("Link between the NUMA nodes (?): not known.")
    if any(not p.seen for p in kind.places):
        notes.append("Dashed: declared by the inventory, not seen on the node.")
    if any(p.card.short for p in kind.places):
        notes.append("Cross: the link is trained below what card and slot can do.")
    if any(_behind(p) for p in kind.places):
        notes.append("Thick bar: a PCI Express switch, whose cards share one link to the host.")
    if len(kind.places) > _MOST_CARDS:
        notes.append(f"The first {_MOST_CARDS} of {len(kind.places)} cards are drawn; all are in the table.")
    return notes


def _socket(numa: int, here: Sequence[_Place], x: float, width: float, lines: int, across: int) -> list[Markup]:
    title, dash = (f"NUMA node {numa}", None) if numa >= 0 else ("NUMA node not known", "4 3")
    out = [
        rect(x, 4, width, 30 + lines * _ROW, rx=4, fill=SOFT, stroke=LINE, dash=dash),
        rect(x + _GAP, 12, width - 2 * _GAP, 26, rx=3, fill=PAPER, stroke=INK),
        text(x + width / 2, 29, title, 12, "middle", font_weight=600),
    ]
    for index, place in enumerate(here):
        line, column = divmod(index, across)
        if index and _behind(place) and _behind(place) == _behind(here[index - 1]):  # one switch above both
            to = x + _GAP + column * (_CARD + _GAP) + _CARD / 2
            begin = to - _CARD - _GAP if column else x + 2  # where a line begins, what is above it ends the last one
            out.append(path("M", begin, 46 + line * _ROW, "H", to, stroke=INK, thick=5))
        out += _card(place, x + _GAP + column * (_CARD + _GAP), 38 + line * _ROW, line)
    if not here:
        out.append(text(x + width / 2, 70, "no GPU, no fabric port", 11, "middle", MUTED))
    return out


def _card(place: _Place, x: float, y: float, line: int) -> list[Markup]:
    card, middle = place.card, x + _CARD / 2
    top = y + 46
    is_gpu = card.what == "gpu"
    known = card.link.lanes is not None
    ink = ALARM if place.card.short else INK
    label = _link(card.link) if known else "link not known"
    half = len(label) * 3.3 + 3
    out = [
        path("M", middle, y if line == 0 else y + 4, "V", top, stroke=ink if known or place.card.short else MUTED,
             thick=1.2 + (card.link.lanes or 0) / 5, dash=None if known else "2 4"),
        rect(middle - half, y + 16, 2 * half, 15, fill=SOFT),
        text(middle, y + 27, label, 10.5, "middle", ink),
    ]  # fmt: skip
    if place.card.short:
        out.append(cross(middle, y + 39, 5))
    # a GPU is a filled box, an adapter an outlined one with a cut corner
    edge = None if place.seen else "4 3"
    if is_gpu:
        fill = PALE if place.seen else PAPER
        out.append(rect(x, top, _CARD, 44, rx=3, fill=fill, stroke=BLUE, thick=1.4, dash=edge))
    else:
        shape = ("M", x, top, "h", _CARD - 12, "l12 12v32h", -_CARD, "z")
        out.append(path(*shape, fill=PAPER, stroke=INK, thick=1.4, dash=edge))
    name = "GPU" if is_gpu else short(card.interface, _CARD - 20, 12)
    out.append(text(middle, top + 18, name, 12, "middle", font_weight=600))
    detail = card.address or ("declared, not seen" if not place.seen else "no PCI address")
    out.append(text(middle, top + 34, short(detail, _CARD - 4, 9.5), 9.5, "middle", MUTED))
    if is_gpu and place.nvlinks not in (NONE, "not known", "0 up"):
        out.append(text(middle, top + 56, short(f"NVLink {place.nvlinks}", _CARD, 9.5), 9.5, "middle", BLUE))
    return out
