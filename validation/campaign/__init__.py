"""Several runs of one site, each over its own fabric, on one page. It judges nothing: verdicts are the runs' own."""

from __future__ import annotations

from validation.campaign.formats import FILES, write_formats
from validation.campaign.gather import campaign_of
from validation.campaign.model import Campaign, NotTogether
from validation.campaign.render import as_html, as_text

__all__ = ["FILES", "Campaign", "NotTogether", "as_html", "as_text", "campaign_of", "write_formats"]
