"""Incidents of a site, kept beside its deployments: a command that was killed goes on where it was."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from toolkit.deploy.site_state import SiteState
from toolkit.errors import UsageFault
from toolkit.incident.faults import Fault, Seen, reason_of
from toolkit.incident.steps import Step
from toolkit.node.drain import IncidentDrain
from validation.base import bounded, files


def now() -> str:
    """ISO 8601 in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def since(time: str) -> float:
    """Seconds from such a time until now."""
    return (datetime.now(timezone.utc) - datetime.fromisoformat(time)).total_seconds()


class Incident(BaseModel):
    """One of a node. `step`: begun last; `why`: for what it waits, or how it ended; `file`: for support;
    `again`: it was mended less than a day before, and what comes back is left to a person; `drained`: Slurm has taken
    the drain, so that who resumes the node from then on is a person; `ended`: when it was done."""

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
    drained: bool = False
    ended: str = ""

    @property
    def reason(self) -> str:
        """With which Slurm holds the node."""
        return IncidentDrain(reason_of(self.faults)).text

    @property
    def open(self) -> bool:
        """Whether something is left to do by itself."""
        return self.step not in ("waits", "done")


_SEEN = TypeAdapter(dict[str, Seen])


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

    def set_aside(self, node: str) -> Path:
        """A file that cannot be read gets another name, for a person."""
        return (self.folder / f"{node}.json").replace(self.folder / f"{node}.json.unreadable")

    def seen(self, say: Callable[[str], None]) -> dict[str, Seen]:
        """What is remembered of all nodes; nothing where it cannot be read, as at a first look."""
        path = self.folder / "seen.json"
        if not path.exists():
            return {}
        try:
            return _SEEN.validate_json(bounded.read_file(path))
        except (OSError, ValueError, bounded.TooMuch):
            say(f"{path}: cannot be read; what is in the kernel logs already is left alone, as at a first look")
            return {}

    def remember(self, seen: dict[str, Seen]) -> None:
        """For the next look."""
        self._written("seen.json", json.dumps({name: one.model_dump() for name, one in seen.items()}))

    def _written(self, name: str, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        files.replace(self.folder / name, text.encode())

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

    @contextlib.contextmanager
    def draining(self) -> Iterator[None]:
        """Between the count of who is out of service and one more drain, no other process of this site drains."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".drain.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
