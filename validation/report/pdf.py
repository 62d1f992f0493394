"""The report as PDF, laid out by WeasyPrint from the same HTML.

WeasyPrint is the only part that needs libraries of the operating system (Pango). It is loaded here and nowhere else,
and fetches nothing: whatever the document refers to must stand in it.
"""

from __future__ import annotations

import gc
import logging
from typing import Any

PACKAGES = ("libpango-1.0-0", "libpangoft2-1.0-0", "libharfbuzz-subset0", "fonts-dejavu-core", "fonts-liberation")


class PdfUnavailable(Exception):
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


def pdf_bytes(html: str) -> bytes:
    """`html` as a tagged PDF with bookmarks. PdfUnavailable where the libraries are missing.

    Links between places in the document work; nothing is fetched from file or network, data: URIs are read.
    """
    weasyprint = _weasyprint()
    for name in ("weasyprint", "fontTools"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # it reports each rule that is for browsers only
    inside = weasyprint.urls.URLFetcher(allowed_protocols=("data",))  # a logo; whatever else is not fetched
    collecting = gc.isenabled()
    gc.disable()  # a sixth faster: layout makes millions of objects that all live until its end
    try:
        document = weasyprint.HTML(string=html, base_url=None, url_fetcher=inside)
        return bytes(document.write_pdf(pdf_tags=True))
    except Exception as fault:  # whatever goes wrong in there, the other formats are still to be written
        words = f"{type(fault).__name__}: {fault}".partition("\n")[0].rstrip(": ")
        raise PdfUnavailable(f"PDF left out: WeasyPrint fails on this report ({words}); print report.html") from fault
    finally:
        if collecting:
            gc.enable()
