"""Lanes over one axis of time, as of who had which GPU when: groups are told apart by hatching as well as by colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from validation.report.numbers import number
from validation.report.svg.colour import BLACK, BLUE, INK, LINE, PAPER
from validation.report.svg.drawing import CHARACTER, frame, path, rect, short, text, titled
from validation.report.svg.rows import KEY, WIDTH, axis_below, hatching, key_below

_LEFT, _RIGHT, _ROW, _HIGH, _HEAD = 92, 20, 30, 24, 24


@dataclass(frozen=True)
class Block:
    """Something on a lane from `begin` to `end`: `share` of the lane's height, `above` how much of it is others'.
    `group`: the first of a chart is drawn full, the second hatched."""

    label: str
    group: str
    begin: float
    end: float
    share: float = 1.0
    above: float = 0.0


@dataclass(frozen=True)
class Lane:
    """A row."""

    label: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class LaneGroup:
    """Rows under a heading; `until`: where they end, as a line across them, None for none."""

    title: str
    lanes: tuple[Lane, ...]
    until: float | None = None


def lane_chart(id_: str, title: str, description: str, groups: Sequence[LaneGroup], axis: str) -> Markup:
    """All groups on one axis from zero, one below the other, and a key."""
    blocks = [block for group in groups for lane in group.lanes for block in lane.blocks]
    top = max([*(block.end for block in blocks), *(g.until for g in groups if g.until)], default=0.0) or 1.0
    span = (WIDTH - _LEFT - _RIGHT) / top
    base = sum(_HEAD + _ROW * len(group.lanes) for group in groups) + 4
    defined, hatch = hatching(id_, 1.4)
    body = [defined, *axis_below(_LEFT, WIDTH - _RIGHT, top, base, axis)]
    names = list(dict.fromkeys(block.group for block in blocks))
    fills = {name: (BLUE, hatch)[min(at, 1)] for at, name in enumerate(names)}
    y = 0.0
    for group in groups:
        body.append(text(_LEFT, y + 17, short(group.title, WIDTH - _LEFT, 12), 12, font_weight="bold"))
        first, y = y + _HEAD, y + _HEAD
        for lane in group.lanes:
            body.append(text(_LEFT - 10, y + 16, short(lane.label, _LEFT - 12, 12), 12, "end"))
            body.append(path("M", _LEFT, y + _HIGH, "H", WIDTH - _RIGHT, stroke=LINE, thick=0.7))
            body += [_drawn(block, y, span, fills[block.group], block.group == names[0]) for block in lane.blocks]
            y += _ROW
        if group.until is not None:
            body.append(path("M", _LEFT + group.until * span, first - 2, "V", y - 2, stroke=INK, thick=1.6, dash="5 3"))
    body += key_below(_LEFT, base, fills.items())
    return frame(id_, title, description, WIDTH, base + KEY + 18, body)


def _drawn(block: Block, y: float, span: float, fill: str, dark: bool) -> Markup:
    x, wide = _LEFT + block.begin * span, max((block.end - block.begin) * span, 1.0)
    high, at = _HIGH * block.share, y + _HIGH * block.above
    marks = [rect(x, at, wide, high, fill=fill, stroke=INK, thick=0.8)]
    size = 10.5 if high > 14 else 8.5
    room = len(block.label) * size * CHARACTER + 4
    if wide > room:
        middle, line = x + wide / 2, at + high / 2 + size * 0.36
        if not dark:  # on hatching only a ground of its own can be read
            marks.append(rect(middle - room / 2, line - size * 0.86, room, size * 1.1, fill=PAPER))
        marks.append(text(middle, line, block.label, size, "middle", PAPER if dark else BLACK))
    return titled(f"{block.label}: {number(block.begin)} to {number(block.end)}", *marks)
