"""A report on paper, as it is laid out: what of it lies beyond the margins of its page."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from validation.report.pdf import _as_image
from validation.report.word_breaks import with_breaks

SLACK_PX = 0.75
"""What rounding may add: less than a fifth of a millimetre."""
SEEN = ("TextBox", "TableCellBox", "TableBox", "InlineReplacedBox", "BlockReplacedBox", "InlineBlockBox")
"""Boxes that ink is in; a line or block around them may be wider than what stands in it."""


class Beyond(NamedTuple):
    """A box that lies beyond its page's content: by so many px, on which page."""

    page: int
    px: float
    box: str
    text: str


def laid_out(html: str) -> Any:
    """WeasyPrint's document of a report's text for paper."""
    import weasyprint

    for name in ("weasyprint", "fontTools"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    html = re.sub(r"<svg\b[^>]*>.*?</svg>", _as_image, html, flags=re.DOTALL)
    fetcher = weasyprint.urls.URLFetcher(allowed_protocols=("data",))
    return weasyprint.HTML(string=with_breaks(html), base_url=None, url_fetcher=fetcher).render()


def beyond(document: Any) -> list[Beyond]:
    """What of any page lies left or right of its margins, or below the page."""
    found = []
    for number, page in enumerate(document.pages, 1):
        box = page._page_box
        left, right = box.content_box_x(), box.content_box_x() + box.width
        bottom = box.position_y + box.margin_height()
        for child in box.children:
            if type(child).__name__ == "MarginBox":
                continue
            for one in _inside(child):
                over = max(left - one.position_x, one.position_x + _width(one) - right, _end(one) - bottom)
                if over > SLACK_PX:
                    found.append(Beyond(number, round(over, 1), type(one).__name__, getattr(one, "text", "")[:60]))
    return found


def _inside(box: Any) -> Iterator[Any]:
    if type(box).__name__ in SEEN:
        yield box
    for child in getattr(box, "children", None) or ():
        yield from _inside(child)


def _width(box: Any) -> float:
    return float(box.width)


def _end(box: Any) -> float:
    return float(box.position_y) + (float(box.height) if isinstance(box.height, (int, float)) else 0.0)
