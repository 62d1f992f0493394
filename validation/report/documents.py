"""Reads a run directory for the report and refuses one whose documents contradict each other.

A report is only as good as the agreement of its sources: a verdict of another plan, a result that nobody planned, or
an acceptance of virtual hardware is an error here, not something to print.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from validation.analysis.denial import last_results
from validation.measures.hardware.listed import site_parts
from validation.model import Plan, RawLog, Result, RunInfo, Topology, VerdictDoc
from validation.model.built import HowBuilt
from validation.model.listed_parts import ServerParts
from validation.model.load import ConfigError
from validation.report.customer import NAME, Customer, customer_of, logo_uri, template_texts
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric
from validation.rules.profile import Profile
from validation.rules.reference import Reference, packaged
from validation.rules.virtual import constructed, rehearses
from validation.run.catalogue import load_criteria
from validation.run.names import CRITERIA, REFERENCE, RESULTS, VERDICT
from validation.run.read import Run, read
from validation.run.rules_hashes import Rules, rules_of

RawState = Literal["intact", "changed", "missing"]


@dataclass(frozen=True)
class RunDocuments:
    """Everything the report is made from. `verdict` is None when the run has not been judged.

    `results` are those of planned measurements; `unplanned` names the measurements of others, which count nowhere.
    `torn` says in words that the last line of results.jsonl was cut and dropped. `raw` tells for each raw log's path
    whether the file still has the hash that was recorded. `built` is how the site was built. `customer`, `logo` (a
    data: URI) and `templates` (name -> text) are the customer's words and what came with them. `reference`: the claims
    that the run began with.
    """

    info: RunInfo
    topology: Topology
    plan: Plan
    fabric: Fabric
    results: tuple[Result, ...]
    unplanned: tuple[str, ...]
    torn: str | None
    verdict: VerdictDoc | None
    raw: dict[str, RawState]
    catalogue: dict[str, Criterion]
    profile: Profile | None = None
    built: HowBuilt | None = None
    customer: Customer = field(default_factory=Customer)
    logo: str | None = None
    templates: dict[str, str] = field(default_factory=dict)
    reference: Reference = field(default_factory=packaged)

    @cached_property
    def latest(self) -> dict[str, Result]:
        """Measurement id -> its last result, which is the one that counts."""
        return last_results(self.results)

    def lost(self, measurement: str) -> str:
        """Why nothing of a planned measurement can be shown."""
        result = self.latest.get(measurement)
        if result is None:
            return "no result was recorded"
        return result.error or ("its result has no facts" if result.status == "ok" else result.status)

    @cached_property
    def parts(self) -> tuple[ServerParts, ...]:
        """Every server with its parts and their serial numbers, as far as they were read."""
        return site_parts(self.topology, self.plan, self.latest)

    @cached_property
    def rules(self) -> Rules:
        """Whose rules it is planned, judged and reported by."""
        return rules_of(self.info, self.catalogue.values(), self.reference, self.fabric, self.profile, self.templates)

    @cached_property
    def virtual(self) -> bool:
        """True when the inventory or the nodes' own facts say that something is virtual, which makes it a rehearsal."""
        return _virtual(self.topology, self.fabric, self.plan, self.results)

    @cached_property
    def constructed(self) -> bool:
        """True when the facts of a node say that they were made up: the run is an example."""
        return constructed(_looks(self.plan, self.results))


def rules_of_run(run: Run) -> Rules:
    """The rules of a run directory."""
    return rules_of(
        run.info,
        run.criteria,
        run.reference,
        run.fabric,
        run.profile,
        template_texts(run.folder / NAME, customer_of(run.folder)),
    )


def read_run(run: Path | Run) -> RunDocuments:
    """Read and cross-check the documents of a run. Raises ConfigError (one line) for a damaged directory."""
    run = read(run)
    run_dir = run.folder
    if not run_dir.is_dir():
        raise ConfigError(f"{run_dir}: is not a run directory; give the folder that `toolkit validate` made")
    info, topology, plan, fabric = run.info, run.topology, run.plan, run.fabric
    customer = customer_of(run_dir)
    reference = run.reference if (run_dir / REFERENCE).is_dir() else packaged()
    criteria = run.criteria if (run_dir / CRITERIA).is_dir() else load_criteria()
    verdict_path, results_path = run_dir / VERDICT, run_dir / RESULTS
    verdict = run.verdict if verdict_path.exists() else None
    if verdict is not None and not results_path.exists():
        raise ConfigError(f"{results_path}: is missing although verdict.json exists; restore it from a copy of the run")
    results = run.whole_results
    planned = {m.id for m in plan.measurements}
    mine = tuple(r for r in results if r.measurement in planned)
    _check(run_dir, info, plan, verdict, _virtual(topology, fabric, plan, mine), constructed(_looks(plan, mine)))
    return RunDocuments(
        info=info,
        topology=topology,
        plan=plan,
        fabric=fabric,
        results=mine,
        unplanned=tuple(dict.fromkeys(r.measurement for r in results if r.measurement not in planned)),
        torn=run.torn,
        verdict=verdict,
        raw=_raw_states(run_dir, mine),
        catalogue={c.id: c for c in criteria},
        profile=run.profile_for(criteria),
        built=run.built,
        customer=customer,
        logo=logo_uri(run_dir / NAME, customer),
        templates=template_texts(run_dir / NAME, customer),
        reference=reference,
    )


