"""Whether each result of a run still follows from its raw logs. What is wrong with one costs its measurement alone."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from validation.base.bounded import LOG_BYTES
from validation.judging.run_data import Evidence
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.model import CONTROLLER, DENIED, REPORT, Denied, Measurement, Plan, Result, RunInfo
from validation.model.load import ConfigError
from validation.model.times import CLOCK_S, moment
from validation.probes import ProbeDoc
from validation.run.log_state import State
from validation.run.remembered import Known, LogsRead

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
_BLOCK_BYTES = 1 << 20


def read_logs(
    run_dir: Path, info: RunInfo, plan: Plan, results: Sequence[Result], state: State, before: Known | None
) -> LogsRead:
    """Hold results against their raw logs. `before`: what is known of the lines whose folder is in the state in which
    it was read then; None has all logs read.
    """
    root = os.path.realpath(run_dir)
    folders = _folders(root)
    shared = shared_logs(results)
    lines: dict[str, list[tuple[int, Result]]] = defaultdict(list)
    for number, result in enumerate(results):
        lines[result.measurement].append((number, result))
    faults: dict[str, str] = {}
    notes = out_of_order(results)
    own: dict[int, Sequence[str]] = {}
    unsure = set()
    for m in plan.measurements:
        mine = lines[m.id]
        beside = folders.get(m.id, {})
        of_lines: list[Sequence[str]] = []
        for number, result in mine:
            if before is not None and number < before.lines and before.state.same(state, m.id):
                of_lines.append(before.faults.get(number, ()))
            else:
                raw = {log.path: _content(root, log.path, beside) for log in result.provenance.raw}
                of_lines.append(line_faults(m, result, raw))
            if of_lines[-1]:
                own[number] = of_lines[-1]
            if not all(beside.get(log.path) for log in result.provenance.raw):
                unsure.add(m.id)
        attempts = [result for _, result in mine]
        why, more = faults_of(info, m, attempts, of_lines, shared, _logs(run_dir, m.id, folders))
        notes += more
        if why:
            faults[m.id] = why
    return LogsRead(Evidence(faults, tuple(notes)), own, frozenset(unsure))


_Folder = dict[str, bool]
"""Path of a raw log in the run -> whether it is an ordinary file there, and no link to one."""


def _folders(root: str) -> dict[str, _Folder]:
    """What lies in the folders of raw logs, by measurement: every folder is looked into once. What is no folder of the
    run itself, as a link to one, is not here.
    """
    found: dict[str, _Folder] = {}
    raw = f"{root}{os.sep}raw"
    if os.path.islink(raw) or not os.path.isdir(raw):  # noqa: PTH112, PTH114
        return found
    with os.scandir(raw) as folders:
        for folder in folders:
            if folder.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError), os.scandir(folder.path) as logs:
                    start = f"raw/{folder.name}/"
                    found[folder.name] = {start + log.name: log.is_file(follow_symlinks=False) for log in logs}
    return found


def _logs(run_dir: Path, measurement: str, folders: Mapping[str, _Folder]) -> Collection[str]:
    if measurement in folders:
        return folders[measurement].keys()
    folder = run_dir / "raw" / measurement
    return [f"raw/{measurement}/{path.name}" for path in folder.iterdir()] if folder.is_dir() else []


def _content(root: str, name: str, beside: _Folder) -> bytes | None:
    """A raw log; None where it is missing, no ordinary file, or leads out of the run, whatever lies there. `beside`:
    what was seen in the folder of its measurement.
    """
    if "\0" in name:
        return None  # no file's name
    path = f"{root}{os.sep}{name}"
    if not beside.get(name):  # a link, a folder, of another measurement, or not there: where is it really?
        path = os.path.realpath(path)
        if not path.startswith(f"{root}{os.sep}") or not os.path.isfile(path):  # noqa: PTH113
            return None
    try:
        content = _read(path)
    except OSError:
        return None
    if len(content) > LOG_BYTES:
        raise ConfigError(f"{path}: has more than {LOG_BYTES >> 20} MiB, which no raw log has; look at it")
    return content


def _read(path: str) -> bytes:
    """A file, or what shows that it is larger than a raw log. Room is made for what it has: of a fleet there are some
    10,000 small ones.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(file).st_size
        content = os.read(file, min(size, LOG_BYTES) + 1)
        while len(content) != size and len(content) <= LOG_BYTES and (more := os.read(file, _BLOCK_BYTES)):
            content += more  # it grows meanwhile
    finally:
        os.close(file)
    return content


# --- what a result, and all of a measurement, can have against them ---


def line_faults(m: Measurement, result: Result, raw: Mapping[str, bytes | None]) -> list[str]:
    """What contradicts a result: the plan, itself, its raw logs. `raw`: path -> content, None where it is missing."""
    p = result.provenance
    faults = []
    if p.nodes != m.nodes:
        faults.append(f"was measured on {', '.join(p.nodes) or 'no node'}, planned on {', '.join(m.nodes)}")
    if p.devices != tuple(str(e) for e in m.endpoints):
        faults.append(f"was measured between {', '.join(p.devices) or 'no ports'}, which was not planned")
    started, ended = p.times
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
    if any(not a or not b or abs(a - b) > NODE_CLOCK for a, b in zip(times, p.times, strict=True)):
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
    created = info.created_at
    bad: list[list[str]] = []
    for number, (line, own) in enumerate(zip(lines, found, strict=True), start=1):
        faults = list(own)
        if line.attempt != number:
            faults.append(f"line {number} of it says that it is attempt {line.attempt}: a line was lost or added")
        if any(log.path in shared for log in line.provenance.raw):
            faults.append("another line has the same raw logs")
        started, _ = line.provenance.times
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
        _, ended = result.provenance.times
        if ended and latest and (latest - ended).total_seconds() > CLOCK_S:
            notes.append(f"{result.measurement}: ended at {result.provenance.ended}, before the line above it")
        latest = max(filter(None, (latest, ended)), default=None)
    return notes
