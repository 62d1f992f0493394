"""Facts of remoting (kinds remoting-copy, remoting-isolate, remoting-fraction)."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from validation.facts.common import Count, Name, Positive, once
from validation.model_base import Model


class Remoting(Model):
    """Through which engine, and whether the GPUs were emulated."""

    emulated: bool
    engine: str
    engine_release: str


class CopyDevice(Model):
    """A GPU of the lease; `server` "" where the engine does not say."""

    name: str
    uuid: str
    server: str


class CopyPair(Model):
    """Medians of the copies from one end to the other: a device's number, None for the client's memory."""

    source: Count | None
    target: Count | None
    gb_s: Positive
    us: Positive


class CopyFacts(Remoting):
    """Copies between a client's memory and all GPUs of a lease, and between these."""

    type: Literal["copies"] = "copies"
    client: str
    servers: tuple[str, ...]
    devices: tuple[CopyDevice, ...]
    matrix: tuple[CopyPair, ...]

    @property
    def holes(self) -> list[tuple[int | None, int | None]]:
        """Ordered pairs without a figure."""
        ends = (None, *range(len(self.devices)))
        there = {(pair.source, pair.target) for pair in self.matrix}
        return [(a, b) for a in ends for b in ends if (a, b) != (None, None) and (a, b) not in there]

    @field_validator("matrix")
    @classmethod
    def _pairs_once(cls, pairs: tuple[CopyPair, ...]) -> tuple[CopyPair, ...]:
        return once(pairs, "source", "target")


class Attempt(Model):
    """An attempt on isolation: whether it got through, and how it ended in words."""

    name: Name
    breach: bool
    words: Name


class IsolationFacts(Remoting):
    """All attempts of a tenant on a GPU server, in their order."""

    type: Literal["isolation"] = "isolation"
    server: str
    attempts: tuple[Attempt, ...]

    @property
    def breaches(self) -> list[str]:
        """Names of the attempts that got through."""
        return [attempt.name for attempt in self.attempts if attempt.breach]

    @field_validator("attempts")
    @classmethod
    def _attempts_once(cls, attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
        return once(attempts, "name")


class GpuPart(Model):
    """A part of a GPU as it was asked for, and the memory that its tenant had."""

    part: Name
    memory_mib: Positive


class FractionFacts(Remoting):
    """A GPU cut into parts; `beyond`: what became of one part too many."""

    type: Literal["fractions"] = "fractions"
    server: str
    parts: tuple[GpuPart, ...]
    memory_mib: Positive
    beyond: Literal["waiting", "pending", "refused"]
