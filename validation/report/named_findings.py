"""Findings as published documents carry them: what they name stands there in words."""

from __future__ import annotations

from typing import Literal

from validation.model import Finding as Judged
from validation.model import Model


class Finding(Model):
    """The suspect node, port or link, named from the full pair matrix, with its cause where that was seen, and what to
    do about it. `confidence` from 0 to 1 that it is this part, null where nothing had to be concluded."""

    kind: Literal["node", "port", "link", "pair", "cluster"]
    subject: str
    text: str
    cause: str = ""
    confidence: float | None = None
    remedy: str
    criteria: tuple[str, ...]
    evidence: tuple[str, ...] = ()


def named(finding: Judged) -> Finding:
    """A finding of the judge's, published."""
    same = finding.model_dump(include={"kind", "text", "cause", "confidence", "remedy", "criteria", "evidence"})
    return Finding(subject=finding.subject, **same)
