"""The oldest Python that nodes may have, where this machine has it. `python -m tests.support.oldest_python` says so."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

OLDEST = (3, 9)


def oldest_python() -> str | None:
    """A Python 3.9 of this machine: a distribution's own, or one of pyenv."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [Path("/usr/libexec/platform-python"), Path("/usr/bin/python3.9"), Path("/usr/local/bin/python3.9")]
    for path in [*places, *sorted(versions.glob("3.9.*/bin/python"))]:
        say = [str(path), "-c", f"import sys; print(sys.version_info[:2] == {OLDEST})"]
        if path.exists() and subprocess.run(say, capture_output=True, text=True, check=False).stdout == "True\n":
            return str(path)
    return None


if __name__ == "__main__":
    found = oldest_python()
    print(
        f"what runs on nodes also runs on their oldest Python here: {found}"
        if found
        else "no Python 3.9 on this machine: what runs on nodes is held against it by vermin alone"
    )
