"""What all drawings share: the frame of an inline SVG, text, marks that need no colour, ticks, and the table behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from markupsafe import Markup, escape

from validation.report.colour import INK

ALARM = "#b3261e"
MUTED = "#55606e"
LINE = "#c9d1da"
BLUE = "#2f6ba6"
GREEN = "#1d6f5c"
VIOLET = "#6b4e9b"
SOFT = "#f4f6f8"
CHARACTER = 0.58
"""Width of a character of the report's sans-serif faces as a share of the font size, generous."""


@dataclass(frozen=True)
class DataTable:
    """The numbers behind a figure, as text. `in_figure` True: the figure itself prints every one of them."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    in_figure: bool = False


@dataclass(frozen=True)
class Figure:
    """A drawing with caption and numbers, or, where nothing was measured, `empty`: the sentence that says so and why.

    `criteria` are those whose values are shown.
    """

    id: str
    caption: str
    svg: Markup | None = None
    table: DataTable | None = None
    empty: str | None = None
    criteria: tuple[str, ...] = ()


def frame(
    id_: str, title: str, description: str, width: float, height: float, body: Iterable[str], stretch: bool = False
) -> Markup:
    """One `<svg>` with the title and description that a screen reader reads. `body` is markup, its text escaped.

    `stretch`: drawn as wide as its place, whatever its height.
    """
    name, ratio = escape(id_), ' preserveAspectRatio="none"' if stretch else ""
    return Markup(  # noqa: S704 - made by the functions of this package, every inserted text escaped
        f'<svg class="figure" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}"{ratio} role="img" aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
        + "".join(body)
        + "</svg>"
    )


def text(
    x: float, y: float, words: str, size: float = 11, anchor: str = "start", fill: str = INK, weight: int = 400
) -> str:
    """A `<text>`, escaped."""
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    place = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.4g}" y="{y:.4g}"{place} font-size="{size:g}"{bold} fill="{fill}">{escape(words)}</text>'


def short(words: str, width: float, size: float) -> str:
    """`words`, cut with an ellipsis where they would not fit `width`."""
    most = max(int(width / (size * CHARACTER)), 1)
    return words if len(words) <= most else words[: max(most - 1, 1)] + "…"


def cross(x: float, y: float, reach: float = 6) -> str:
    """The mark of what is suspect: a cross on a white ground, so that colour is not needed to see it."""
    arms = f"M{x - reach:g} {y - reach:g}l{2 * reach:g} {2 * reach:g}m0 {-2 * reach:g}l{-2 * reach:g} {2 * reach:g}"
    return (
        f'<path d="{arms}" stroke="#fff" stroke-width="6.5" fill="none"/>'
        f'<path d="{arms}" stroke="{ALARM}" stroke-width="3" fill="none"/>'
    )


_MARKERS = (
    '<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {paint}/>',
    '<rect x="{l:.1f}" y="{t:.1f}" width="7.6" height="7.6" {paint}/>',
    '<path d="M{x:.1f} {u:.1f}l5 8.6h-10z" {paint}/>',
    '<path d="M{x:.1f} {u:.1f}l5 5.2l-5 5.2l-5 -5.2z" {paint}/>',
)


def marker(kind: int, x: float, y: float, colour: str, hollow: bool = False) -> str:
    """Disc, square, triangle or diamond; hollow ones are for what was not measured here, published figures say."""
    fill, stroke, width = ("#fff", colour, 1.8) if hollow else (colour, "#fff", 1)
    paint = f'fill="{fill}" stroke="{stroke}" stroke-width="{width:g}"'
    return _MARKERS[kind % len(_MARKERS)].format(x=x, y=y, l=x - 3.8, t=y - 3.8, u=y - 5.2, paint=paint)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, some five of them."""
    if high <= low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** floor(log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    first = ceil(low / step - 1e-9)
    return [round(step * i, 12) for i in range(first, floor(high / step + 1e-9) + 1)]


def size_words(size_bytes: float) -> str:
    """A message size as 64 B, 4 KiB, 8 MiB."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:g} {name}"
    return f"{size_bytes:g} B"


def many(names: Sequence[str], most: int = 6) -> str:
    """Names in a row, the rest counted."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
