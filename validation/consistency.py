"""Reading what `judging/documents.py` looks at: the hashes of a run's documents and its raw logs."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

import yaml

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
from validation.load import ConfigError, line_of
from validation.model import Result
from validation.release import release
from validation.runfiles import RunFiles


def check_documents(run: RunFiles) -> list[str]:
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


def read_evidence(run: RunFiles) -> Evidence:
    """What is wrong with the results of a run, by their raw logs."""
    root = os.path.realpath(run.folder)
    folders = _folders(root)
    shared = shared_logs(run.results)
    lines: dict[str, list[Result]] = defaultdict(list)
    for result in run.results:
        lines[result.measurement].append(result)
    faults: dict[str, str] = {}
    notes = out_of_order(run.results)
    for m in run.plan.measurements:
        mine = lines[m.id]
        found = []
        for result in mine:
            raw = {log.path: _content(root, log.path, folders.get(m.id, {})) for log in result.provenance.raw}
            found.append(line_faults(m, result, raw))
        why, more = faults_of(run.info, m, mine, found, shared, _logs(run.folder, m.id, folders))
        notes += more
        if why:
            faults[m.id] = why
    return Evidence(faults, tuple(notes))


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
            return file.read()
    except OSError:
        return None
