"""A matrix of pairs as an SVG heat map: rows send, columns receive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil, log
from typing import Literal

from markupsafe import Markup, escape

from validation.model import Endpoint
from validation.report.colour import INK, sequential, text_on
from validation.report.drawing import ALARM, LINE, MUTED, frame
from validation.report.numbers import number

CellState = Literal["ok", "fail", "unusable", "missing"]

_LEGEND_WIDTH = 240
# Above this many endpoints a number no longer fits into its cell; the annex has them all.
MAX_WITH_NUMBERS = 32
# Above this many endpoints neighbours share a cell, which shows the worst of them.
MAX_CELLS_ACROSS = 64
_LEVELS = 24  # colours of a map without numbers: cells of one colour are one path, or the file grows by megabytes


@dataclass(frozen=True)
class Cell:
    """One ordered pair. `value` None = nothing to colour; `title` is what a pointer or screen reader gets."""

    text: str
    title: str
    state: CellState = "ok"
    value: float | None = None


@dataclass(frozen=True)
class Heatmap:
    """What a heat map shows. The scale runs from 0 to `top`; `bound` is marked on the legend.

    `labels` are the ends that it shows. `suspect` holds endpoints, `suspect_pairs` (source, destination). `high_is_bad`
    tells which of several cells is the worst, where they have to share one. `with_diagonal`: an end to itself is a
    pair too. `log_from`: a logarithmic scale that begins there.
    """

    id: str
    title: str
    description: str
    labels: tuple[Endpoint, ...]
    cells: dict[tuple[Endpoint, Endpoint], Cell]
    unit: str
    top: float
    top_label: str
    bound: float | None = None
    bound_label: str = ""
    better: str = ""
    suspect: frozenset[Endpoint] = field(default_factory=frozenset)
    suspect_pairs: frozenset[tuple[Endpoint, Endpoint]] = field(default_factory=frozenset)
    high_is_bad: bool = False
    with_diagonal: bool = False
    log_from: float | None = None

    def share(self, value: float) -> float:
        """Where on the scale a value lies, 0 to 1."""
        if self.log_from is None:
            return value / self.top if self.top > 0 else 0.0
        if value <= self.log_from or self.top <= self.log_from:
            return 0.0
        return log(value / self.log_from) / log(self.top / self.log_from)


@dataclass(frozen=True)
class _Geometry:
    width: int
    height: int
    font: float
    left: int
    top: int
    rotated: bool


def _geometry(labels: tuple[Endpoint, ...]) -> _Geometry:
    count = len(labels)
    longest = max((len(part) for label in labels for part in (label.node, label.port)), default=1)
    width, height, font = (74, 46, 13.0) if count <= 8 else (50, 32, 11.0) if count <= 16 else (36, 24, 9.0)
    if count > MAX_WITH_NUMBERS:
        width, height, font = 14, 14, 8.0
    label_width = round(longest * font * 0.62)
    rotated = label_width > width - 4
    return _Geometry(
        width, height, font, left=label_width + 40, top=(label_width + 34) if rotated else 62, rotated=rotated
    )


def _label(label: Endpoint, x: float, y: float, anchor: str, g: _Geometry, suspect: bool, rotate: bool = False) -> str:
    node, port = label.node, label.port
    fill = ALARM if suspect else INK
    turn = f' transform="rotate(-90 {x:g} {y:g})"' if rotate else ""
    small = f'<tspan font-weight="400" fill="{MUTED}" font-size="{g.font - 2:g}"'
    if g.height < 40 or rotate:  # one line
        tail = f"{small}>/{escape(port)}</tspan>" if port else ""
    else:
        tail = f'{small} x="{x:g}" dy="1.25em">{escape(port)}</tspan>' if port else ""
        y -= 3 if port else -4
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{g.font:g}" font-weight="600" '
        f'fill="{fill}"{turn}>{escape(node)}{tail}</text>'
    )


def _cell(cell: Cell, x: int, y: int, g: _Geometry, spec: Heatmap) -> str:
    hatched = cell.value is None or cell.state in ("missing", "unusable")
    share = spec.share(cell.value or 0.0)
    fill = f"url(#{escape(spec.id)}-hatch)" if hatched else sequential(share)
    ink = INK if hatched else text_on(fill)
    out = [
        f"<g><title>{escape(cell.title)}</title>"
        f'<rect x="{x}" y="{y}" width="{g.width}" height="{g.height}" fill="{fill}" stroke="#fff"/>'
    ]
    if len(spec.labels) <= MAX_WITH_NUMBERS and cell.text:
        weight = "700" if cell.state == "fail" else "400"
        cx, cy = x + g.width / 2, y + g.height / 2 + g.font * 0.36
        if hatched:  # a clear ground, or the hatch eats the number
            half = len(cell.text) * g.font * 0.31 + 3
            out.append(
                f'<rect x="{cx - half:g}" y="{cy - g.font:g}" width="{half * 2:g}" height="{g.font * 1.35:g}" '
                f'fill="#fff"/>'
            )
        out.append(
            f'<text x="{cx:g}" y="{cy:g}" text-anchor="middle" font-size="{g.font:g}" font-weight="{weight}" '
            f'fill="{ink}">{escape(cell.text)}</text>'
        )
    if cell.state == "fail":
        size = g.height * 0.3
        out.append(f'<path d="M{x + g.width} {y}h-{size:g}l{size:g} {size:g}z" fill="{ALARM}" stroke="#fff"/>')
    return "".join(out) + "</g>"


def _frame(x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="none" stroke="#fff" '
        f'stroke-width="5"/><rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="none" '
        f'stroke="{ALARM}" stroke-width="2.5"/>'
    )


def _frames(spec: Heatmap, g: _Geometry) -> str:
    count = len(spec.labels)
    out = []
    for index, label in enumerate(spec.labels):
        if label in spec.suspect:
            out.append(_frame(4, g.top + index * g.height, g.left - 4 + count * g.width, g.height))
            out.append(_frame(g.left + index * g.width, 22, g.width, g.top - 22 + count * g.height))
    for source, destination in sorted(spec.suspect_pairs):
        if source in spec.labels and destination in spec.labels:
            row, column = spec.labels.index(source), spec.labels.index(destination)
            out.append(_frame(g.left + column * g.width, g.top + row * g.height, g.width, g.height))
    return "".join(out)


def _legend(spec: Heatmap, left: int, y: int) -> str:
    # steps and no gradient, which not every maker of PDFs draws
    part = _LEGEND_WIDTH / _LEVELS
    scale = "".join(
        f'<rect x="{left + i * part:g}" y="{y}" width="{part:g}" height="11" fill="{sequential(i / (_LEVELS - 1))}"/>'
        for i in range(_LEVELS)
    )
    name = escape(spec.id)
    out = [
        scale,
        f'<g font-size="11" fill="{MUTED}">',
        f'<rect x="{left}" y="{y}" width="{_LEGEND_WIDTH}" height="11" fill="none" stroke="{LINE}"/>',
        f'<text x="{left}" y="{y + 25}">{number(spec.log_from) if spec.log_from is not None else 0}</text>',
        f'<text x="{left + _LEGEND_WIDTH}" y="{y + 25}" text-anchor="end">{escape(spec.top_label)}</text>',
    ]
    if spec.bound is not None and spec.top > 0:
        x = left + _LEGEND_WIDTH * min(spec.share(spec.bound), 1.0)
        anchor = "end" if spec.bound > spec.top / 2 else "start"
        out.append(f'<path d="M{x:g} {y - 4}v19" stroke="{INK}" stroke-width="2"/>')
        out.append(f'<text x="{x:g}" y="{y - 8}" text-anchor="{anchor}" fill="{INK}">{escape(spec.bound_label)}</text>')
    out.append(f'<text x="{left}" y="{y + 41}">{escape(spec.better)}</text>')
    key_y = y + 54
    keys = [
        f'<rect x="{left}" y="{key_y}" width="16" height="12" fill="url(#{name}-hatch)" stroke="{LINE}"/>'
        f'<text x="{left + 22}" y="{key_y + 10}">not measured</text>'
    ]
    x = left + 106
    keys.append(
        f'<path d="M{x + 12} {key_y}h-12l12 12z" fill="{ALARM}"/>'
        f'<text x="{x + 18}" y="{key_y + 10}">bound missed</text>'
    )
    x += 104
    keys.append(
        f'<rect x="{x}" y="{key_y + 1}" width="15" height="10" rx="2" fill="none" stroke="{ALARM}" '
        f'stroke-width="2.5"/><text x="{x + 22}" y="{key_y + 10}">suspect</text>'
    )
    return "".join(out) + "".join(keys) + "</g>"


def _binned(spec: Heatmap) -> Heatmap:
    """The map of neighbours together: each cell has the worst value of its pairs and the worst of their states."""
    size = ceil(len(spec.labels) / MAX_CELLS_ACROSS)
    bin_of: dict[Endpoint, Endpoint] = {}
    labels: list[Endpoint] = []
    for start in range(0, len(spec.labels), size):
        members = spec.labels[start : start + size]
        label = Endpoint(node=members[0].node + (f" … {members[-1].node}" if len(members) > 1 else ""))
        labels.append(label if label not in labels else Endpoint(node=f"{label} ({start})"))
        bin_of.update(dict.fromkeys(members, labels[-1]))
    cells: dict[tuple[Endpoint, Endpoint], Cell] = {}
    order = {"missing": 0, "unusable": 1, "ok": 2, "fail": 3}
    sign = 1 if spec.high_is_bad else -1

    def weight(cell: Cell) -> tuple[int, float]:
        return order[cell.state], sign * (cell.value if cell.value is not None else 0.0)

    for (source, destination), cell in spec.cells.items():
        place = bin_of[source], bin_of[destination]
        if place not in cells or weight(cell) > weight(cells[place]):
            cells[place] = cell
    said = f" Each cell shows the worst of the pairs of {size} by {size} neighbouring ports."
    return replace(
        spec,
        labels=tuple(labels),
        cells=cells,
        description=spec.description.rstrip() + said,
        suspect=frozenset(bin_of[label] for label in spec.suspect),
        suspect_pairs=frozenset((bin_of[a], bin_of[b]) for a, b in spec.suspect_pairs if a in bin_of and b in bin_of),
    )


def _compact(spec: Heatmap, g: _Geometry) -> Iterator[str]:
    """The cells of a large map: one path for each colour, without numbers and titles."""
    fills: dict[str, list[str]] = {}
    corners = []
    for row, source in enumerate(spec.labels):
        y, run, start = g.top + row * g.height, "", 0
        for column in range(len(spec.labels) + 1):
            fill = ""
            if column < len(spec.labels):
                destination = spec.labels[column]
                cell = spec.cells.get((source, destination))
                if cell is None and source == destination and not spec.with_diagonal:
                    fill = "#f6f7f9"
                elif cell is None or cell.value is None or cell.state in ("missing", "unusable"):
                    fill = f"url(#{escape(spec.id)}-hatch)"
                else:
                    fill = sequential(round(spec.share(cell.value) * _LEVELS) / _LEVELS)
                if cell is not None and cell.state == "fail":
                    corners.append(f"M{g.left + (column + 1) * g.width} {y}h-6l6 6z")
            if fill != run:
                if run:
                    width = (column - start) * g.width
                    fills.setdefault(run, []).append(f"M{g.left + start * g.width} {y}h{width}v{g.height}h-{width}z")
                run, start = fill, column
    for fill, paths in fills.items():
        yield f'<path d="{"".join(paths)}" fill="{fill}"/>'
    count = len(spec.labels)
    across = "".join(f"M{g.left + i * g.width} {g.top}v{count * g.height}" for i in range(1, count))
    down = "".join(f"M{g.left} {g.top + i * g.height}h{count * g.width}" for i in range(1, count))
    yield f'<path d="{across}{down}" stroke="#fff" stroke-width="0.6"/>'
    if corners:
        yield f'<path d="{"".join(corners)}" fill="{ALARM}" stroke="#fff" stroke-width="0.6"/>'


def heat_map(spec: Heatmap) -> Markup:
    """The heat map as one `<svg>` element with title, description, axes and legend; nothing outside it is needed.

    Beyond 32 ports the cells carry no numbers, beyond 64 neighbouring ports share a cell.
    """
    if len(spec.labels) > MAX_CELLS_ACROSS:
        spec = _binned(spec)
    g = _geometry(spec.labels)
    count = len(spec.labels)
    bottom = g.top + count * g.height
    width = max(g.left + count * g.width + 6, g.left + 330)
    height = bottom + 104
    name = escape(spec.id)
    out = [
        f'<defs><pattern id="{name}-hatch" width="7" height="7" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="7" height="7" fill="#fff"/>'
        f'<path d="M0 0v7" stroke="#9aa5b1" stroke-width="2.4"/></pattern></defs>',
        f'<text x="{g.left + count * g.width / 2:g}" y="13" text-anchor="middle" font-size="11" fill="{MUTED}">'
        f"destination →</text>",
        f'<text x="{g.left - 8}" y="{g.top - 8}" text-anchor="end" font-size="11" fill="{MUTED}">source ↓</text>',
    ]
    for index, label in enumerate(spec.labels):
        suspect = label in spec.suspect
        middle_y = g.top + index * g.height + g.height / 2
        out.append(_label(label, g.left - 10, middle_y if g.height >= 40 else middle_y + 4, "end", g, suspect))
        x = g.left + index * g.width + g.width / 2
        if g.rotated:
            out.append(_label(label, x + 4, g.top - 6, "start", g, suspect, rotate=True))
        else:
            out.append(_label(label, x, g.top - 22, "middle", g, suspect))
    if count > MAX_WITH_NUMBERS:
        out += _compact(spec, g)
    for row, source in enumerate(spec.labels if count <= MAX_WITH_NUMBERS else ()):
        for column, destination in enumerate(spec.labels):
            x, y = g.left + column * g.width, g.top + row * g.height
            if source == destination and (source, destination) not in spec.cells:
                out.append(
                    f'<rect x="{x}" y="{y}" width="{g.width}" height="{g.height}" fill="#f6f7f9" stroke="#fff"/>'
                )
                continue
            cell = spec.cells.get((source, destination))
            if cell is None:
                cell = Cell(text="", title=f"{source} to {destination}: not measured", state="missing")
            out.append(_cell(cell, x, y, g, spec))
    out.append(_frames(spec, g))
    out.append(_legend(spec, g.left, bottom + 30))
    return frame(spec.id, spec.title, spec.description, width, height, out)
