"""What hosts and switches agree on for lossless RoCE. stdout = what `toolkit switch check --json` prints.

Runs beside the inventory, not on a node. Each switch that the inventory names is asked for its running configuration
over ssh, which stays in the memory of that command; what is printed are the ports that were compared, and of each
difference the line of the host and that of the switch. Facts: `exit` (the command's: 0 no difference, 1 some, 3 not
all could be compared).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from validation.base.project import python_words
from validation.probes import ProbeDoc
from validation.probes.controller import inventory, run_here
from validation.probes.tool import Ran, document, last_line
from validation.rules.release import release

RAN = (0, 1, 3)
"""Exit codes of `toolkit switch check` after which its document says what was compared."""


@dataclass
class Asked:
    """Nothing: it is about the whole site."""


def probe(asked: Asked) -> ProbeDoc:
    """Compare switches and hosts."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        try:
            words = [*python_words("toolkit"), "switch", "check", "--json", "-i", inventory()]
        except ValueError as fault:
            return Ran(["toolkit", "switch", "check"], 2, "", ""), {}, str(fault)
        ran = run_here(words)
        if ran.returncode not in RAN:
            return ran, {}, f"toolkit switch check ended with {ran.returncode}: {last_line(ran.stderr)}"
        return Ran(ran.command, 0, ran.stdout, ran.stderr), {"exit": ran.returncode}, None

    return document("switches", "toolkit switch check", measure, lambda ran: release())
