"""The files of a trend: HTML, PDF of the same, JSON. The same runs give the same bytes, but for fonts in a PDF."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from validation.report.formats import Written
from validation.report.side_pages import write_pages
from validation.trend.model import Trend
from validation.trend.render import as_html

FILES = {"html": "trend.html", "pdf": "trend.pdf", "json": "trend.json"}
"""Name of a format, as `--format` takes it -> name of its file."""


def write_formats(trend: Trend, formats: Iterable[str], folder: Path) -> Written:
    """Write the asked formats of FILES into `folder`, which is made. ConfigError where the disk refuses."""
    return write_pages(FILES, trend, as_html, formats, folder)
