"""What all drawings are made of: SVG elements, marks that need no colour, the frame, and a figure with its table.

Attributes are keywords, every inserted text and value is escaped, numbers have two decimal places.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from html import escape

from markupsafe import Markup

from validation.report.svg.colour import ALARM, INK, PAPER

Value = str | float | None
_NAMES = {"thick": "stroke-width", "dash": "stroke-dasharray", "class_": "class"}
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

    `criteria` are those whose values are shown. `marked`: the slowest measured link is.
    """

    id: str
    caption: str
    svg: Markup | None = None
    table: DataTable | None = None
    empty: str | None = None
    criteria: tuple[str, ...] = ()
    marked: bool = False


@cache
def _name(keyword: str) -> str:
    return _NAMES.get(keyword) or keyword.replace("_", "-")


def _said(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{round(value, 2):g}"


def element(tag: str, *inside: str, **attributes: Value) -> Markup:
    """One element. `inside` are other elements, and text, which is escaped. An attribute that is None is left out.

    `fill_opacity` is written fill-opacity, `thick`, `dash` and `class_` as `_NAMES` has them.
    """
    said = "".join([f' {_name(n)}="{_said(v)}"' for n, v in attributes.items() if v is not None])
    if not inside:
        return Markup(f"<{tag}{said}/>")  # noqa: S704 - every inserted text is escaped
    words = "".join([one if isinstance(one, Markup) else escape(one) for one in inside])
    return Markup(f"<{tag}{said}>{words}</{tag}>")  # noqa: S704 - every inserted text is escaped


def rect(x: float, y: float, width: float, height: float, *inside: str, **paint: Value) -> Markup:
    """A rectangle by its upper left corner."""
    return element("rect", *inside, x=x, y=y, width=width, height=height, **paint)


def path(*way: str | float, fill: Value = "none", **paint: Value) -> Markup:
    """A path: letters and numbers as in the attribute d, `path("M", 1, 2, "H", 9, stroke=INK)`."""
    return element("path", d=" ".join(map(_said, way)), **paint, fill=fill)


def text(
    x: float, y: float, words: str, size: float = 11, anchor: Value = None, fill: Value = INK, **more: Value
) -> Markup:
    """A line of text, its baseline at `y`."""
    return element("text", words, x=x, y=y, text_anchor=anchor, font_size=size, fill=fill, **more)


def titled(title: str, *inside: str) -> Markup:
    """A group with what a pointer or screen reader gets."""
    return element("g", element("title", title), *inside)


def svg(width: float, height: float, *inside: str, **attributes: Value) -> Markup:
    """A whole drawing, read as one picture."""
    box = f"0 0 {width:g} {height:g}"
    return element("svg", *inside, viewBox=box, width=width, height=height, role="img", **attributes)


def frame(
    id_: str, title: str, description: str, width: float, height: float, body: Iterable[str], stretch: bool = False
) -> Markup:
    """A drawing with the title and description that a screen reader reads. `body` are its elements.

    `stretch`: drawn as wide as its place, whatever its height.
    """
    words = element("title", title, id=f"{id_}-title"), element("desc", description, id=f"{id_}-desc")
    more = {"class_": "figure", "xmlns": "http://www.w3.org/2000/svg", "aria_labelledby": f"{id_}-title {id_}-desc"}
    return svg(width, height, *words, *body, preserveAspectRatio="none" if stretch else None, **more)


def short(words: str, width: float, size: float) -> str:
    """`words`, cut with an ellipsis where they would not fit `width`."""
    most = max(int(width / (size * CHARACTER)), 1)
    return words if len(words) <= most else words[: max(most - 1, 1)] + "…"


def cross(x: float, y: float, reach: float = 6) -> Markup:
    """The mark of what is suspect: a cross on a white ground, so that colour is not needed to see it."""
    arms = ("M", x - reach, y - reach, "l", 2 * reach, 2 * reach, "m", 0, -2 * reach, "l", -2 * reach, 2 * reach)
    return path(*arms, stroke=PAPER, thick=6.5) + path(*arms, stroke=ALARM, thick=3)


def marker(kind: int, x: float, y: float, colour: str, hollow: bool = False) -> Markup:
    """Disc, square, triangle or diamond; hollow ones are for what was not measured here, published figures say."""
    fill, stroke, thick = (PAPER, colour, 1.8) if hollow else (colour, PAPER, 1)
    paint: dict[str, Value] = {"fill": fill, "stroke": stroke, "thick": thick}
    if kind % 4 == 0:
        return element("circle", cx=x, cy=y, r=4, **paint)
    if kind % 4 == 1:
        return rect(x - 3.8, y - 3.8, 7.6, 7.6, **paint)
    return path("M", x, y - 5.2, "l5 8.6h-10z" if kind % 4 == 2 else "l5 5.2l-5 5.2l-5 -5.2z", **paint)
