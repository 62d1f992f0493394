"""Bars made of parts, one row each: what differs is told by hatching as well as by colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from validation.report.numbers import number
from validation.report.svg.colour import BLUE, INK, LINE, MUTED, PALE, PAPER
from validation.report.svg.drawing import CHARACTER, element, frame, path, rect, short, text, titled
from validation.report.svg.plots import ticks

_WIDTH, _LEFT, _RIGHT, _ROW = 640, 170, 24, 34
_TONES = {"full": BLUE, "hatched": PALE, "grey": LINE, "empty": PAPER}


@dataclass(frozen=True)
class Piece:
    """A part of a bar. `tone`: full, hatched, grey or empty, the same for the same name in all bars; the key
    has them in this order."""

    name: str
    value: float
    tone: str


@dataclass(frozen=True)
class Bar:
    """A row: its parts from left to right."""

    label: str
    pieces: tuple[Piece, ...]


def stacked_bars(id_: str, title: str, description: str, bars: Sequence[Bar], axis: str) -> Markup:
    """Bars on one axis from zero, and a key of the names of their parts."""
    top = max((sum(p.value for p in bar.pieces) for bar in bars), default=0.0) or 1.0
    base = _ROW * len(bars) + 6
    span = (_WIDTH - _LEFT - _RIGHT) / top
    hatch = f"{id_}-hatch"
    lines = path("M", 0, 0, "V", 6, stroke=BLUE, thick=2.4)
    ground = element(
        "pattern", rect(0, 0, 6, 6, fill=PALE), lines, id=hatch, width=6, height=6,
        patternUnits="userSpaceOnUse", patternTransform="rotate(45)",
    )  # fmt: skip
    body = [element("defs", ground)]
    for value in ticks(0.0, top):
        x = _LEFT + value * span
        body.append(path("M", x, 4, "V", base, stroke=LINE, thick=0.7))
        body.append(text(x, base + 15, number(value), 11, "middle", MUTED))
    body.append(text((_LEFT + _WIDTH - _RIGHT) / 2, base + 32, axis, 11, "middle", MUTED))
    tones: dict[str, str] = {}
    for index, bar in enumerate(bars):
        y, x = index * _ROW + 10, float(_LEFT)
        body.append(text(_LEFT - 12, y + 15, short(bar.label, _LEFT - 14, 12), 12, "end"))
        for piece in bar.pieces:
            tones.setdefault(piece.name, piece.tone)
            wide = piece.value * span
            if wide <= 0:
                continue
            drawn = rect(x, y, wide, 22, fill=_fill(piece.tone, hatch), stroke=INK, thick=0.8)
            body.append(titled(f"{bar.label}: {piece.name} {number(piece.value)}", drawn))
            x += wide
    across, key = float(_LEFT), base + 46
    for name, tone in sorted(tones.items(), key=lambda item: list(_TONES).index(item[1])):
        body.append(rect(across, key, 18, 11, fill=_fill(tone, hatch), stroke=INK, thick=0.8))
        body.append(text(across + 25, key + 10, name))
        across += 44 + len(name) * 11 * CHARACTER
    return frame(id_, title, description, _WIDTH, key + 18, body)


def _fill(tone: str, hatch: str) -> str:
    return f"url(#{hatch})" if tone == "hatched" else _TONES[tone]
