"""What `toolkit runs` lists: each run of a folder, with its outcome and who signed it, read from its small facts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from toolkit import rundir
from toolkit.verdict_lines import state_words
from validation.base import bounded
from validation.base.errors import ToolkitError
from validation.run.names import RUN, VERDICT
from validation.run.read import read
from validation.signing import SIGNATURES
from validation.signing.statement import read_statement

NOT_JUDGED = "not judged"
DAMAGED = "damaged"


@dataclass(frozen=True)
class Row:
    """A run. `sign_off` and `outcome` are None where it was not judged; `fault`: why it cannot be read, one line.

    `signed`: the names that the statements of its signatures give; nothing of them is checked here.
    """

    run: str
    folder: Path
    created: str | None = None
    site: str | None = None
    fabric: str | None = None
    sign_off: str | None = None
    outcome: str | None = None
    failed: tuple[str, ...] = ()
    signed: tuple[str, ...] = ()
    fault: str | None = None

    @property
    def said(self) -> str:
        """The outcome for a terminal."""
        if self.fault is not None:
            return DAMAGED
        if self.sign_off is None:
            return NOT_JUDGED
        failed = f" ({', '.join(self.failed[:3])}{', ...' if len(self.failed) > 3 else ''})" if self.failed else ""
        return f"{state_words(self.sign_off, str(self.outcome))}{failed}"


def rows(runs_dir: Path) -> list[Row]:
    """All runs of the folder, the newest first. A damaged one is a row that says so."""
    return [row(folder) for folder in reversed(rundir.runs(runs_dir))]


def row(folder: Path) -> Row:
    """A run; one that is damaged says so."""
    try:
        info = read(folder).info
        verdict = _verdict(folder / VERDICT)
        signed = tuple(_signers(folder / SIGNATURES))
        created = _utc(info.created, folder / RUN)
    except RecursionError:
        return Row(folder.name, folder, fault=f"{folder / VERDICT}: is nested too deeply")
    except (ToolkitError, OSError, ValueError) as fault:
        return Row(folder.name, folder, fault=" ".join(str(fault).split()))
    failed = tuple(str(c["id"]) for c in verdict.get("criteria", ()) if c.get("verdict") == "fail")
    return Row(
        run=folder.name,
        folder=folder,
        created=created,
        site=info.site,
        fabric=info.fabric,
        sign_off=verdict.get("sign_off"),
        outcome=verdict.get("outcome"),
        failed=failed,
        signed=signed,
    )


def _verdict(path: Path) -> dict[str, Any]:
    """verdict.json, of which no more is asked than what is listed; empty where the run was not judged."""
    if not path.exists():
        return {}
    found = json.loads(_regular(path), parse_int=float)  # Python's own int refuses thousands of digits
    criteria = found.get("criteria") if isinstance(found, dict) else None
    whole = isinstance(criteria, list) and all(isinstance(c, dict) and "id" in c for c in criteria)
    if not whole or not all(isinstance(found.get(key), str) for key in ("sign_off", "outcome")):
        raise ValueError(f"{path}: is no verdict; toolkit report says what is wrong with it")
    return dict(found)


def _utc(text: str, path: Path) -> str:
    """A time of a document, in UTC; ValueError where it is none."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{path}: created: {text[:40]!r} is no time") from None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).astimezone(timezone.utc).isoformat()


def _regular(path: Path) -> bytes:
    """A file's content; ValueError for what is none: to read a pipe would never end."""
    if not path.is_file():
        raise ValueError(f"{path}: is no file")
    return bounded.read_file(path)


def _signers(folder: Path) -> list[str]:
    names = []
    for signature in sorted(folder.glob("*.sig")):
        path = signature.with_suffix("")
        try:
            names.append(read_statement(_regular(path).decode(), str(path)).name)
        except (ToolkitError, OSError, ValueError):
            names.append(f"{path.name} (unreadable)")
    return names
