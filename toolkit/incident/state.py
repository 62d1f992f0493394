"""Incidents of a site, kept beside its deployments: a command that was killed goes on where it was."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from toolkit.deploy.site_state import SiteState
from toolkit.errors import UsageFault
from toolkit.incident.faults import Fault, Seen
from toolkit.incident.steps import Step
from validation.base import bounded


def now() -> str:
    """ISO 8601 in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def since(time: str) -> float:
    """Seconds from such a time until now."""
    return (datetime.now(timezone.utc) - datetime.fromisoformat(time)).total_seconds()


class Incident(BaseModel):
    """One of a node. `step`: begun last; `why`: for what it waits, or how it ended; `file`: for support;
    `again`: it was mended less than a day before, and what comes back is left to a person."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    began: str
    faults: tuple[Fault, ...]
    step: Step = "drain"
    why: str = ""
    file: str = ""
    run: str = ""
    mended_by: str = ""
    again: bool = False

    @property
    def open(self) -> bool:
        """Whether something is left to do by itself."""
        return self.step not in ("waits", "done")


class Kept:
    """The folder of a site's incidents: a file for each node, and a log."""

    def __init__(self, inventory: Path) -> None:
        """`inventory`: the site's."""
        self.folder = SiteState(inventory).folder / "incidents"

    def read(self, node: str) -> Incident | None:
        """The last of a node. UsageFault for a file that cannot be read."""
        path = self.folder / f"{node}.json"
        if not path.exists():
            return None
        try:
            return Incident.model_validate_json(bounded.read_file(path))
        except (ValidationError, ValueError, OSError, bounded.TooMuch) as fault:
            raise UsageFault(
                f"{path}: cannot be read ({str(fault).splitlines()[0]}); look at it and remove it"
            ) from None

    def write(self, found: Incident) -> Incident:
        """Keep it, and a line in the log."""
        self._written(f"{found.node}.json", found.model_dump_json())
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as log:
            words = {"time": now(), "node": found.node, "step": found.step, "why": found.why or found.faults[0].words}
            log.write(json.dumps(words) + "\n")
            log.flush()
            os.fsync(log.fileno())
        return found

    def seen(self) -> dict[str, Seen]:
        """What is remembered of all nodes; nothing where it cannot be read, as at a first look."""
        with contextlib.suppress(OSError, ValueError, ValidationError):
            said = json.loads((self.folder / "seen.json").read_text("utf-8"))
            return {name: Seen.model_validate(one) for name, one in said.items()}
        return {}

    def remember(self, seen: dict[str, Seen]) -> None:
        """For the next look."""
        self._written("seen.json", json.dumps({name: one.model_dump() for name, one in seen.items()}))

    def _written(self, name: str, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / f".{name}.new"
        new.write_text(text, encoding="utf-8")
        new.replace(self.folder / name)

    @contextlib.contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """For this process alone: the watch, or one node. UsageFault while another has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f".{what}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageFault(f"another command is at work on {what}; wait for its end") from None
            yield