def _virtual(topology: Topology, fabric: Fabric, plan: Plan, results: Iterable[Result]) -> bool:
    return rehearses(topology, _looks(plan, results), fabric)


def _looks(plan: Plan, results: Iterable[Result]) -> list[Result]:
    """The results of the looks at the nodes."""
    latest = last_results(results)
    return [latest[m.id] for m in plan.measurements if m.kind == "facts" and m.id in latest]


def _check(
    run_dir: Path, info: RunInfo, plan: Plan, verdict: VerdictDoc | None, virtual: bool, constructed: bool
) -> None:
    if plan.run != info.run:
        raise ConfigError(f"{run_dir / 'plan.json'}: run: is {plan.run!r}, but run.json says {info.run!r}")
    planned = len(plan.measurements)
    if verdict is None:
        return
    path = run_dir / "verdict.json"
    if verdict.run != info.run:
        raise ConfigError(f"{path}: run: is {verdict.run!r}, but run.json says {info.run!r}; judge the run again")
    if verdict.planned != planned:
        raise ConfigError(
            f"{path}: planned: is {verdict.planned}, but plan.json has {planned} measurements; judge the run again"
        )
    if constructed != (verdict.sign_off == "CONSTRUCTED EXAMPLE"):
        were = "were constructed" if constructed else "were not constructed"
        raise ConfigError(f"{path}: sign_off: is {verdict.sign_off}, but the run's data {were}; judge the run again")
    if virtual and verdict.sign_off not in ("REHEARSAL", "CONSTRUCTED EXAMPLE"):
        raise ConfigError(
            f"{path}: sign_off: is {verdict.sign_off}, but virtual parts took part, which only a REHEARSAL may "
            "have; judge the run again"
        )
    for criterion in verdict.criteria:
        if criterion.verdict == "pass" and not any(j.verdict == "pass" for j in criterion.judgements):
            raise ConfigError(
                f"{path}: {criterion.id}: is a pass with no passing judgement behind it; judge the run again"
            )
        if verdict.sign_off == "ACCEPTED" and criterion.owed and criterion.verdict in ("fail", "not-measured"):
            raise ConfigError(
                f"{path}: sign_off: is ACCEPTED, but {criterion.id}, which is owed, is {criterion.verdict}; "
                "judge the run again"
            )


def _raw_states(run_dir: Path, results: Iterable[Result]) -> dict[str, RawState]:
    root = os.path.realpath(run_dir)
    own = _own_folders(root)
    return {log.path: _raw_state(root, log, own) for result in results for log in result.provenance.raw}


def _own_folders(root: str) -> frozenset[str]:
    """The folders of raw logs that are no links, as `raw/NAME`."""
    raw = f"{root}{os.sep}raw"
    if os.path.islink(raw) or not os.path.isdir(raw):  # noqa: PTH112, PTH114
        return frozenset()
    with os.scandir(raw) as found:
        return frozenset(f"raw/{folder.name}" for folder in found if folder.is_dir(follow_symlinks=False))


def _raw_state(root: str, log: RawLog, own: Collection[str]) -> RawState:
    """`own`: folders of the run in which a file that is no link is the run's, without following its path once more: a
    fleet has hundreds of thousands.
    """
    folder, _, name = log.path.rpartition("/")
    try:
        sha256 = _sha256(f"{root}{os.sep}{log.path}", os.O_NOFOLLOW) if name and folder in own else None
        if sha256 is None:
            path = os.path.realpath(root + os.sep + log.path)
            # A path that leads out of the run directory is no part of the run, whatever lies there.
            if not path.startswith(f"{root}{os.sep}") or (sha256 := _sha256(path)) is None:
                return "missing"
    except ValueError:  # a NUL in the name
        return "missing"
    return "intact" if sha256 == log.sha256 else "changed"


def _sha256(path: str, how: int = 0) -> str | None:
    """Of an ordinary file; None where there is none that can be opened `how`. Never waits for a pipe's other end."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | how)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        digest = hashlib.sha256()
        while block := os.read(file, 1 << 20):
            digest.update(block)
    finally:
        os.close(file)
    return digest.hexdigest()
