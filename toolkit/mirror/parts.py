"""One system's share of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.mirror.documents import Missing, Repository


@dataclass
class Part:
    """Its repositories, what none has, and how large the indices were and how long they took."""

    repositories: list[Repository]
    missing: list[Missing]
    index_bytes: int
    seconds: float
