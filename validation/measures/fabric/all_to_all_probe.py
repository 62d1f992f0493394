"""All to all: every port of a group sends to every other at the same time. This end sends; see switch_load.py."""

from __future__ import annotations

from validation.measures.fabric import switch_load_probe
from validation.measures.fabric.switch_load_probe import Asked
from validation.probes import ProbeDoc

__all__ = ["Asked", "probe"]


def probe(args: Asked) -> ProbeDoc:
    """Send to all the others."""
    return switch_load_probe.send("all-to-all", args)
