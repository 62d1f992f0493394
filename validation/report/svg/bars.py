"""Bars made of parts, one row each: what differs is told by hatching as well as by colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from validation.report.numbers import number
from validation.report.svg.colour import BLUE, INK, LINE, PALE, PAPER
from validation.report.svg.drawing import frame, rect, short, text, titled
from validation.report.svg.rows import KEY, WIDTH, axis_below, hatching, key_below

_LEFT, _RIGHT, _ROW = 170, 24, 34
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
    span = (WIDTH - _LEFT - _RIGHT) / top
    defined, hatch = hatching(id_, 2.4)
    body = [defined, *axis_below(_LEFT, WIDTH - _RIGHT, top, base, axis)]
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
    names = sorted(tones.items(), key=lambda item: list(_TONES).index(item[1]))
    body += key_below(_LEFT, base, ((name, _fill(tone, hatch)) for name, tone in names))
    return frame(id_, title, description, WIDTH, base + KEY + 18, body)


def _fill(tone: str, hatch: str) -> str:
    return hatch if tone == "hatched" else _TONES[tone]
