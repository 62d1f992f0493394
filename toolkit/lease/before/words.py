"""What the user typed, as the command line that is run: `toolkit run train.py` is `python3 train.py`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.before.imports import absent_here, certain_imports
from toolkit.lease.before.program_words import program_of

PYTHON = "python3"


def _has_head(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(2) == b"#!"
    except OSError:
        return False


def _interpreter(argv: Sequence[str]) -> str:
    """The name by which a .py file's Python is started: python3, or python where that is another Python of the user's
    PATH (of an environment that has no python3, or of a site) and it alone has what the file imports."""
    usual, other = shutil.which(PYTHON), shutil.which("python")
    if usual is None or other is None or Path(usual).parent == Path(other).parent:
        return PYTHON
    program = program_of((PYTHON, *argv))
    imports = certain_imports(program) if program else []
    return "python" if absent_here(imports, usual) and not absent_here(imports, other) else PYTHON


def program_words(argv: Sequence[str], elsewhere: bool = False) -> tuple[str, ...]:
    """The command line. A .py file is run by python3, or by python where that alone has what it imports, unless it is a
    program of its own. elsewhere: the file is not one of this machine. LeaseError where it is one and not there."""
    first, path = argv[0], Path(argv[0])
    if first == "python" and not shutil.which(first) and shutil.which(PYTHON):
        return (PYTHON, *argv[1:])  # Debian has no other
    if path.suffix != ".py":
        return tuple(argv)
    if not path.is_file():
        if shutil.which(first):
            return tuple(argv)
        if elsewhere:
            return (PYTHON, *argv)
        where = "" if path.is_absolute() else f" in {Path.cwd()}"
        raise LeaseError(f"{first}: no such file{where}; change to its folder, or give its path")
    if os.access(path, os.X_OK) and _has_head(path):
        return (first if "/" in first else f"./{first}", *argv[1:])
    return (_interpreter(argv), *argv)


def python_fault(argv: Sequence[str]) -> str:
    """Why the Python of a command line cannot run here, "" where it can."""
    if argv[0] not in (PYTHON, "python") or shutil.which(argv[0]):
        return ""
    return f"this machine has no {argv[0]} on PATH"
