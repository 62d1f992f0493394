"""Running the machine's own tools, as the lab does."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from toolkit.errors import LabError
from validation.base import bounded


def run(args: Sequence[str], *, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command and return it finished, with its output as text.

    Raises LabError with the command and the last lines of its stderr when it exits non-zero and `check` holds.
    """
    try:
        ran = bounded.run(args, stdin=(stdin or "").encode())
    except FileNotFoundError as e:
        raise LabError(f"{args[0]} is not installed; 'toolkit lab up' lists the packages it needs") from e
    except bounded.TooMuch as e:
        raise LabError(str(e)) from None
    out, err = (said.decode("utf-8", "backslashreplace") for said in (ran.stdout, ran.stderr))
    done = subprocess.CompletedProcess(list(args), ran.returncode, out, err)
    if check and done.returncode != 0:
        tail = "; ".join(done.stderr.strip().splitlines()[-3:]) or f"exit {done.returncode}"
        raise LabError(f"'{' '.join(args)}' failed: {tail}")
    return done


def run_telling(args: Sequence[str], say: Callable[[str], None]) -> None:
    """Run a long command and pass on what it tells about its progress (stderr lines that start with "I:").

    Raises LabError with the command's last lines when it exits non-zero.
    """
    last: list[str] = []
    with subprocess.Popen(list(args), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            last = [*last[-2:], line.strip()]
            if line.startswith("I: "):
                say(f"  {line[3:].strip()}")
    if process.returncode != 0:
        raise LabError(f"'{' '.join(args)}' failed: {'; '.join(last)}")
