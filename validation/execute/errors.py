"""Faults that stop a run, as opposed to those that cost one measurement."""

from __future__ import annotations


class RunError(Exception):
    """The run cannot go on (disk full, run directory gone). `str(e)` is one line: what, where, what to do."""
