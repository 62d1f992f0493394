"""Incast: several ports send to one at the same time. This end is one of the senders; see switch_load.py."""

from __future__ import annotations

from validation.measures.fabric import switch_load_probe
from validation.measures.fabric.switch_load_probe import Asked
from validation.probes import ProbeDoc

__all__ = ["Asked", "probe"]


def probe(args: Asked) -> ProbeDoc:
    """Send to the one receiver."""
    return switch_load_probe.send("incast", args)
