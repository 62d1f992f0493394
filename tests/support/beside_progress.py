"""What a command writes to stderr beside its progress, of which a line comes every 15 seconds on a slow machine."""

from __future__ import annotations

import re

_PROGRESS = re.compile(r".*, (\d+s|\d+m\d\ds|\d+h\d\dm)")
"""A line of `toolkit.working`: what is being done, and for how long."""


def beside_progress(stderr: str) -> str:
    """The lines that are no progress."""
    return "".join(line for line in stderr.splitlines(keepends=True) if not _PROGRESS.fullmatch(line.rstrip("\n")))
