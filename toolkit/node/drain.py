"""Why Slurm holds a node drained, where it was these commands that drained it: written into Slurm and read from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from toolkit.node.state import Verb

_FORM = re.compile(r"toolkit node (add|replace|remove)(?:: (.*))?", re.DOTALL)


@dataclass(frozen=True)
class DrainReason:
    """The command that drained a node; `since`: what came of it, "" where it is on its way."""

    verb: Verb
    since: str = ""

    @property
    def text(self) -> str:
        """As Slurm keeps it: `toolkit node add: not accepted, RUN`."""
        return f"toolkit node {self.verb}" + (f": {self.since}" if self.since else "")


def read_drain(text: str) -> DrainReason | None:
    """Of Slurm's reason for a node; None where somebody else drained it."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    verbs: dict[str, Verb] = {"add": "add", "replace": "replace", "remove": "remove"}
    return DrainReason(verbs[found[1]], found[2] or "")


_UPGRADE = re.compile(r"toolkit (upgrade|rollback)(?:: (.*))?", re.DOTALL)


@dataclass(frozen=True)
class UpgradeDrain:
    """The upgrade or rollback that drained a node; `since`: what came of it, "" where it is on its way."""

    verb: Literal["upgrade", "rollback"]
    since: str = ""

    @property
    def text(self) -> str:
        """As Slurm keeps it: `toolkit upgrade: failed in deploy`."""
        return f"toolkit {self.verb}" + (f": {self.since}" if self.since else "")


def drained_by_upgrade(text: str) -> bool:
    """Whether Slurm's reason for a node is that of an upgrade or a rollback."""
    return _UPGRADE.fullmatch(text) is not None


_INCIDENT = re.compile(r"toolkit incidents: (.*)", re.DOTALL)


@dataclass(frozen=True)
class IncidentDrain:
    """`toolkit incidents` drained a node for a fault of its own."""

    why: str

    @property
    def text(self) -> str:
        """As Slurm keeps it: `toolkit incidents: Xid 79 of ...`."""
        return f"toolkit incidents: {self.why}"


def drained_by_incident(text: str) -> bool:
    """Whether Slurm's reason for a node is that of an incident."""
    return _INCIDENT.fullmatch(text) is not None


def still_drained(state: str, reason: str, ours: str) -> bool:
    """Whether a node is drained with this very reason, to which nobody has added a word; a node that restarts may have
    Slurm's own instead."""
    same = " ".join(reason.split()) == " ".join(ours.split())
    return "DRAIN" in state.upper() and (same or reason.startswith(_SLURMS_OWN))


_SLURMS_OWN = ("Not responding", "Node unexpectedly rebooted")
"""What slurmctld writes itself over the reason of a node that went away for a moment."""


_BY_A_FAULT = ("Epilog error", "Prolog error", "Kill task failed", "gres/gpu count reported lower than configured")
"""Reasons with which slurmctld drains a node by itself because of what it found there."""


def drained_by_slurm(state: str, reason: str) -> bool:
    """Whether Slurm drained a node by itself, because something failed on it."""
    return "DRAIN" in state.upper() and reason.startswith(_BY_A_FAULT)


def drained_by_somebody(state: str, reason: str) -> bool:
    """Whether a node is drained by somebody else than an upgrade: a person, a health check, another command."""
    return "DRAIN" in state.upper() and not drained_by_upgrade(reason) and not reason.startswith(_SLURMS_OWN)
