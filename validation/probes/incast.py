"""Incast: several ports send to one at the same time. This end is one of the senders; see switch_load.py."""

from __future__ import annotations

from validation.probes import ProbeDoc, switch_load
from validation.probes.switch_load import Asked

__all__ = ["Asked", "probe"]


def probe(args: Asked) -> ProbeDoc:
    """Send to the one receiver."""
    return switch_load.send("incast", args)
