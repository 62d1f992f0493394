"""Two runs of the same site against each other: what an upgrade changed, and whether it is beyond noise."""

from __future__ import annotations

from validation.compare.compare import compare
from validation.compare.model import Comparison, NotComparable
from validation.compare.render import as_html, as_text

__all__ = ["Comparison", "NotComparable", "as_html", "as_text", "compare"]
