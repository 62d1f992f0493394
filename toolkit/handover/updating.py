"""A run is brought into the punch list of its site, and the list into the run while nobody has signed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from toolkit import acceptance, rundir
from toolkit.errors import UsageFault
from toolkit.handover import punch_file
from toolkit.handover.points import Updated, updated
from validation.model import RunInfo, VerdictDoc
from validation.model.load import ConfigError, read_source
from validation.model.points import PointState
from validation.report.formats import FILES
from validation.run.catalogue import load_criteria
from validation.run.kept import as_kept
from validation.run.names import PUNCH
from validation.run.read import read
from validation.signing import is_signed
from validation.verdict.punch import follow


@dataclass(frozen=True)
class Done:
    """`kept`: why each point that is still open is. `taken`: the list is in the run now."""

    path: Path
    run: str
    made: Updated
    kept: dict[str, str]
    taken: bool
    words: str


def update_list(
    runs_dir: Path, run: str | None, inventory: Path | None, owner: str | None, due: date | None,
    now: Callable[[str], None],
) -> Done:  # fmt: skip
    """Update the list by a run, and take it into the run. UsageFault and ConfigError where nothing was written."""
    run_dir = rundir.find(runs_dir, run)
    read_ = read(run_dir)
    info = read_.info
    if inventory is None and not info.inventory:
        raise UsageFault(f"{run_dir}: was measured by no inventory; name the site's with -i")
    path = punch_file.file_of(inventory or Path(info.inventory))
    site = path.parent.resolve().name
    if site != info.site:
        raise UsageFault(
            f"{run_dir}: is of site {info.site}, and {path} is the list of site {site}; nothing was written"
        )
    if info.day is None:
        raise UsageFault(f"{run_dir}: nothing says on which day it was made; no point can be dated by it")
    if due is not None and due < info.day:
        raise UsageFault(f"--due: {due} is before the day of the run ({info.day})")
    with rundir.lock(run_dir):
        verdict = _verdict(run_dir, now)
        points = punch_file.points_of(path, [c.id for c in load_criteria()], punch_file.latest_day())
        made = updated(points, verdict, info, owner, due)
        if made is None:
            raise UsageFault("the run found something that is on no list yet; name who is to do it with --owner NAME")
        if made.points:
            punch_file.write(path, made.points)
        kept = {p.id: p.why for p in _states(made, verdict, info) if p.state == "open"}
        if is_signed(run_dir):
            words = f"{run_dir}: is signed, so the list is not taken into it; the next run takes it"
            return Done(path, info.run, made, kept, False, words)
        if path.exists():
            now("taking the list into the run")
            _take(run_dir, path)
    return Done(path, info.run, made, kept, True, f"{run_dir}: has the list, in verdict and report")


def _verdict(run_dir: Path, now: Callable[[str], None]) -> VerdictDoc:
    if not (run_dir / "verdict.json").exists():
        raise ConfigError(f"{run_dir}: was not judged yet; run: toolkit validate --resume {run_dir}")
    now("judging the run again")
    return acceptance.standing(run_dir)


def _states(made: Updated, verdict: VerdictDoc, info: RunInfo) -> tuple[PointState, ...]:
    judged = {one.id: one.judgements for one in verdict.criteria}
    return follow(made.points, judged, verdict.run, info.day, info.part)


def _take(run_dir: Path, path: Path) -> None:
    """The list in place of the run's, and verdict and those reports that are there once more."""
    info = read(run_dir).info
    rundir.write_text(run_dir / PUNCH, as_kept(read_source(path).text))
    rundir.renew(run_dir, info, (PUNCH,), "")
    run = read(run_dir)
    acceptance.judge_run(run)
    acceptance.write_report(run, [name for name, file in FILES.items() if (run_dir / file).exists()])
