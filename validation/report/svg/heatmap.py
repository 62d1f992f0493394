"""A matrix of pairs as an SVG heat map: rows send, columns receive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import ceil, log
from typing import Literal

from markupsafe import Markup, escape

from validation.model import Endpoint
from validation.report.numbers import number
from validation.report.svg.colour import ALARM, INK, LINE, MUTED, PAPER, sequential, text_on
from validation.report.svg.drawing import Value, element, frame, path, rect, text, titled

CellState = Literal["ok", "fail", "unusable", "missing"]

_LEGEND_WIDTH = 240
# Above this many endpoints a number no longer fits into its cell; the annex has them all.
MAX_WITH_NUMBERS = 32
# Above this many endpoints neighbours share a cell, which shows the worst of them.
MAX_CELLS_ACROSS = 64
_BLANK = "#f6f7f9"  # of an end to itself
_LEVELS = 24  # colours of a map without numbers: cells of one colour are one path, or the file grows by megabytes


@dataclass(frozen=True)
class Cell:
    """One ordered pair. `value` None = nothing to colour; `title` is what a pointer or screen reader gets."""

    text: str
    title: str
    state: CellState = "ok"
    value: float | None = None

    @property
    def hatched(self) -> bool:
        """True for what has no value, or none to rely on."""
        return self.value is None or self.state in ("missing", "unusable")


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

    @property
    def hatch(self) -> str:
        """Fill of what was not measured."""
        return f"url(#{self.id}-hatch)"

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


def _label(
    label: Endpoint, x: float, y: float, anchor: str, g: _Geometry, suspect: bool, rotate: bool = False
) -> Markup:
    words, one_line = escape(label.node), g.height < 40 or rotate
    if label.port:
        second: dict[str, Value] = {} if one_line else {"x": x, "dy": "1.25em"}
        port = f"/{label.port}" if one_line else label.port
        words += element("tspan", port, font_weight=400, fill=MUTED, font_size=g.font - 2, **second)
    if not one_line:
        y -= 3 if label.port else -4
    turn = f"rotate(-90 {x:g} {y:g})" if rotate else None
    return text(x, y, words, g.font, anchor, ALARM if suspect else INK, font_weight=600, transform=turn)


def _cell(cell: Cell, x: int, y: int, g: _Geometry, spec: Heatmap) -> Markup:
    fill = spec.hatch if cell.hatched else sequential(spec.share(cell.value or 0.0))
    out = [rect(x, y, g.width, g.height, fill=fill, stroke=PAPER)]
    if cell.text:
        cx, cy = x + g.width / 2, y + g.height / 2 + g.font * 0.36
        if cell.hatched:  # a clear ground, or the hatch eats the number
            half = len(cell.text) * g.font * 0.31 + 3
            out.append(rect(cx - half, cy - g.font, half * 2, g.font * 1.35, fill=PAPER))
        ink, weight = INK if cell.hatched else text_on(fill), 700 if cell.state == "fail" else None
        out.append(text(cx, cy, cell.text, g.font, "middle", ink, font_weight=weight))
    if cell.state == "fail":
        size = g.height * 0.3
        out.append(path("M", x + g.width, y, "h", -size, "l", size, size, "z", fill=ALARM, stroke=PAPER))
    return titled(cell.title, *out)


def _frame(x: float, y: float, width: float, height: float) -> Markup:
    ground = rect(x, y, width, height, rx=3, fill="none", stroke=PAPER, thick=5)
    return ground + rect(x, y, width, height, rx=3, fill="none", stroke=ALARM, thick=2.5)


def _frames(spec: Heatmap, g: _Geometry) -> Iterator[Markup]:
    count = len(spec.labels)
    for index, label in enumerate(spec.labels):
        if label in spec.suspect:
            yield _frame(4, g.top + index * g.height, g.left - 4 + count * g.width, g.height)
            yield _frame(g.left + index * g.width, 22, g.width, g.top - 22 + count * g.height)
    for source, destination in sorted(spec.suspect_pairs):
        if source in spec.labels and destination in spec.labels:
            row, column = spec.labels.index(source), spec.labels.index(destination)
            yield _frame(g.left + column * g.width, g.top + row * g.height, g.width, g.height)


def _legend(spec: Heatmap, left: int, y: int) -> Iterator[Markup]:
    # steps and no gradient, which not every maker of PDFs draws
    part = _LEGEND_WIDTH / _LEVELS
    for i in range(_LEVELS):
        yield rect(left + i * part, y, part, 11, fill=sequential(i / (_LEVELS - 1)))
    yield rect(left, y, _LEGEND_WIDTH, 11, fill="none", stroke=LINE)
    yield text(left, y + 25, number(spec.log_from) if spec.log_from is not None else "0", fill=MUTED)
    yield text(left + _LEGEND_WIDTH, y + 25, spec.top_label, 11, "end", MUTED)
    if spec.bound is not None and spec.top > 0:
        x = left + _LEGEND_WIDTH * min(spec.share(spec.bound), 1.0)
        yield path("M", x, y - 4, "v19", stroke=INK, thick=2)
        yield text(x, y - 8, spec.bound_label, 11, "end" if spec.bound > spec.top / 2 else "start")
    yield text(left, y + 41, spec.better, fill=MUTED)
    y += 54
    yield rect(left, y, 16, 12, fill=spec.hatch, stroke=LINE)
    yield path("M", left + 118, y, "h-12l12 12z", fill=ALARM)
    yield rect(left + 210, y + 1, 15, 10, rx=2, fill="none", stroke=ALARM, thick=2.5)
    for x, words in ((22, "not measured"), (124, "bound missed"), (232, "suspect")):
        yield text(left + x, y + 10, words, fill=MUTED)


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


def _flat(cell: Cell | None, diagonal: bool, spec: Heatmap) -> str:
    if cell is None and diagonal and not spec.with_diagonal:
        return _BLANK
    if cell is None or cell.value is None or cell.hatched:
        return spec.hatch
    return sequential(round(spec.share(cell.value) * _LEVELS) / _LEVELS)


def _compact(spec: Heatmap, g: _Geometry) -> Iterator[Markup]:
    """The cells of a large map: one path for each colour, without numbers and titles."""
    fills: dict[str, list[str]] = {}
    corners = []
    for row, source in enumerate(spec.labels):
        x, y = g.left, g.top + row * g.height
        cells = [spec.cells.get((source, destination)) for destination in spec.labels]
        failed = [column for column, cell in enumerate(cells) if cell is not None and cell.state == "fail"]
        corners += [f"M{g.left + (column + 1) * g.width} {y}h-6l6 6z" for column in failed]
        for fill, run in groupby(_flat(cell, column == row, spec) for column, cell in enumerate(cells)):
            width = len(list(run)) * g.width
            fills.setdefault(fill, []).append(f"M{x} {y}h{width}v{g.height}h-{width}z")
            x += width
    for fill, paths in fills.items():
        yield path(*paths, fill=fill)
    count = len(spec.labels)
    across = [f"M{g.left + i * g.width} {g.top}v{count * g.height}" for i in range(1, count)]
    down = [f"M{g.left} {g.top + i * g.height}h{count * g.width}" for i in range(1, count)]
    yield path(*across, *down, stroke=PAPER, thick=0.6)
    if corners:
        yield path(*corners, fill=ALARM, stroke=PAPER, thick=0.6)


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
    ground = element("rect", width=7, height=7, fill=PAPER) + path("M0 0v7", stroke="#9aa5b1", thick=2.4)
    pattern = {"width": "7", "height": "7", "patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    out = [
        element("defs", element("pattern", ground, id=f"{spec.id}-hatch", **pattern)),
        text(g.left + count * g.width / 2, 13, "destination →", 11, "middle", MUTED),
        text(g.left - 8, g.top - 8, "source ↓", 11, "end", MUTED),
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
                out.append(rect(x, y, g.width, g.height, fill=_BLANK, stroke=PAPER))
                continue
            cell = spec.cells.get((source, destination))
            if cell is None:
                cell = Cell(text="", title=f"{source} to {destination}: not measured", state="missing")
            out.append(_cell(cell, x, y, g, spec))
    out += [*_frames(spec, g), *_legend(spec, g.left, bottom + 30)]
    return frame(spec.id, spec.title, spec.description, width, height, out)
