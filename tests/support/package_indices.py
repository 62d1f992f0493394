"""What vendors' and distributions' repositories have, as recorded in tests/data/indices/<repository>-<system>.txt.

One package a line: `name version  # public source`. A test of a role asks here for every name in its per-system tables:
the systems that no lab can run are right by these records or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data" / "indices"
LINE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9+._-]*) (?P<version>\S+)  # (?P<source>\S.{4,})")


def read_index(path: Path) -> dict[str, list[str]]:
    """Recorded versions by name; ValueError with file and line for a line of another form."""
    found: dict[str, list[str]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{path.name}:{number}: not of the form 'name version  # source'")
        found.setdefault(match["name"], []).append(match["version"])
    return found


def index(repository: str, system: str) -> dict[str, list[str]]:
    """Recorded versions by name of one repository on one system."""
    return read_index(FOLDER / f"{repository}-{system}.txt")


def unrecorded(repository: str, system: str, names: Iterable[str]) -> list[str]:
    """Names that no record of the repository has."""
    known = index(repository, system)
    return sorted(name for name in set(names) if name not in known)
