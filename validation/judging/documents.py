"""Whether the documents of a run belong together, and whether each result still follows from its raw logs.

Pure: `validation/run/` reads the files and hands over their hashes and contents. A contradiction between
the documents ends the judging; what is wrong with a result costs its measurement alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

from validation.judging.case import Case, is_virtual
from validation.judging.times import begun, moment
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.model import CONTROLLER, DENIED, REPORT, Denied, Measurement, Plan, Result, RunInfo, Topology
from validation.model.load import ConfigError
from validation.plan import suites
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric

NEEDED = ("topology.json", "plan.json", "fabric.yml")
CRITERIA, REFERENCE = "criteria/", "reference/"
CLOCK_S = 60.0
"""By how much times of a run may contradict each other: somebody may set the clock meanwhile. Project default."""
ROUNDED_S = 1.0
"""By how much a tool may claim to have run longer than its measurement took: two machines' clocks. Project default."""
NODE_CLOCK = timedelta(days=1)
"""By how much a node's clock may differ from that of the machine that runs the validation: not every site sets them, or
agrees on a zone. Logs of another day are another run's. Project default."""
ENDED_BY = timedelta(minutes=10)
"""How long after its deadline a measurement has ended at the latest: starting it, waiting for its server, stopping both
on busy machines. Project default."""
_LOG = re.compile(r"(?:\.(\d+))?\.(?:out|err|probe\.json)")
"""End of a raw log's name, behind its node: the number of an attempt after the first, and what it holds."""


@dataclass(frozen=True)
class Conflict:
    """Where a document contradicts another: its name, the place in it, what is wrong and what to do."""

    file: str
    place: tuple[int | str, ...]
    words: str


@dataclass(frozen=True)
class Evidence:
    """What is wrong with results. `faults`: measurement -> why its results prove nothing."""

    faults: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


# --- the run's documents ---------------------------------------------------------------------------------------


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
    created, named = moment(info.created), begun(info.run)
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


# --- its results -----------------------------------------------------------------------------------------------


def line_faults(m: Measurement, result: Result, raw: Mapping[str, bytes | None]) -> list[str]:
    """What contradicts a result: the plan, itself, its raw logs. `raw`: path -> content, None where it is missing."""
    p = result.provenance
    faults = []
    if p.nodes != m.nodes:
        faults.append(f"was measured on {', '.join(p.nodes) or 'no node'}, planned on {', '.join(m.nodes)}")
    if p.devices != tuple(str(e) for e in m.endpoints):
        faults.append(f"was measured between {', '.join(p.devices) or 'no ports'}, which was not planned")
    started, ended = moment(p.started), moment(p.ended)
    if started is None or ended is None:
        faults.append(f"its times are none: {p.started!r} to {p.ended!r}")
    elif ended < started or not 0 <= p.duration_s <= (ended - started).total_seconds() + ROUNDED_S:
        faults.append(f"its times contradict each other: {p.started} to {p.ended}, {p.duration_s:g} s")
    elif ended - started > timedelta(seconds=m.timeout_s) + ENDED_BY:
        faults.append(f"cannot have taken so long: {p.started} to {p.ended}, its deadline was {m.timeout_s:g} s")
    for log in p.raw:
        content = raw.get(log.path)
        if not log_of(m, log.path) or (result.status == "ok" and _traceback(m, log.path)):
            faults.append(f"{log.path} is not a raw log of it")
        elif content is None:
            faults.append(f"evidence is missing: {log.path}")
        elif hashlib.sha256(content).hexdigest() != log.sha256:
            faults.append(f"evidence changed: {log.path} does not have the recorded hash")
    if not faults:
        faults += _read_again(m, result, raw) if result.status == "ok" else _no_result(m, result, raw)
    return faults


def log_of(m: Measurement, path: str) -> bool:
    """Whether a raw log has the name of one of a measurement's."""
    return _attempt_of(m, path) is not None


def _traceback(m: Measurement, path: str) -> bool:
    """Whether it is that of an error of the toolkit's own: an attempt that gave a result has none."""
    return CONTROLLER not in m.nodes and path.startswith(f"raw/{m.id}/{CONTROLLER}.")


def _attempt_of(m: Measurement, path: str) -> int | None:
    """The attempt that a raw log of a measurement is of; None where its name is no such log's."""
    name = path.removeprefix(f"raw/{m.id}/")
    for who in (*m.nodes, CONTROLLER):
        match = _LOG.fullmatch(name[len(who) :]) if name != path and name.startswith(who) else None
        if match:
            return int(match[1] or 1)
    return None


def _no_result(m: Measurement, result: Result, raw: Mapping[str, bytes | None]) -> Iterator[str]:
    """Where a line says that nothing was measured: what was reported of the attempt must not say otherwise."""
    doc = _report(result, raw)
    if isinstance(doc, str):
        yield doc
        return
    if doc.get(DENIED) != [d.model_dump() for d in result.denied]:
        yield "what its machines were denied is not what its raw logs say"
    with contextlib.suppress(ParseError):
        parse(m.kind, cast(ProbeDoc, doc), m.params)
        yield f"its line says {result.status}, its raw logs give a result"


def _report(result: Result, raw: Mapping[str, bytes | None]) -> dict[str, Any] | str:
    """The report of an attempt with the output beside it, or words on why there is none."""
    reports = [log.path for log in result.provenance.raw if log.path.endswith(f".{REPORT}")]
    if len(reports) != 1:
        return f"{len(reports)} reports of its probe among its raw logs, one is expected"
    stem = reports[0].removesuffix(REPORT)
    texts = [raw.get(f"{stem}{suffix}") for suffix in (REPORT, "out", "err")]
    if None in texts:
        return f"{stem}out or {stem}err is not a raw log of it"
    try:
        report, out, err = (cast(bytes, text).decode() for text in texts)
        return {**json.loads(report), "stdout": out, "stderr": err}
    except (ValueError, TypeError, RecursionError) as fault:
        return f"its raw logs cannot be read again: {fault}"


