"""Running the machine's own tools, and the one error that the lab raises."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


class LabError(Exception):
    """The lab cannot do what was asked; the text is one sentence that says what to do."""


def run(args: Sequence[str], *, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command and return it finished, with its output as text.

    Raises LabError with the command and the last lines of its stderr when it exits non-zero and `check` holds.
    """
    try:
        done = subprocess.run(list(args), input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError as e:
        raise LabError(f"{args[0]} is not installed; 'toolkit lab up' lists the packages it needs") from e
    if check and done.returncode != 0:
        tail = "; ".join(done.stderr.strip().splitlines()[-3:]) or f"exit {done.returncode}"
        raise LabError(f"'{' '.join(args)}' failed: {tail}")
    return done
