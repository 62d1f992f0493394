"""Panels of a dashboard as they are drawn: one look at Prometheus for all who read within some seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from toolkit.page.boards import CHOSEN, Board, Panel, chosen_in, figure, named
from toolkit.page.prometheus import Labels, Point, Silent, courses, samples

SPANS = {"1h": 3600, "6h": 6 * 3600, "1d": 86400, "7d": 7 * 86400}
"""Seconds that courses show, by the word of the address."""
STEPS, LEAST_STEP_S = 240, 15
MOST_LINES, MOST_ROWS, MOST_COLUMNS = 16, 200, 16
"""Series of a panel that are drawn, and rows of a table; others are counted. A node may send any labels: of its
columns the first are shown."""
Line = tuple[str, Sequence[Point]]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640.0, 190.0, 70.0, 22.0, 8.0
GAP = 2.5
"""Steps without a value after which a line is broken."""


@dataclass(frozen=True)
class Drawn:
    """A line: its way in SVG, its name, and its last, least and greatest value in words."""

    way: str
    name: str
    last: str
    least: str
    most: str


@dataclass(frozen=True)
class Tick:
    """A mark of an axis at so many units of the drawing."""

    at: float
    words: str


@dataclass(frozen=True)
class Shown:
    """A panel. more: how many series or rows are left out. silent: why nothing is known, "" where it is."""

    title: str
    kind: str
    figures: tuple[tuple[str, str], ...] = ()
    lines: tuple[Drawn, ...] = ()
    across: tuple[Tick, ...] = ()
    up: tuple[Tick, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    more: int = 0
    silent: str = ""


def nodes_of(base: str) -> tuple[str, ...]:
    """Nodes that Prometheus reads. Blocks. Silent."""
    names = {labels.get("node", "") for labels, _ in samples(base, 'up{job="node"}')}
    return tuple(sorted(name for name in names if CHOSEN.fullmatch(name)))


def drawn_board(base: str, board: Board, value: str, span: str, now: float) -> tuple[Shown, ...]:
    """All panels of a board; of one that Prometheus does not answer, why. Blocks, some seconds at most."""
    end, shown = time.monotonic() + 10, []
    for panel in board.panels:
        try:
            if time.monotonic() > end:
                raise Silent("Prometheus answers slowly")
            shown.append(_panel(base, board, panel, value, (now - SPANS[span], now)))
        except Silent as fault:
            shown.append(Shown(panel.title, panel.kind, silent=str(fault)))
    return tuple(shown)


def _panel(base: str, board: Board, panel: Panel, value: str, span: tuple[float, float]) -> Shown:
    asked = [(one.legend, chosen_in(one, board.chosen, value)) for one in panel.queries]
    if panel.kind == "figure":
        found = [(legend, labels, one) for legend, words in asked for labels, one in samples(base, words)]
        said = tuple(
            (named(legend, labels) if legend else "", figure(one, panel.unit)) for legend, labels, one in found
        )
        return Shown(panel.title, panel.kind, said[:MOST_LINES], more=max(0, len(said) - MOST_LINES))
    if panel.kind == "table":
        return _table(panel.title, [labels for _, words in asked for labels, _ in samples(base, words)])
    step = max(LEAST_STEP_S, math.ceil((span[1] - span[0]) / STEPS))
    lines: list[Line] = []
    count = 0
    for legend, words in asked:  # of each query no more is held than may be drawn
        read = courses(base, words, *span, step)
        made: list[Line] = [(named(legend, labels), points) for labels, points in read if points]
        count += len(made)
        lines = _greatest([*lines, *made])
    shown = chart(panel.title, panel.unit, lines, span, step)
    return replace(shown, more=count - len(lines))


def _greatest(lines: Sequence[Line]) -> list[Line]:
    ordered = sorted(lines, key=lambda line: (-max(value for _, value in line[1]), line[0]))
    return sorted(ordered[:MOST_LINES])


def _table(title: str, found: Sequence[Labels]) -> Shown:
    out = {"__name__", "job", "instance"}
    head = sorted({key for labels in found for key in labels} - out, key=lambda key: (key != "node", key))[
        :MOST_COLUMNS
    ]
    rows = sorted(tuple(labels.get(key, "") for key in head) for labels in found)
    return Shown(title, "table", head=tuple(head), rows=tuple(rows[:MOST_ROWS]), more=max(0, len(rows) - MOST_ROWS))


def chart(title: str, unit: str, lines: Sequence[Line], span: tuple[float, float], step: float) -> Shown:
    """Lines over time. Of many, those with the greatest values are drawn."""
    kept = _greatest(lines)
    values = [value for _, points in kept for _, value in points]
    low, high = _bounds(values)
    marks = _marks(low, high)
    low, high = min(low, marks[0]), max(high, marks[-1])

    def down(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))

    def along(when: float) -> float:
        return LEFT + (WIDTH - LEFT) * (when - span[0]) / (span[1] - span[0])

    made = []
    for name, points in kept:
        way, before = [], -math.inf
        for when, value in points:
            way.append(f"{'L' if when - before <= GAP * step else 'M'}{along(when):.1f} {down(value):.1f}")
            before = when
        only = [value for _, value in points]
        words = (figure(one, unit) for one in (only[-1], min(only), max(only)))
        made.append(Drawn(" ".join(way), name or title, *words))
    up = tuple(Tick(round(down(mark), 1), figure(mark, unit)) for mark in marks)
    across = tuple(Tick(round(along(when), 1), words) for when, words in _times(*span))
    return Shown(title, "course", lines=tuple(made), across=across, up=up, more=len(lines) - len(kept))


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    low, high = min([0.0, *values]), max([0.0, *values])
    return (low, high) if high - low > 1e-12 * max(abs(low), abs(high), 1e-300) else (low, low + 1)


def _marks(low: float, high: float) -> list[float]:
    """Round values, three to six of them, around what is drawn."""
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * one for one in (1, 2, 5, 10) if power * one >= raw * 0.999)
    return [step * at for at in range(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9) + 1)]


def _times(since: float, until: float) -> list[tuple[float, str]]:
    """Full hours or days in UTC, four to eight of them."""
    length = until - since
    every = next((one for one in (600, 3600, 4 * 3600, 86400) if length / one <= 8), 86400)
    form = "%d %b" if every == 86400 else "%H:%M"
    first = math.ceil(since / every) * every
    return [(at, time.strftime(form, time.gmtime(at))) for at in range(int(first), int(until), every)]
