"""Why Slurm holds a node drained, where it was these commands that drained it: written into Slurm and read from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
