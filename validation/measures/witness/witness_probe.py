"""A witnessed test. It needs a person, who is led by `toolkit handover witness RUN`; that command writes the document.

stdout = JSON: `test`, `node`, `witness`, `remark`, `times` (when the person was asked and said that it is done),
`watched` (spans in which somebody watched) and `lines` (what changed, by which sense, when); times in seconds since
1970, UTC. This probe itself says only that nobody has led the test yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.tool import Ran, document

UNLED = "a person leads it, which nobody has yet: toolkit handover witness"


@dataclass
class Asked:
    """Which test it is."""

    test: str


def probe(asked: Asked) -> ProbeDoc:
    """Say who takes it."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        return Ran(["toolkit", "handover", "witness"], 0, "", ""), {}, UNLED

    return document("witness", "toolkit handover witness", measure, lambda ran: "")
