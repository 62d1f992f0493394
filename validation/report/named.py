"""Findings as published documents carry them: what they name stands there in words."""

from __future__ import annotations

from typing import Literal

from validation.model import Finding as Judged
from validation.model import Model


class Finding(Model):
    """The suspect node, port or link, named from the full pair matrix, with what to do about it."""

    kind: Literal["node", "port", "link", "pair", "cluster"]
    subject: str
    text: str
    remedy: str
    criteria: tuple[str, ...]
    evidence: tuple[str, ...] = ()


def named(finding: Judged) -> Finding:
    """A finding of the judge's, published."""
    same = finding.model_dump(include={"kind", "text", "remedy", "criteria", "evidence"})
    return Finding(subject=finding.subject, **same)
