"""Probe `converged`: site.yml in check mode over the whole inventory. stdout = what `toolkit deploy --json` prints.

Runs beside the inventory, not on a node, through the toolkit's own command and with that through ansible-runner.
Nothing is changed. Facts: `exit` (the command's: 0 could be brought to the wanted state, 1 a node failed or was not
reached, of which the document tells more).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from validation.base.project import python_words
from validation.probes import ProbeDoc
from validation.probes.controller import inventory, run_here
from validation.probes.tool import Ran, document, last_line
from validation.rules.release import release

RAN = (0, 1)
"""Exit codes of `toolkit deploy` after which its document tells of the nodes."""


@dataclass
class Asked:
    """Nothing: it is about the whole site."""


def probe(asked: Asked) -> ProbeDoc:
    """Ask what would change."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        try:
            words = [*python_words("toolkit"), "deploy", "--check", "--json", "-i", inventory()]
        except ValueError as fault:
            return Ran(["toolkit", "deploy"], 2, "", ""), {}, str(fault)
        ran = run_here(words)
        if ran.returncode not in RAN:
            return ran, {}, f"toolkit deploy --check ended with {ran.returncode}: {last_line(ran.stderr)}"
        return Ran(ran.command, 0, ran.stdout, ran.stderr), {"exit": ran.returncode}, None

    return document("converged", "toolkit deploy --check", measure, lambda ran: release())
