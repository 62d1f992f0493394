"""Running the tools that a mirror is made with."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.loudness import ran as shown
from validation.base import bounded

MOST = 512 << 20
ENGLISH = {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}
"""For tools whose words are read."""
#: What apt, dnf, gpg and curl print where the clock of the machine is wrong (their sources).
CLOCK = re.compile(
    r"(?i)is not valid yet|release file for .* is expired|certificate is not yet valid|certificate has expired"
    r"|not (?:yet )?activated|created .* in the future"
)
#: And where a disk is full.
FULL = re.compile(r"(?i)no space left on device|not enough free space|don't have enough free space|disk quota exceeded")


class ToolFault(UsageFault):
    """A tool failed; its last words are in the sentence. clock: for the time that a machine has, which no second try
    mends."""

    clock = False


def run(
    words: Sequence[str], *, package: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """What a tool prints on stdout. ToolFault with its last lines where it fails. package: what brings it."""
    shown(words)
    place = {**os.environ, "LC_ALL": "C", "LANGUAGE": "", **(env or {})}
    try:
        done = bounded.run(words, most=MOST, env=place, cwd=str(cwd) if cwd else None)
    except FileNotFoundError:
        raise UsageFault(f"{words[0]} is not installed; install {package or words[0]}") from None
    if done.returncode != 0:
        fault = ToolFault(explained(words[0], done))
        fault.clock = CLOCK.search((done.stderr + done.stdout).decode("utf-8", "replace")) is not None
        raise fault
    return done.stdout.decode("utf-8", "replace")


def explained(tool: str, done: subprocess.CompletedProcess[bytes]) -> str:
    """Why a tool failed, in a sentence that says what to do where that is known."""
    said = (done.stderr + b"\n" + done.stdout).decode("utf-8", "replace")
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"(E|Err|Error|error)\b", line)] or lines[-3:]
    words = "; ".join(dict.fromkeys(told[:6])) or f"exit status {done.returncode}"
    if CLOCK.search(said):
        return f"{clock_words()}: {tool}: {words}"
    if FULL.search(said):
        return f"the disk is full: {tool}: {words}"
    return f"{tool} failed: {words}"


def clock_words() -> str:
    """That the clock may be wrong, with what it shows."""
    from datetime import datetime, timezone

    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return f"the clock of this machine is wrong, or that of a server (here it is {now}); set it (chronyd, date -s)"
