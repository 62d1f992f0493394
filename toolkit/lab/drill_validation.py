"""One validation of a drill: a command in a session of its own, whose end is waited for, and its verdict."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from toolkit.errors import LabError
from toolkit.exits import Exit
from toolkit.interruption import interrupted_afterwards
from toolkit.lab.drill import Refused, newest
from validation.model import VerdictDoc

LIMIT_S = 3600
"""A validation that takes longer than this is ended, and its faults count as not found."""
END_S = 60
"""What an interrupted validation may take to take its servers off the nodes."""
LOOK_S = 0.5


def run(command: list[str], folder: Path, begun: Callable[[], None] | None = None) -> VerdictDoc:
    """The verdict of a validation by that command; LabError where it came to none. `begun` is called when the first
    results are there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log, until = folder / "validate.log", time.monotonic() + LIMIT_S
    with log.open("wb") as told, contextlib.ExitStack() as ending:
        with interrupted_afterwards():
            # of a session of its own: Ctrl-C reaches it by us alone, once
            child = subprocess.Popen(
                command, stdout=told, stderr=told, stdin=subprocess.DEVNULL, start_new_session=True
            )
            ending.callback(_end, child)
        while child.poll() is None:
            if begun is not None and any(path.stat().st_size for path in folder.glob("*/results.jsonl")):
                begun()
                begun = None
            if time.monotonic() > until:
                raise LabError(f"no end after {LIMIT_S} s")
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(LOOK_S)
    if child.returncode not in (Exit.OK, Exit.FAILED, Exit.INCOMPLETE):
        words = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        said = f"toolkit validate ended with {child.returncode}: {words[-1] if words else 'nothing said'}"
        raise Refused(said, words) if child.returncode == Exit.USAGE else LabError(said)
    return newest(folder)


def _end(child: subprocess.Popen[bytes]) -> None:
    """A validation that still runs is interrupted, as by Ctrl-C, and killed where it does not end."""
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGINT)
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
