"""Reading what `judging/documents.py` looks at: the hashes of a run's documents and its raw logs."""

from __future__ import annotations

import os
from collections import defaultdict
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
    root, folders = os.path.realpath(run.folder), dict[str, str]()
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
            raw = {log.path: _content(root, log.path, folders) for log in result.provenance.raw}
            found.append(line_faults(m, result, raw))
        why, more = faults_of(run.info, m, mine, found, shared, _logs(run.folder, m.id))
        notes += more
        if why:
            faults[m.id] = why
    return Evidence(faults, tuple(notes))


def _logs(run_dir: Path, measurement: str) -> list[str]:
    folder = run_dir / "raw" / measurement
    return [f"raw/{measurement}/{path.name}" for path in folder.iterdir()] if folder.is_dir() else []


def _content(root: str, name: str, folders: dict[str, str]) -> bytes | None:
    """A raw log; None where it is missing, no ordinary file, or leads out of the run, whatever lies there.

    `folders` remembers where each folder really is: the logs of a measurement lie in one.
    """
    if "\0" in name:
        return None  # no file's name
    folder, _, file_name = name.rpartition("/")
    if folder not in folders:
        folders[folder] = os.path.realpath(f"{root}{os.sep}{folder}")
    path = f"{folders[folder]}{os.sep}{file_name}"
    if os.path.islink(path):  # noqa: PTH114 - thousands of logs
        path = os.path.realpath(path)
    if not path.startswith(f"{root}{os.sep}") or not os.path.isfile(path):  # noqa: PTH113
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return None
