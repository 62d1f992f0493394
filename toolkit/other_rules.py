"""A run judged by other rules: where that is written, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit import rundir
from toolkit.errors import UsageFault
from validation.base.counting import number_of
from validation.model import VerdictDoc
from validation.run.names import RUN, VERDICT
from validation.run.other_rules import Rejudged, RuleChange, Rules, judge_otherwise, rules_of

JUDGED = "judged.json"
_SUBJECTS = 3
_CHANGES = 5


@dataclass(frozen=True)
class Made:
    """The verdict by other rules, what is different, and the folder in which both stand."""

    folder: Path
    verdict: VerdictDoc
    rejudged: Rejudged
    rules: Rules

    @property
    def other(self) -> bool:
        """Whether rules were given, and not only the run's own taken once more."""
        return bool(self.rules.sources)

    def document(self) -> dict[str, Any]:
        """For --json: judged.json and where it is."""
        return {**self.rejudged.model_dump(mode="json", by_alias=True), "folder": str(self.folder)}

    def text(self, whole: bool = True) -> str:
        """What is different, the verdicts that changed first; `whole`: all of it, and not only the first."""
        told = self.rejudged
        lines = [f"by its own rules: {told.old_sign_off}: {told.old_headline}"]
        lines += [f"rules: {words}" for words in told.rules]
        lines += [f"note: {note}" for note in told.notes]
        changes = sorted(told.changes, key=lambda c: not c.decided)
        shown = changes if whole else changes[:_CHANGES]
        for change in shown:
            lines += _told(change)
        if changes[len(shown) :]:
            rest = number_of(len(changes) - len(shown), "more criterion", "more criteria")
            lines.append(f"and {rest} that are different (--details; {self.folder / JUDGED})")
        lines.append(f"the same: {number_of(told.same, 'criterion')}")
        return "\n".join(lines) + "\n"


def _told(change: RuleChange) -> list[str]:
    verdicts = f"{change.old or 'not there'} -> {change.new or 'not there'}" if change.decided else f"{change.new}"
    lines = [f"{change.id}  {verdicts}  {change.reason}".rstrip()]
    if change.old_bound != change.new_bound:
        lines.append(f"  bound: {change.old_bound or 'none'} -> {change.new_bound or 'none'}")
    if change.old_owed != change.new_owed:
        lines.append(f"  {'owed now' if change.new_owed else 'no longer owed'}")
    for one in change.subjects[:_SUBJECTS]:
        lines.append(f"  {one.subject}: {one.old or 'not judged'} -> {one.new or 'not judged'}")
    if len(change.subjects) > _SUBJECTS:
        lines.append(f"  and {len(change.subjects) - _SUBJECTS} more")
    return lines


def make(run_dir: Path, criteria: str | None, profile: str | None, out: Path | None) -> Made:
    """Judge the run by these rules and write verdict, rules and differences into `out` (None: a new folder beside it).

    ConfigError for a damaged run or rules that cannot be used; UsageFault for a place inside a run, and where the disk
    refuses.
    """
    if out is not None:
        _refuse_inside(out, run_dir)
    rules = rules_of(run_dir, criteria, profile)
    verdict, rejudged = judge_otherwise(run_dir, rules)
    folder = out or _free(run_dir)
    try:
        for source in rules.sources:
            (folder / source.path).parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise UsageFault(f"{folder}: cannot be made: {fault.strerror or fault}; give another place: --out") from None
    for source in rules.sources:
        rundir.write_text(folder / source.path, source.text)
    rundir.write_document(folder / VERDICT, verdict)
    rundir.write_text(folder / JUDGED, rejudged.model_dump_json(indent=2, by_alias=True) + "\n")
    return Made(folder, verdict, rejudged, rules)


def _refuse_inside(out: Path, run_dir: Path) -> None:
    """A verdict by other rules must never lie where the run's own does."""
    place = out.resolve()
    for folder in (place, *place.parents):
        if (folder / RUN).exists():
            raise UsageFault(f"{out}: is inside the run {folder.name}; a run keeps its own verdict: give another --out")
    if place in run_dir.resolve().parents:
        raise UsageFault(f"{out}: the run {run_dir.name} lies in it; give a folder of its own")


def _free(run_dir: Path) -> Path:
    base = run_dir.resolve().with_name(f"{run_dir.resolve().name}-judged")
    number = 1
    while (folder := base if number == 1 else base.with_name(f"{base.name}-{number}")).exists():
        number += 1
    return folder
