"""The fabric between the nodes: ports with their rates, and the node, port or link that the findings name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from markupsafe import Markup

from validation.base.counting import number_of
from validation.measures.rdma.ib_fabric import IbFabricFacts, IbLink
from validation.model import Node, Port
from validation.model.node_facts import NodeFacts
from validation.report.documents import RunDocuments
from validation.report.front_lines import WorstLink
from validation.report.numbers import NONE, many, plural, quantity
from validation.report.svg.colour import ALARM, BLUE, BROWN, INK, LINE, MUTED, PALE, PAPER, SOFT
from validation.report.svg.drawing import DataTable, Figure, cross, frame, path, rect, short, text, titled

_DRAWN_NODES = 16  # more are drawn as squares without their ports
_BOX, _GAP = 150, 16
_ACROSS = 4


class _Suspects:
    """What the findings name: nodes, ports "node/port", and links (port, port)."""

    def __init__(self, documents: RunDocuments) -> None:
        self.nodes: set[str] = set()
        self.touched: set[str] = set()
        self.ports: set[str] = set()
        self.links: set[tuple[str, str]] = set()
        for finding in documents.verdict.findings if documents.verdict else ():
            about = finding.about
            self.touched |= {end.node for end in about.ends}
            if about.kind == "pair":
                one, other = sorted(map(str, about.ends))
                self.links.add((one, other))
            elif about.kind == "port":
                self.ports.add(finding.subject)
            elif about.kind == "node":
                self.nodes.add(finding.subject)

    def touches(self, node: Node) -> bool:
        return node.name in self.touched

    @property
    def words(self) -> str:
        named = [*(f"node {n}" for n in sorted(self.nodes)), *(f"port {p}" for p in sorted(self.ports))]
        named += [f"link {a} to {b}" for a, b in sorted(self.links)]
        return f"Suspect: {many(named, 12)}." if named else "No suspect."


def fabric_figure(documents: RunDocuments, worst: WorstLink | None = None) -> Figure:
    """Nodes, their fabric ports, and the fabric that joins them, with the slowest measured link marked.

    Switches are not drawn: no fact shows them.
    """
    nodes, suspects = documents.topology.nodes, _Suspects(documents)
    large = len(nodes) > _DRAWN_NODES
    rate = documents.topology.lab_link.rate_gbps if documents.topology.lab_link else documents.fabric.line_rate_gbps
    what = "lab links shaped to" if documents.topology.lab_link else "nominal line rate"
    bar = f"{documents.fabric.title}: {what} {quantity(rate, 'Gbit/s')}"
    if documents.topology.here is not None:
        bar = f"{documents.fabric.title}: no network is under test"
    svg = _squares(nodes, suspects, bar, worst) if large else _boxes(nodes, suspects, bar, worst)
    links = _links(documents)
    caption = (
        f"{plural(len(nodes), 'node')} with {plural(sum(len(n.ports) for n in nodes), 'fabric port')} on {bar}. "
        f"{suspects.words} "
        + (
            "Switches and cables: as ibnetdiscover shows them, in the table of links below."
            if links
            else "Switches and cables between the ports: not known; nothing in this run shows them."
        )
    )
    found = _found(documents)
    table = DataTable(
        caption="Fabric ports: declared by the inventory, and as the nodes show them.",
        head=("Port", "Address", "Declared rate", "RDMA", "Found on the node"),
        rows=tuple(
            (
                f"{node.name}/{port.interface}",
                f"{port.address}/{port.prefix}",
                quantity(port.rate_gbps, "Gbit/s") if port.rate_gbps else "not declared",
                "yes" if port.rdma and documents.fabric.needs_rdma else "not asked for",
                found.get((node.name, port.interface), "not known"),
            )
            for node in nodes
            for port in node.ports
        ),
    )
    ports = {f"{node.name}/{port.interface}" for node in nodes for port in node.ports}
    marked = worst is not None and (large or ports.issuperset(worst.ends))
    return Figure("fabric-drawing", caption, svg, table, marked=marked)


def link_figure(documents: RunDocuments) -> Figure | None:
    """Links of an InfiniBand fabric as a table; None where no tool listed them."""
    links = _links(documents)
    if not links:
        return None
    rows = [(link.rate, str(link.here), str(link.there) if link.there else NONE) for link in links]
    table = DataTable("Links as ibnetdiscover shows them.", ("Width and speed", "One end", "Other end"), tuple(rows))
    linked = sum(other != NONE for _, _, other in rows)
    return Figure("fabric-links", f"{plural(linked, 'link')} of the InfiniBand fabric.", None, table)


def _links(documents: RunDocuments) -> list[IbLink]:
    found: dict[IbLink, None] = {}
    for result in documents.latest.values():
        facts = result.facts_of(IbFabricFacts) if result.status == "ok" else None
        found.update(dict.fromkeys(facts.links if facts is not None else ()))
    return list(found)


def _found(documents: RunDocuments) -> Mapping[tuple[str, str], str]:
    out = {}
    for measurement in documents.plan.measurements:
        result = documents.latest.get(measurement.id) if measurement.kind == "facts" else None
        facts = result.facts_of(NodeFacts) if result is not None and result.status == "ok" else None
        for port in facts.fabric_ports if facts is not None else ():
            out[measurement.nodes[0], port.interface] = port.words
    return out


def _role(node: Node) -> str:
    return ", ".join(g.replace("_", " ") for g in node.groups) or "no group"


def _boxes(nodes: Sequence[Node], suspects: _Suspects, bar: str, worst: WorstLink | None) -> Markup:
    """Each node as a box with its ports on the fabric's bar: half of the nodes above it, half below."""
    above = nodes[: ceil(len(nodes) / 2)] if len(nodes) > _ACROSS else nodes
    below = nodes[len(above) :]
    rows = [r for r in (above, below) if r]
    across = max(len(r) for r in rows)
    box = max((900 - _GAP * across) // across, 84) if across > _ACROSS else _BOX
    width = max(across * (box + _GAP) + _GAP, 460)
    box_height, wire = 58, 74
    bar_y = box_height + wire + 8
    height = bar_y + 34 + (wire + box_height + 8 if below else 8) + 24
    body = [
        rect(2, bar_y, width - 4, 30, rx=3, fill=SOFT, stroke=INK),
        text(width / 2, bar_y + 20, short(bar, width - 20, 12), 12, "middle", font_weight=600),
    ]
    places: dict[str, tuple[float, float]] = {}
    for row, group in enumerate(rows):
        left = (width - len(group) * (box + _GAP) + _GAP) / 2
        for index, node in enumerate(group):
            x = left + index * (box + _GAP)
            y = 4.0 if row == 0 else bar_y + 30.0 + wire
            edge, bus_y = (y + box_height, float(bar_y)) if row == 0 else (y, bar_y + 30.0)
            body += _node(node, x, y, box, box_height, node.name in suspects.nodes)
            for position, port in enumerate(node.ports):
                px = x + box * (position + 1) / (len(node.ports) + 1)
                places[f"{node.name}/{port.interface}"] = (px, edge)
                bad = f"{node.name}/{port.interface}" in suspects.ports
                body.append(_port(node, port, px, edge, bus_y, box / len(node.ports), bad))
    marked = worst is not None and worst.source in places and worst.destination in places
    height += 18 if marked else 0
    for one, other in sorted(suspects.links):
        if one in places and other in places:
            body += _suspect_link(places[one], places[other], bar_y + 15)
    y = height - 8
    if worst is not None and marked:
        body += _worst_link(places[worst.source], places[worst.destination], bar_y, worst, box >= _BOX)
        words = short(f"slowest measured link: {worst.source} to {worst.destination}", width - 50, 11)
        body += [path("M", 4, y - 22, "h", 26, stroke=BROWN, thick=3), text(38, y - 18, words, fill=MUTED)]
    body += [cross(10, y - 4, 5), text(22, y, "suspect (node, port or link)", fill=MUTED)]
    ports = sum(len(n.ports) for n in nodes)
    description = (
        f"{number_of(len(nodes), 'node')}, each box, joined by {number_of(ports, 'fabric port')} "
        f"to {bar}. {suspects.words}"
    )
    if worst is not None and marked:
        description += f" Slowest measured link: {worst.source} to {worst.destination}, {worst.value}, {worst.share}."
    return frame("fabric-drawing-svg", "Fabric between the nodes", description, width, height, body)


def _node(node: Node, x: float, y: float, box: float, height: float, bad: bool) -> list[Markup]:
    colour, thick = (ALARM, 3) if bad else (BLUE, 1.4)
    slots = plural(node.gpus, "emulated GPU" if node.emulated_gpus else "GPU") if node.gpus else "no GPU declared"
    below = slots if node.emulated_gpus else node.virtual_words
    out = [
        rect(x, y, box, height, rx=4, fill=PAPER, stroke=colour, thick=thick),
        text(x + box / 2, y + 19, short(node.name, box - 8, 13), 13, "middle", ALARM if bad else INK, font_weight=600),
        text(x + box / 2, y + 35, short(_role(node), box - 6, 10.5), 10.5, "middle", MUTED),
        text(x + box / 2, y + 50, short(below or slots, box - 6, 10.5), 10.5, "middle", MUTED),
    ]
    return [*out, cross(x + box - 11, y + 11, 6)] if bad else out


def _port(node: Node, port: Port, x: float, edge: float, bar: float, room: float, bad: bool) -> Markup:
    colour, dash, thick = (ALARM, "6 3", 3.4) if bad else (INK, None, 1.8)
    middle = (edge + bar) / 2
    rate = quantity(port.rate_gbps, "Gbit/s") if port.rate_gbps else "rate not declared"
    out = [path("M", x, edge, "V", bar, stroke=colour, thick=thick, dash=dash)]
    for line, words in ((-4, port.interface), (10, rate)):
        fitting = short(words, room - 6, 10.5)
        half = len(fitting) * 3.2 + 3
        out.append(rect(x - half, middle + line - 10, 2 * half, 14, fill=PAPER))
        out.append(text(x, middle + line, fitting, 10.5, "middle", colour, font_weight=600 if line < 0 else None))
    if bad:
        out.append(cross(x, middle - 22 if edge < bar else middle + 24, 6))
    return titled(f"{node.name}/{port.interface}, {port.address}: {rate}", *out)


def _suspect_link(one: tuple[float, float], other: tuple[float, float], middle: float) -> list[Markup]:
    way = ("M", *one, "C", one[0], middle, other[0], middle, *other)
    return [
        path(*way, stroke=PAPER, thick=7),
        path(*way, stroke=ALARM, thick=3.4, dash="6 3"),
        cross((one[0] + other[0]) / 2, (one[1] + other[1]) / 8 + middle * 0.75, 7),
    ]


def _worst_link(
    one: tuple[float, float], other: tuple[float, float], bar: float, worst: WorstLink, wide: bool
) -> list[Markup]:
    """The way of the slowest link through the fabric, its value on it, and an arrow at its receiving end."""
    (x1, y1), (x2, y2) = one, other
    shift = 30 if wide else 9  # beside the port's own line and its words
    middle = bar + 30 if min(y1, y2) > bar else bar
    way = ("M", x1 + shift, y1, "V", middle, "H", x2 + shift, "V", y2)
    down = 7 if y2 > middle else -7
    words = worst.value
    half = len(words) * 3.6 + 5
    centre = (x1 + x2) / 2 + shift
    low = bar - 12 if min(y1, y2) < bar else bar + 46
    return [
        path(*way, stroke=PAPER, thick=7, stroke_linejoin="round"),
        path(*way, stroke=BROWN, thick=3, stroke_linejoin="round"),
        path(
            "M", x2 + shift - 5, y2 - down, "L", x2 + shift, y2, "L", x2 + shift + 5, y2 - down, stroke=BROWN, thick=3
        ),
        rect(centre - half, low - 12, 2 * half, 17, rx=3, fill=PAPER, stroke=BROWN),
        text(centre, low + 1, words, 11.5, "middle", BROWN, font_weight=600),
    ]


def _squares(nodes: Sequence[Node], suspects: _Suspects, bar: str, worst: WorstLink | None) -> Markup:
    """Many nodes: a square each, by role; the suspect ones crossed and named."""
    side, pitch, across = 12, 16, 38
    ends = {port.partition("/")[0] for port in worst.ends} if worst is not None else set()
    roles: dict[str, list[Node]] = {}
    for node in nodes:
        roles.setdefault(_role(node), []).append(node)
    width, y = across * pitch + 20, 44.0
    body = [
        rect(2, 2, width - 4, 28, rx=3, fill=SOFT, stroke=INK),
        text(width / 2, 21, short(bar, width - 20, 12), 12, "middle", font_weight=600),
    ]
    for role, members in roles.items():
        ports = sorted({len(n.ports) for n in members})
        rates = sorted({p.rate_gbps for n in members for p in n.ports if p.rate_gbps})
        said = ", ".join(quantity(r, "Gbit/s") for r in rates) or "rate not declared"
        each = " or ".join(map(str, ports)) + (" fabric port each" if ports == [1] else " fabric ports each")
        words = f"{role}: {plural(len(members), 'node')}, {each}, {said}"
        body.append(text(8, y + 12, short(words, width - 16, 12), 12, font_weight=600))
        y += 20
        plain, marks = [], []
        for index, node in enumerate(members):
            x, at = 8 + index % across * pitch, y + index // across * pitch
            plain.append(f"M{x} {at:g}h{side}v{side}h-{side}z")
            if node.name in ends:
                about = f"{node.name}: an end of the slowest measured link"
                marks.append(titled(about, rect(x - 1, at - 1, side + 2, side + 2, stroke=BROWN, thick=3, fill=PAPER)))
            if suspects.touches(node):
                marks.append(titled(f"{node.name}: named by the findings", cross(x + 6, at + 6, 6)))
        body += [path(*plain, fill=PALE, stroke=BLUE), *marks]
        y += ceil(len(members) / across) * pitch + 12
    named = [n.name for n in nodes if suspects.touches(n)]
    if named:
        body.append(cross(14, y + 6, 5))
        body.append(text(26, y + 10, short(f"named by the findings: {many(named, 8)}", width - 40, 11), 11))
        y += 20
    if worst is not None:
        body.append(rect(9, y + 1, 10, 10, stroke=BROWN, thick=3, fill=PAPER))
        words = f"slowest measured link: {worst.source} to {worst.destination}, {worst.value}"
        body.append(text(26, y + 10, short(words, width - 40, 11), 11))
        y += 20
    body.append(path("M", 8, y + 2, "H", width - 8, stroke=LINE))
    description = f"{number_of(len(nodes), 'node')} as squares, by role, on {bar}. {suspects.words}"
    if worst is not None:
        description += f" Slowest measured link: {worst.source} to {worst.destination}, {worst.value}, {worst.share}."
    return frame("fabric-drawing-svg", "Fabric between the nodes", description, width, y + 8, body)
