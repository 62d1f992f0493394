"""Whether the documents of a run belong together. A contradiction between them ends the judging."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import yaml

from validation.model import Plan, RunInfo, Topology
from validation.model.load import ConfigError, line_of
from validation.model.times import CLOCK_S
from validation.plan import suites
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric

NEEDED = ("topology.json", "plan.json", "fabric.yml")
CRITERIA, REFERENCE = "criteria/", "reference/"


@dataclass(frozen=True)
class Conflict:
    """Where a document contradicts another: its name, the place in it, what is wrong and what to do."""

    file: str
    place: tuple[int | str, ...]
    words: str

    def told(self, folder: Path) -> str:
        """The same with the path and the line in the run directory."""
        path = folder / self.file
        if not self.place:
            return f"{path}: {self.words}"
        try:
            line = line_of(path, *self.place)
        except (ConfigError, yaml.YAMLError):
            line = 1
        return f"{path}:{line}: {'.'.join(str(part) for part in self.place)}: {self.words}"


def conflicts(
    info: RunInfo,
    topology: Topology,
    plan: Plan,
    fabric: Fabric,
    criteria: Collection[Criterion],
    hashes: Mapping[str, str],
    release: str,
) -> Iterator[Conflict]:
    """Where the documents of a run contradict each other. `hashes`: SHA-256 of those that stand in the run, by name;
    `release` is this toolkit's.
    """
    yield from _identity(info, topology, plan, fabric)
    yield from _changed(info, hashes)
    known = {c.id for c in criteria}
    for position, m in enumerate(plan.measurements):
        unknown = [id_ for id_ in m.criteria if id_ not in known]
        if unknown:
            words = f"{', '.join(unknown)}: in no file of {CRITERIA}; restore it from a copy of the run"
            yield Conflict("plan.json", ("measurements", position, "criteria"), words)
    if same_rules(info, release):
        yield from _other_plan(info, topology, plan, fabric, criteria)


def same_rules(info: RunInfo, release: str) -> bool:
    """True where this release, by the rules in the run, must plan what the run planned."""
    return info.toolkit_version == release and info.replaced is None


def remarks(info: RunInfo, release: str) -> list[str]:
    """What a reader must know of the rules in a run."""
    notes = [f"judged again: {info.replaced}"] if info.replaced is not None else []
    if not same_rules(info, release):
        notes.append(
            f"planned by toolkit {info.toolkit_version}"
            + (f", this is {release}" if info.toolkit_version != release else " under other rules")
            + ": whether plan.json is what had to be planned was not looked at again"
        )
    return notes


def _identity(info: RunInfo, topology: Topology, plan: Plan, fabric: Fabric) -> Iterator[Conflict]:
    for file, key, found, wanted in (
        ("plan.json", "run", plan.run, info.run),
        ("plan.json", "fabric", plan.fabric, info.fabric),
        ("plan.json", "suites", plan.suites, info.suites),
        ("topology.json", "site", topology.site, info.site),
        ("fabric.yml", "name", fabric.name, info.fabric),
    ):
        if found != wanted:
            yield Conflict(file, (key,), f"is {found!r}, but run.json says {wanted!r}; restore the files from a copy")
    created, named = info.created_at, info.begun_at
    if created is None:
        yield Conflict("run.json", ("created",), f"{info.created!r} is not a time in UTC; restore the file from a copy")
    elif named is not None and not timedelta(seconds=-1) <= created - named <= timedelta(seconds=CLOCK_S):
        words = f"{info.created} is not when run {info.run} began; restore the file from a copy"
        yield Conflict("run.json", ("created",), words)


def _changed(info: RunInfo, hashes: Mapping[str, str]) -> Iterator[Conflict]:
    listed = info.documents
    for name in NEEDED:
        if name not in listed:
            yield Conflict("run.json", ("documents",), f"{name}: is not listed; restore the file from a copy")
    for folder, what in ((CRITERIA, "criteria"), (REFERENCE, "claims")):
        if not any(name.startswith(folder) for name in listed):
            yield Conflict("run.json", ("documents",), f"no {what} are listed; restore the file from a copy")
    for name in sorted({*listed, *hashes}):
        if name not in hashes:
            yield Conflict(name, (), "is missing, though the run began with it; restore it from a copy of the run")
        elif name not in listed:
            yield Conflict(name, (), "was added after the run began; take it away, or bring it in by --rejudge")
        elif hashes[name] != listed[name]:
            yield Conflict(
                name, (), "was changed since the run began (its SHA-256 in run.json); restore it from a copy"
            )


def _other_plan(
    info: RunInfo, topology: Topology, plan: Plan, fabric: Fabric, criteria: Iterable[Criterion]
) -> Iterator[Conflict]:
    options = {key: value for key, value in info.options.items() if key in suites.numbers() or key in suites.words()}
    try:
        wanted = suites.make_plan(info.run, topology, fabric, criteria, info.suites, options)
    except ConfigError as fault:
        yield Conflict("plan.json", (), f"nothing of it would be planned: {fault}; restore the files from a copy")
        return
    if plan == wanted:
        return
    names = {m.id for m in plan.measurements}
    missing = [m.id for m in wanted.measurements if m.id not in names]
    added = sorted(names - {m.id for m in wanted.measurements})
    other = [m.id for m in wanted.measurements if m.id in names and plan.measurement(m.id) != m]
    said = [
        f"{what}: {', '.join(ids[:3])}" + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
        for what, ids in (("not planned", missing), ("planned beyond it", added), ("planned otherwise", other))
        if ids
    ]
    words = "; ".join(said) or "rounds, estimates or what was left out differ"
    yield Conflict(
        "plan.json",
        (),
        f"is not what topology, fabric, suites and criteria of the run would plan ({words}); restore it from a copy",
    )
