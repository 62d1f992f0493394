"""The run directory: made before anything runs, one writer at a time, every document whole or not there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.errors import UsageFault, or_nearest
from validation.base.files import replace
from validation.run.names import (
    ACCEPTED,
    BUILT,
    CRITERIA,
    FABRIC,
    INVENTORY,
    PLAN,
    PROFILE,
    PUNCH,
    REFERENCE,
    RUN,
    TOPOLOGY,
    VERDICT,
    WAIVERS,
)
from validation.signing import is_signed

if TYPE_CHECKING:  # loaded when a run is written or read, not for --help
    from pydantic import BaseModel

    from validation.judging.accepted import AcceptedRates
    from validation.model import Plan, RunInfo, Topology
    from validation.model.built import HowBuilt
    from validation.model.load import Source
    from validation.rules.fabric import LoadedFabric

SUPERSEDED = "superseded"
REPORTS = ("report.html", "report.pdf", "report.json", "junit.xml", "metrics.prom")
LOCK = ".lock"
_ROOM = "make room or choose another --runs-dir"
_PLACE = "make room, or name a place in a folder that exists"


def stamp(moment: datetime) -> str:
    """UTC, sortable, safe in a file name: 2026-11-21T10-15-00Z."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H-%M-%SZ")


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing. ConfigError when the disk refuses."""
    replace(path, text.encode(), _PLACE)


def write_document(path: Path, document: BaseModel) -> None:
    """Write a model as indented JSON, whole or not at all."""
    from validation.model.base import Model

    parts = document.written() if isinstance(document, Model) else (document.model_dump_json(indent=2), "\n")
    replace(path, (part.encode() for part in parts), _ROOM)


def create(runs_dir: Path, fabric: str, moment: datetime | None = None) -> Path:
    """A new, empty run directory, named by time (UTC) and fabric."""
    name = f"{stamp(moment or datetime.now(timezone.utc))}-{fabric}"
    for attempt in range(1, 1000):
        path = runs_dir / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as fault:
            raise UsageFault(f"{path}: cannot be made: {fault.strerror or fault}; choose another --runs-dir") from None
        return path
    raise UsageFault(f"{runs_dir / name}: cannot find a free run directory name after 1000 attempts")


@contextlib.contextmanager
def lock(run_dir: Path) -> Iterator[None]:
    """Hold the run for this process; UsageFault when another one does. The kernel lets go when the process ends."""
    try:
        fd = os.open(run_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as fault:
        raise UsageFault(f"{run_dir}: cannot be written: {fault.strerror or fault}") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 64, 0).decode(errors="replace").strip()
            raise UsageFault(
                f"{run_dir}: another toolkit validate (process {owner or '?'}) is writing this run; wait for it"
            ) from None
        with contextlib.suppress(OSError):  # only a help for whoever meets the lock; a full disk is told elsewhere
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(fd)


def copy_rules(run_dir: Path, fabric: LoadedFabric, criteria: Iterable[Source]) -> None:
    """Write fabric profile, criteria and claims, as a run keeps them, into the run, so that it stands on its own."""
    from validation.rules.reference import packaged
    from validation.run.kept import as_kept

    write_text(run_dir / FABRIC, as_kept(fabric.text))
    for folder, sources in ((CRITERIA, criteria), (REFERENCE, packaged().sources)):
        (run_dir / folder).mkdir(exist_ok=True)
        for source in sources:
            write_text(run_dir / folder / source.path.name, as_kept(source.text))


@dataclass(frozen=True)
class NewRun:
    """Everything that is asked of a run, before anything runs.

    `fabric` and `criteria` are what was planned by, `inventory` is what may be kept of the inventory, `built` how the
    site was built, `agreed` the acceptance profile and waivers, file name to text, `accepted` what it trained at when
    it was accepted.
    """

    info: RunInfo
    topology: Topology
    plan: Plan
    fabric: LoadedFabric
    criteria: Sequence[Source]
    inventory: BaseModel | None = None
    built: HowBuilt | None = None
    agreed: Mapping[str, str] = field(default_factory=dict)
    accepted: AcceptedRates | None = None


def begin(run_dir: Path, new: NewRun) -> None:
    """Write all of it. run.json comes last: with it the run can be resumed."""
    from validation.run.kept import as_kept
    from validation.run.read import tied

    for name, text in new.agreed.items():
        write_text(run_dir / name, as_kept(text))
    for name, document in ((INVENTORY, new.inventory), (BUILT, new.built), (ACCEPTED, new.accepted)):
        if document is not None:
            write_document(run_dir / name, document)
    copy_rules(run_dir, new.fabric, new.criteria)
    write_document(run_dir / TOPOLOGY, new.topology)
    write_document(run_dir / PLAN, new.plan)
    write_document(run_dir / RUN, new.info.model_copy(update={"documents": tied(run_dir)}))


def renew(run_dir: Path, info: RunInfo, names: Collection[str], why: str) -> None:
    """Write run.json with the hashes of the rules as they are now, of those in `names`, and of all criteria and claims.

    What is not named must still be what the run began with. `why` says what was replaced, where anything was.
    """
    from validation.run.read import tied

    now = tied(run_dir)
    rules = (f"{CRITERIA}/", f"{REFERENCE}/")
    fresh = {name: value for name, value in now.items() if name in names or name.startswith(rules)}
    kept = {name: value for name, value in info.documents.items() if not name.startswith(rules)}
    documents = {**kept, **fresh}
    agreed = (PROFILE, WAIVERS, PUNCH)  # not what the plan was made by
    old, new = ({k: v for k, v in d.items() if k not in agreed} for d in (info.documents, documents))
    replaced = info.replaced if old == new else why
    write_document(run_dir / RUN, info.model_copy(update={"documents": documents, "replaced": replaced}))


def asked(run_dir: Path) -> tuple[RunInfo, Topology, Plan]:
    """What a run was asked; ConfigError with file and line where a document is damaged."""
    from validation.run.read import read

    run = read(run_dir)
    return run.info, run.topology, run.plan


def runs(runs_dir: Path) -> list[Path]:
    """All runs that were begun, oldest first."""
    return sorted(p.parent for p in runs_dir.glob(f"*/{RUN}"))


def find(runs_dir: Path, run: str | None) -> Path:
    """The directory of a run given by path or name; None means the newest. UsageFault when there is none."""
    known = runs(runs_dir)
    if run is None:
        if not known:
            raise UsageFault(f"{runs_dir}: no run yet; make one with: toolkit validate --fabric tcp10")
        return known[-1]
    for path in (Path(run), runs_dir / run):
        if (path / RUN).is_file():
            return path
        if path.is_dir():
            raise UsageFault(f"{path}: no {RUN}: not a run, or killed before it began")
    newest = f"the newest is {known[-1].name}" if known else f"there is none in {runs_dir}"
    hint = or_nearest(Path(run).name, [path.name for path in known], newest, cutoff=0.9)
    raise UsageFault(f"{run}: no such run; {hint}")


def refuse_signed(run_dir: Path) -> None:
    """UsageFault when somebody has signed the run: nothing in it may change."""
    if is_signed(run_dir):
        run, copy = shlex.quote(str(run_dir)), shlex.quote(f"{run_dir}-copy")
        raise UsageFault(
            f"{run_dir}: is signed, so nothing in it may change; continue with an unsigned copy: "
            f"cp -a {run} {copy} && rm -r {copy}/signatures {copy}/MANIFEST.sha256"
        )


def remove_reports(run_dir: Path) -> None:
    """Take away what was written of an earlier verdict. UsageFault when the disk refuses."""
    for name in REPORTS:
        try:
            (run_dir / name).unlink(missing_ok=True)
        except OSError as fault:
            raise UsageFault(f"{run_dir / name}: cannot be removed: {fault.strerror or fault}") from None


def supersede(run_dir: Path, moment: datetime | None = None, agreed: Collection[str] = ()) -> Path | None:
    """Move verdict, report and the rules in force aside before judging anew; where to, None when there was nothing.

    `agreed`: which of acceptance profile and waivers go too; the others stay in force.
    """
    old = [p for name in (VERDICT, *REPORTS, FABRIC, CRITERIA, REFERENCE, *agreed) if (p := run_dir / name).exists()]
    if not (run_dir / VERDICT).exists():
        return None
    folder = run_dir / SUPERSEDED / stamp(moment or datetime.now(timezone.utc))
    number = 1
    while folder.exists():
        number += 1
        folder = folder.with_name(f"{folder.name.split('_')[0]}_{number}")
    folder.mkdir(parents=True)
    for path in old:
        path.rename(folder / path.name)
    return folder
