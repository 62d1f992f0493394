"""The report as PDF, laid out by WeasyPrint from the same HTML.

WeasyPrint is the only part that needs libraries of the operating system (Pango). It is loaded here and nowhere else,
and fetches nothing: whatever the document refers to must stand in it.
"""

from __future__ import annotations

import gc
import logging
import re
from base64 import b64encode
from typing import Any
from xml.etree.ElementTree import ParseError, fromstring

from markupsafe import escape

from validation.report import pdf_record
from validation.report.unavailable import Unavailable
from validation.report.word_breaks import with_breaks

PACKAGES = ("libpango-1.0-0", "libpangoft2-1.0-0", "libharfbuzz-subset0", "fonts-dejavu-core", "fonts-liberation")

_SVG = "{http://www.w3.org/2000/svg}"
_FONTS = "'Liberation Sans', 'DejaVu Sans', sans-serif"


class PdfUnavailable(Unavailable):
    """PDF cannot be made on this machine. `str(e)` is one line: what is missing, and what to do."""


def _weasyprint() -> Any:
    try:
        import weasyprint  # type: ignore[import-untyped]  # slow to load, and needs Pango
    except ImportError:
        raise PdfUnavailable("PDF left out: the library WeasyPrint is not installed; pip install weasyprint") from None
    except OSError as fault:
        missing = str(fault).partition("'")[2].partition("'")[0] or str(fault).splitlines()[0]
        raise PdfUnavailable(
            f"PDF left out: the system library {missing} is missing; apt-get install {' '.join(PACKAGES)}"
        ) from None
    return weasyprint


def _as_image(found: re.Match[str]) -> str:
    """An inline drawing as an image, with its title and description as the alternative text."""
    text = found[0]
    try:
        root = fromstring(text)  # noqa: S314 - our own drawing; what is not well formed stays as it is
    except ParseError:
        return text
    words = " ".join(filter(None, (root.findtext(f"{_SVG}title"), root.findtext(f"{_SVG}desc"))))
    drawing = text.replace("<svg", f'<svg font-family="{_FONTS}"', 1)
    kind = escape(root.get("class", ""))
    data = b64encode(drawing.encode()).decode("ascii")
    return f'<img class="{kind}" alt="{escape(words)}" src="data:image/svg+xml;base64,{data}">'


def pdf_bytes(html: str) -> bytes:
    """`html` as a tagged PDF with bookmarks. PdfUnavailable where the libraries are missing.

    Links between places in the document work; nothing is fetched from file or network, data: URIs are read.
    """
    collecting = gc.isenabled()
    gc.disable()  # a sixth faster: library and layout make millions of objects that all live until the end
    try:
        return _laid_out(_weasyprint(), html)
    finally:
        if collecting:
            gc.enable()


def _documents_of(page: Any) -> list[Any]:
    """The documents that a page lays out from now on: when they are written, they know which fonts they took."""
    found: list[Any] = []
    lay_out = getattr(page, "render", None)

    def noted(*how: Any, **more: Any) -> Any:
        found.append(lay_out(*how, **more))  # type: ignore[misc]
        return found[-1]

    if lay_out is not None:
        page.render = noted
    return found


def _laid_out(weasyprint: Any, html: str) -> bytes:
    for name in ("weasyprint", "fontTools"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # it reports each rule that is for browsers only
    inside = weasyprint.urls.URLFetcher(allowed_protocols=("data",))  # a logo; whatever else is not fetched
    try:
        # a matrix has ten thousand elements, which need no style sheet: as images they take a third of the time
        html = re.sub(r"<svg\b[^>]*>.*?</svg>", _as_image, html, flags=re.DOTALL)
        page = weasyprint.HTML(string=with_breaks(html), base_url=None, url_fetcher=inside)
        documents = _documents_of(page)
        pdf = bytes(page.write_pdf(pdf_tags=True))
        pdf_record.note(pdf, weasyprint, documents[-1] if documents else None)
        return pdf
    except Exception as fault:  # whatever goes wrong in there, the other formats are still to be written
        words = f"{type(fault).__name__}: {fault}".partition("\n")[0].rstrip(": ")
        raise PdfUnavailable(f"PDF left out: WeasyPrint fails on this report ({words}); print report.html") from fault
