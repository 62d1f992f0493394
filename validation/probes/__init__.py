"""Probes: programs that run ON a node, take one measurement each and print one JSON document.

They need Python 3.9 and its standard library, nothing else, so that a node carries no more than it must. A probe
wraps the field's standard tool, checks that the tool really did what was asked (several of them exit 0 whatever
happened) and hands its untouched output to the parsers, which run on the controller.

    python -m validation.probes NAME PARAMETERS

What the parsers find in the `stdout` and `facts` of each, its module says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

PROGRAM_FOLDER = Path(__file__).resolve().parent
"""Where programs stand that probes start by their path."""


class ProbeDoc(TypedDict):
    """What a probe prints. Times are ISO 8601 in UTC; `error` None means that the tool did what was asked."""

    kind: str
    tool: str
    tool_version: str
    command: list[str]
    returncode: int
    stdout: str
    stderr: str
    facts: dict[str, Any]
    started: str
    ended: str
    duration_s: float
    error: str | None
