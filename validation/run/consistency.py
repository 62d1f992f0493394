"""Reading what `judging/documents.py` looks at: the hashes of a run's documents and its raw logs."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import yaml

from validation.base.bounded import LOG_BYTES
from validation.judging.documents import (
    Conflict,
    Evidence,
    conflicts,
    faults_of,
    line_faults,
    out_of_order,
    remarks,
    shared_logs,
)
from validation.model import Result
from validation.model.load import ConfigError, line_of
from validation.rules.release import release
from validation.run import checked
from validation.run.read import Run


def check_documents(run: Run) -> list[str]:
    """Notes on the documents of a run; ConfigError with file and line where they contradict each other."""
    for conflict in conflicts(run.info, run.topology, run.plan, run.fabric, run.criteria, run.hashes, release()):
        raise ConfigError(_words(run.folder, conflict))
    return remarks(run.info, release())


def _words(run_dir: Path, conflict: Conflict) -> str:
    path = run_dir / conflict.file
    if not conflict.place:
        return f"{path}: {conflict.words}"
    try:
        line = line_of(path, *conflict.place)
    except (ConfigError, yaml.YAMLError):
        line = 1
    return f"{path}:{line}: {'.'.join(str(part) for part in conflict.place)}: {conflict.words}"


def read_evidence(run: Run) -> Evidence:
    """What is wrong with the results of a run, by their raw logs, all of which are read."""
    return _read(run, checked.State(), None)[0]


def known_evidence(run: Run, before: checked.Known | None, agree: bool = False) -> Evidence:
    """The same, of the raw logs that changed since they were last read on this machine; what is found is remembered.

    `before` is what was known of the run; `agree`: `check_documents` found nothing against it.
    """
    usable = before if before and before.evidence and before.whole else None
    if usable and (usable.documents or not agree) and checked.untouched(run, usable):
        return _taken(run, usable)
    state = checked.look(run)
    if usable and usable.all_same(state, [m.id for m in run.plan.measurements]):
        if agree and (state.everything or not usable.documents):
            checked.keep(run, state, usable.found, frozenset(), _taken(run, usable), agree)
        return _taken(run, usable)
    evidence, found, unsure = _read(run, state, before)
    checked.keep(run, state, found, unsure, evidence, agree)
    return evidence


def _taken(run: Run, before: checked.Known) -> Evidence:
    if before.results is not None:
        run.take(before.results)
    return before.evidence or Evidence()


def _read(
    run: Run, state: checked.State, before: checked.Known | None
) -> tuple[Evidence, dict[int, Sequence[str]], frozenset[str]]:
    """What is wrong; the faults of each line that has some; measurements with logs outside of their own folder."""
    root = os.path.realpath(run.folder)
    folders = _folders(root)
    shared = shared_logs(run.results)
    lines: dict[str, list[tuple[int, Result]]] = defaultdict(list)
    for number, result in enumerate(run.results):
        lines[result.measurement].append((number, result))
    faults: dict[str, str] = {}
    notes = out_of_order(run.results)
    own: dict[int, Sequence[str]] = {}
    unsure = set()
    for m in run.plan.measurements:
        mine = lines[m.id]
        beside = folders.get(m.id, {})
        found: list[Sequence[str]] = []
        for number, result in mine:
            if before is not None and number < before.lines and before.same(state, m.id):
                found.append(before.found.get(number, ()))
            else:
                raw = {log.path: _content(root, log.path, beside) for log in result.provenance.raw}
                found.append(line_faults(m, result, raw))
            if found[-1]:
                own[number] = found[-1]
            if not all(beside.get(log.path) for log in result.provenance.raw):
                unsure.add(m.id)
        results = [result for _, result in mine]
        why, more = faults_of(run.info, m, results, found, shared, _logs(run.folder, m.id, folders))
        notes += more
        if why:
            faults[m.id] = why
    return Evidence(faults, tuple(notes)), own, frozenset(unsure)


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
        with open(path, "rb") as file:  # noqa: PTH123
            content = file.read(LOG_BYTES + 1)
    except OSError:
        return None
    if len(content) > LOG_BYTES:
        raise ConfigError(f"{path}: has more than {LOG_BYTES >> 20} MiB, which no raw log has; look at it")
    return content
