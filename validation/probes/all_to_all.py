"""All to all: every port of a group sends to every other at the same time. This end sends; see switch_load.py."""

from __future__ import annotations

from validation.probes import ProbeDoc, switch_load
from validation.probes.switch_load import Asked

__all__ = ["Asked", "probe"]


def probe(args: Asked) -> ProbeDoc:
    """Send to all the others."""
    return switch_load.send("all-to-all", args)
