"""Each server's last validation, from the runs on the head (role monitoring, `monitoring_revalidate`)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_RUNS = 50
MOST_BYTES = 64 << 20
NAME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9-]{8}Z[\w.-]{0,60}", re.ASCII)


@dataclass(frozen=True)
class Validated:
    """A server in its last run. begun: as in the run's name. report: whether report.html is there."""

    server: str
    run: str
    begun: str
    sign_off: str
    headline: str
    report: bool


def _document(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            return {}
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _names(topology: dict[str, Any]) -> Iterable[str]:
    nodes = topology.get("nodes")
    rows = nodes if isinstance(nodes, list) else []
    return [str(row["name"]) for row in rows if isinstance(row, dict) and isinstance(row.get("name"), str)]


def last_validations(runs: Path) -> tuple[Validated, ...]:
    """The newest run of each server, by name of server. Blocks."""
    try:
        folders = sorted((path for path in runs.iterdir() if NAME.fullmatch(path.name)), reverse=True)[:MOST_RUNS]
    except OSError:
        return ()
    found: dict[str, Validated] = {}
    for folder in folders:
        verdict = _document(folder / "verdict.json")
        if not isinstance(verdict.get("sign_off"), str):
            continue
        begun = f"{folder.name[:10]} {folder.name[11:16].replace('-', ':')} UTC"
        words = (str(verdict["sign_off"]), str(verdict.get("headline", "")))
        report = os.path.isfile(folder / "report.html")  # noqa: PTH113 - Path.is_file raises where it is denied
        for name in _names(_document(folder / "topology.json")):
            found.setdefault(name, Validated(name, folder.name, begun, *words, report))
    return tuple(found[name] for name in sorted(found))


def report_of(runs: Path, name: str) -> bytes | None:
    """The report of a run; None where there is none. Blocks."""
    if not NAME.fullmatch(name):
        return None
    try:
        return (runs / name / "report.html").read_bytes()
    except OSError:
        return None
