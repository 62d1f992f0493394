"""Runs the checks of `bin/test`, and says how each of them ended. `bin/test` has prepared the machine before."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.suite.checks import Check, checks
from tools.suite.lanes import Ended, Lanes, clock
from tools.suite.wanted import ROOT, Wanted, WantedError, wanted

MEMORY = Path("/dev/shm")  # noqa: S108 - memory, which is what is wanted
ROOM_BYTES = 4_000_000_000
TAIL = 40  # lines of a check that failed
PREPARED = "ELASTIC_AI_PREPARED_S"
"""Seconds that bin/test took before this."""


def say(line: str) -> None:
    """A line of output, at once."""
    print(line, flush=True)


@contextmanager
def memory() -> Iterator[str | None]:
    """A folder in memory where programs may run and there is room, else None.

    What tests keep is flushed to the disk, 3 ms for each file; in memory it is not.
    """
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="eai-test.", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        program = Path(shutil.copy(str(shutil.which("true")), folder))
        try:
            subprocess.run([program], check=True)
        except OSError:
            yield None
            return
        yield folder


def summary(asked: Wanted, ended: Sequence[Ended], prepared_s: float, together_s: float) -> bool:
    """Says how the checks ended; True where all passed."""
    failed = [one for one in ended if one.exit_code]
    texts = {one.check.name: one.log.read_text(encoding="utf-8", errors="replace").splitlines() for one in ended}
    for one in failed:
        say(f"\n== the last lines of what failed: {one.check.name}")
        say("\n".join(texts[one.check.name][-TAIL:]))
    skipped = [line for lines in texts.values() for line in lines if line.startswith("SKIPPED")]
    if skipped:
        say("\n== skipped, for what this machine is")
        say("\n".join(skipped))
    if not asked.rest:
        say("\n== not run here, but by bin/test --all   (docs/testing.md)")
        say("\n".join(left_out()))
    say("\n== all checks, minutes:seconds, and those of a processor")
    say(f"{clock(prepared_s)}        preparing this machine")
    for one in ended:
        say(f"{clock(one.took_s):<5} {clock(one.busy_s):>5}  {one.check.name}")
    say(f"{clock(together_s)}        together")
    if failed:
        say("\n".join(f"failed: {one.check.name}" for one in failed))
    say(f"total: {len(ended) - len(failed)} passed, {len(failed)} failed")
    return not failed


def left_out() -> list[str]:
    """The table of what only `bin/test --all` runs."""
    text = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    found = re.search(r"^## Left to.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return [line for line in found[0].splitlines() if line.startswith("|")] if found else []


def run(asked: Wanted, chosen: Sequence[Check], prepared_s: float) -> int:
    """The exit code of all checks: 0 where all passed, 1 where one failed, 130 after an interrupt."""
    began = time.monotonic() - prepared_s
    try:
        with tempfile.TemporaryDirectory() as logs:
            lanes = Lanes(Path(logs), began, say)
            for number in (signal.SIGINT, signal.SIGTERM):  # even where it was started with them ignored
                signal.signal(number, lanes.stop)
            ended = lanes.run(chosen)
            return 0 if summary(asked, ended, prepared_s, time.monotonic() - began) else 1
    except KeyboardInterrupt:
        return 130


def main(arguments: Sequence[str]) -> int:
    """`--parts` first: only the names of the parts, or why there are none."""
    only = bool(arguments) and arguments[0] == "--parts"
    try:
        asked = wanted(arguments[1:] if only else arguments)
        if only:
            say(" ".join(asked.parts))
            return 0
        with memory() as folder:
            prepared = float(os.environ.get(PREPARED, "0"))
            say(f"\n== parts: {' '.join(asked.parts)}   (preparing this machine took {clock(prepared)})")
            return run(asked, checks(asked, folder), prepared)
    except WantedError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
