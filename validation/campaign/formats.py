"""The files of a campaign: HTML, PDF of the same, JSON. The same runs give the same bytes, but for fonts in a PDF."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from validation.campaign.model import Campaign
from validation.campaign.render import as_html
from validation.report.formats import Written
from validation.report.side_pages import write_pages

FILES = {"html": "campaign.html", "pdf": "campaign.pdf", "json": "campaign.json"}
"""Name of a format, as `--format` takes it -> name of its file."""


def write_formats(campaign: Campaign, formats: Iterable[str], folder: Path) -> Written:
    """Write the asked formats of FILES into `folder`, which is made. ConfigError where the disk refuses."""
    return write_pages(FILES, campaign, as_html, formats, folder)
