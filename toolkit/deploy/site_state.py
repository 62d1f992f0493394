"""What is kept of a site's deployments on this machine: logs, a record, how long the steps took, and a lock.

It lies under $XDG_STATE_HOME (~/.local/state), one folder for each inventory, so that it is found from any folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict, ValidationError

from toolkit.errors import UsageFault
from toolkit.lab.standing import standing_inventory
from toolkit.lab_inventory import listed_lab
from validation.base import bounded
from validation.base.files import users_folder
from validation.model import Topology
from validation.model.built import Deployment, HowBuilt

DEPLOYMENT, ROTATION = "deployment", "rotation (toolkit rotate)"
"""Who has a site to itself; the two exclude each other, since a deployment places keys that a rotation exchanges."""
_KEPT_LOGS = 20
_SURE = 0.1  # share of an earlier run from which on this one's pace says something of the rest
_KEPT_BUILT = 200  # deployments that a run takes over from the record


class SiteBusy(UsageFault):
    """Another deployment of the site is running."""


class SiteUnkept(UsageFault):
    """What is kept of a deployment on this machine cannot be written."""


class Step(BaseModel):
    """A task of an earlier run, and the second at which it began."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    began_s: float


class LastRun(BaseModel):
    """An earlier run from beginning to end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    total_s: float
    steps: tuple[Step, ...]


class SiteState:
    """The folder of one site."""

    def __init__(self, inventory: Path) -> None:
        """`inventory` is the site's; its resolved path is what tells sites apart."""
        base = users_folder("XDG_STATE_HOME", ".local/state")
        path = inventory.resolve()
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem or "site")
        digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
        self.folder = base / "elastic-ai-toolkit" / "deploy" / f"{name}-{digest}"

    def _last(self, check: bool, command: str) -> Path:
        kind = "" if command == "deploy" else f"{command}-"
        return self.folder / f"last-{kind}{'check' if check else 'run'}.json"

    def read_last(self, check: bool, command: str = "deploy") -> LastRun | None:
        """The last run of this kind that went through; None when there was none, or its record is damaged."""
        with contextlib.suppress(bounded.TooMuch, OSError, ValidationError, ValueError):
            return LastRun.model_validate_json(bounded.read_file(self._last(check, command)))
        return None

    def write_last(self, check: bool, run: LastRun, command: str = "deploy") -> None:
        """Keep a run for the next one's estimate."""
        path = self._last(check, command)
        temporary = path.with_suffix(".new")
        temporary.write_text(run.model_dump_json(), encoding="utf-8")
        temporary.replace(path)

    def new_log(self) -> Path:
        """A log file that is not there yet; the oldest beyond the last twenty go."""
        logs = sorted(self.folder.glob("*.log"))
        for old in logs[: max(0, len(logs) - _KEPT_LOGS + 1)]:
            old.unlink(missing_ok=True)
        stamp = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H-%M-%SZ")
        path, number = self.folder / f"{stamp}.log", 1
        while path.exists():
            number += 1
            path = self.folder / f"{stamp}-{number}.log"
        return path

    def write_built(self, done: Deployment) -> None:
        """Add a deployment to the site's record. A disk that refuses is the operator's to know: OSError."""
        with self._built.open("ab") as handle:
            handle.write(done.model_dump_json().encode() + b"\n")

    def read_built(self, since: str = "") -> HowBuilt:
        """The site's record, the latest of it; lines that cannot be read are left out and counted.

        `since`: only what began after that moment, ISO 8601 in UTC.
        """
        try:
            lines = bounded.read_file(self._built).splitlines()
        except OSError:
            return HowBuilt()
        found, left_out = [], 0
        for line in lines:
            try:
                found.append(Deployment.model_validate_json(line, strict=True))
            except ValidationError:
                left_out += 1  # of another release, or torn
        mine = [done for done in found if done.began >= since]
        return HowBuilt(deployments=tuple(mine[-_KEPT_BUILT:]), left_out=left_out + max(0, len(mine) - _KEPT_BUILT))

    @property
    def room(self) -> Path:
        """Where ansible-runner works while the site is locked; what a run that was killed left there goes with it."""
        return self.folder / "running"

    @property
    def _built(self) -> Path:
        return self.folder / "built.jsonl"

    @contextlib.contextmanager
    def locked(self, by: str = DEPLOYMENT) -> Iterator[None]:
        """One deployment or rotation of a site at a time. SiteBusy while another one runs; SiteUnkept when the folder
        cannot be made, or the disk refuses in between. `by`: what others are refused with."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = (self.folder / "lock").open("a+")
        except OSError as fault:
            raise SiteUnkept(
                f"cannot keep the log: {fault}; set XDG_STATE_HOME to a folder that can be written"
            ) from None
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SiteBusy(self._held(handle, by)) from None
            with contextlib.suppress(OSError):  # a full disk: others are refused all the same
                handle.truncate(0)
                handle.write(by)
                handle.flush()
            try:
                yield
            except BrokenPipeError:  # of who reads what is printed
                raise
            except OSError as fault:
                raise SiteUnkept(
                    f"{fault.filename or self.folder}: {fault.strerror or fault}; the {by} has stopped there: "
                    "put that right on this machine, such as room on its disk, and give the same command again"
                ) from fault

    def _held(self, handle: IO[str], by: str) -> str:
        handle.seek(0)
        holder = ROTATION if handle.read(len(ROTATION)) == ROTATION else DEPLOYMENT
        then = f"its log is in {self.folder}" if holder == DEPLOYMENT else "wait for its end"
        return f"{'another' if holder == by else 'a'} {holder} of this site is running; {then}"


def how_built(inventory: Path, topology: Topology) -> HowBuilt:
    """The record of a site. Labs come and go at one place: of a lab only what came after its inventory was written."""
    since, lab = "", listed_lab(inventory)
    if lab is not None or topology.lab_link is not None:
        hosts = standing_inventory(lab) if lab is not None else inventory
        hosts = hosts / "hosts.yml" if hosts.is_dir() else hosts
        since = datetime.fromtimestamp(hosts.stat().st_mtime, timezone.utc).isoformat(timespec="milliseconds")
    return SiteState(inventory).read_built(since)


class Estimate:
    """Seconds that are left, from an earlier run's steps, corrected by how fast this run is."""

    def __init__(self, last: LastRun | None) -> None:
        """`last` is None on a site's first run; then nothing is known."""
        self._last = last
        self._times: dict[str, list[float]] = {}
        for step in last.steps if last else ():
            self._times.setdefault(step.name, []).append(step.began_s)
        self.steps: list[Step] = []
        self._then = 0.0
        self._began = 0.0

    def begin(self, name: str, at_s: float) -> None:
        """A step begins, so many seconds after the run's beginning."""
        self.steps.append(Step(name=name, began_s=round(at_s, 2)))
        times = self._times.get(name)
        if times:
            self._then, self._began = max(times.pop(0), self._then), at_s

    def left_s(self, now_s: float) -> float | None:
        """Seconds left; None when no earlier run tells, or a task takes longer than all that was left then."""
        if self._last is None:
            return None
        # In the beginning the ratio is noise.
        sure = self._then >= max(5.0, _SURE * self._last.total_s)
        factor = self._began / self._then if sure else 1.0
        left_s = (self._last.total_s - self._then) * factor - (now_s - self._began)
        return left_s if left_s > 0 else None
