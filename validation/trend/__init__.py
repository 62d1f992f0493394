"""Many runs of a site, one after the other: how each figure went, and what drifted."""

from __future__ import annotations

from validation.trend.formats import FILES, write_formats
from validation.trend.gather import trend_of
from validation.trend.model import Drift, Trend
from validation.trend.render import as_html, as_text

__all__ = ["FILES", "Drift", "Trend", "as_html", "as_text", "trend_of", "write_formats"]
