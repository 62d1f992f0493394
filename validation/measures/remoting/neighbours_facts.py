"""Facts of a tenant beside its neighbours, and of changes of parts (kinds remoting-neighbours, remoting-noreboot)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from validation.measures.remoting.facts import Remoting
from validation.model.base import Model
from validation.model.facts import Count, Name, Positive, once

Neighbour = Literal["alone", "noise", "fault"]


class TenantRun(Model):
    """The tenant's training beside such a neighbour; what it said instead, where it did not train (`failed`)."""

    beside: Neighbour
    turn: Count
    failed: str
    losses: tuple[Positive, ...]
    weights_sha256: str = Field(pattern=r"^([0-9a-f]{64})?$")


class NeighbourEnd(Model):
    """How the neighbour's program with the failing kernel ended, and the one that came after it (exit statuses)."""

    turn: Count
    status: int = Field(ge=-64, le=255)
    words: Name
    after: int = Field(ge=-64, le=255)


class NeighbourFacts(Remoting):
    """Turns of a tenant alone, beside noise, beside a fault."""

    type: Literal["neighbours"] = "neighbours"
    server: str
    device: Name
    batch: Count
    noise: Count
    steps: Count = Field(ge=2)
    runs: tuple[TenantRun, ...] = Field(min_length=1)
    ends: tuple[NeighbourEnd, ...] = Field(min_length=1)

    @field_validator("runs")
    @classmethod
    def _runs_once(cls, runs: tuple[TenantRun, ...]) -> tuple[TenantRun, ...]:
        return once(runs, "beside", "turn")

    def harmed(self, beside: Neighbour) -> list[str]:
        """The turns in which the tenant did not train, or computed something else than alone at first, in words."""
        first = next(run for run in self.runs if run.beside == "alone")
        found = []
        for run in (run for run in self.runs if run.beside == beside):
            if run.failed:
                found.append(f"turn {run.turn}: the tenant failed: {run.failed}")
            elif (run.losses, run.weights_sha256) != (first.losses, first.weights_sha256):
                found.append(f"turn {run.turn}: the tenant computed something else than alone")
        return found

    def by_fault(self) -> list[str]:
        """What the neighbour's fault did beyond it, in words."""
        after = [
            f"turn {end.turn}: the next program on that half failed ({end.after})" for end in self.ends if end.after
        ]
        return [*self.harmed("fault"), *after]


class BootIds(Model):
    """Boot ids of server and client."""

    server: Name
    client: Name


class PartsChange(Model):
    """A way to cut a GPU, the seconds until all its parts were leased, and the boot ids then."""

    parts: tuple[Name, ...] = Field(min_length=1)
    seconds: Positive
    ids: BootIds


class NoRebootFacts(Remoting):
    """A whole GPU, and each way to cut it, one after the other."""

    type: Literal["no-reboot"] = "no-reboot"
    server: str
    before: BootIds
    changes: tuple[PartsChange, ...] = Field(min_length=1)

    def reboots(self) -> list[str]:
        """Which machine had started anew with which parts, in words."""
        found, last = [], self.before
        for change in self.changes:
            for where in ("server", "client"):
                if getattr(change.ids, where) != getattr(last, where):
                    found.append(f"{where} with {' + '.join(change.parts)}")
            last = change.ids
        return found