def _read_again(m: Measurement, result: Result, raw: Mapping[str, bytes | None]) -> Iterator[str]:
    p = result.provenance
    doc = _report(result, raw)
    if isinstance(doc, str):
        yield doc
        return
    try:
        said = (doc["tool"], doc["tool_version"], tuple(doc["command"]), doc["duration_s"])
        times = [moment(doc[key]) for key in ("started", "ended")]
        denied = tuple(Denied.model_validate(one) for one in doc[DENIED])
        samples, facts = parse(m.kind, cast(ProbeDoc, doc), m.params)
    except (ValueError, TypeError, KeyError, ParseError) as fault:
        yield f"its raw logs cannot be read again: {fault}"
        return
    if not p.tool or said != (p.tool, p.tool_version, p.command, p.duration_s):
        yield "its raw logs name another tool, command or duration"
    line = [moment(text) for text in (p.started, p.ended)]
    if any(not a or not b or abs(a - b) > NODE_CLOCK for a, b in zip(times, line, strict=True)):
        yield f"its raw logs are of another time: {doc['started']} to {doc['ended']} by the clock of the node"
    # field by field, without the search for extra and private ones that pydantic makes of each of a fleet's samples
    if (
        [vars(s) for s in samples] != [vars(s) for s in result.samples]
        or facts != result.facts
        or denied != result.denied
    ):
        yield "its samples or facts are not what its raw logs give"


def faults_of(
    info: RunInfo,
    m: Measurement,
    lines: Sequence[Result],
    found: Sequence[Sequence[str]],
    shared: Collection[str],
    logs: Collection[str],
) -> tuple[str, list[str]]:
    """(why the `lines` of a measurement prove nothing, or ""; notes). `found`: each line's own faults;
    `shared`: raw logs that several lines of the run name; `logs`: all that stand in its folder, by path.
    """
    created = moment(info.created)
    bad: list[list[str]] = []
    for number, (line, own) in enumerate(zip(lines, found, strict=True), start=1):
        faults = list(own)
        if line.attempt != number:
            faults.append(f"line {number} of it says that it is attempt {line.attempt}: a line was lost or added")
        if any(log.path in shared for log in line.provenance.raw):
            faults.append("another line has the same raw logs")
        started = moment(line.provenance.started)
        if created and started and (created - started).total_seconds() > CLOCK_S:
            faults.append(f"was measured at {line.provenance.started}, before the run began")
        bad.append(faults)
    notes = []
    named = {log.path for line in lines for log in line.provenance.raw}
    strange = sorted(path for path in logs if path not in named)
    later = _later_than_told(m, named, strange) if strange else None
    if later and lines:
        bad[-1].append(f"{later} is of a later attempt, for which there is no line")
    if strange and not lines:
        notes.append(f"{m.id}: its line is lost, for its raw logs are there: {', '.join(strange)}; measure it again")
    elif strange and not later:
        notes.append(f"{m.id}: raw logs that no line names: {', '.join(strange)}")
    said = [f"attempt {line.attempt}: {'; '.join(own)}" for line, own in zip(lines, bad, strict=True) if own]
    if len(lines) == 1:
        said = bad[0][:1] and ["; ".join(bad[0])]
    if all(line.status != "ok" for line in lines):  # they prove nothing anyway
        return "", notes + [f"{m.id}: {words}" for words in said]
    # attempts are judged together: without one of them the others could say something better
    return "; ".join(said), notes


def _later_than_told(m: Measurement, named: Collection[str], strange: Sequence[str]) -> str | None:
    """A raw log of an attempt after the last whose logs lines have `named`; None where none of the others is one."""

    told = max((_attempt_of(m, path) or 0 for path in named), default=0)
    return next((path for path in strange if (_attempt_of(m, path) or 0) > told), None)


def shared_logs(results: Iterable[Result]) -> set[str]:
    """Raw logs that stand in more than one line: one measurement's output cannot be two results."""
    counted = Counter(path for r in results for path in {log.path for log in r.provenance.raw})
    return {path for path, count in counted.items() if count > 1}


def out_of_order(results: Sequence[Result]) -> list[str]:
    """Notes on lines that ended before the one above them: they are written one after another."""
    notes = []
    latest: datetime | None = None
    for result in results:
        ended = moment(result.provenance.ended)
        if ended and latest and (latest - ended).total_seconds() > CLOCK_S:
            notes.append(f"{result.measurement}: ended at {result.provenance.ended}, before the line above it")
        latest = max(filter(None, (latest, ended)), default=None)
    return notes


def discounted(case: Case, evidence: Evidence) -> Case:
    """The case without what is said of measurements whose evidence does not hold; their facts make nothing virtual."""
    if not evidence.faults:
        return case
    latest, attempts = dict(case.latest), dict(case.attempts)
    for id_, why in evidence.faults.items():
        if id_ in latest:
            nothing = {"status": "unparseable", "error": why, "samples": (), "facts": {}}
            latest[id_] = latest[id_].model_copy(update=nothing)
            attempts[id_] = (latest[id_],)
    virtual = is_virtual(case.topology, case.plan, case.fabric, latest)
    return replace(case, latest=latest, attempts=attempts, virtual=virtual)
