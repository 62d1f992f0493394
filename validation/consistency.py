"""Reading what `judging/documents.py` looks at: the hashes of a run's documents and its raw logs."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Collection, Sequence
from importlib.metadata import version
from pathlib import Path

import yaml

from validation.criterion import Criterion
from validation.fabric import Fabric
from validation.judging.documents import (
    CRITERIA,
    NEEDED,
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
from validation.model import Plan, Result, RunInfo, Topology

TIED = (*NEEDED, "inventory.json", "profile.yml", "waivers.yml")
"""Documents that a run begins with, beside its criteria: run.json holds the SHA-256 of each that is there."""


def release() -> str:
    """This toolkit's version."""
    return version("elastic-ai-toolkit")


def tied(run_dir: Path) -> dict[str, str]:
    """Name -> SHA-256 of the documents in a run that decide what is measured and how it is judged."""
    folder = run_dir / CRITERIA
    names = [name for name in TIED if (run_dir / name).is_file()]
    if folder.is_dir():
        names += sorted(f"{CRITERIA}{path.name}" for path in folder.iterdir() if not path.name.startswith("."))
    return {name: _sha256(run_dir / name) for name in names}


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as fault:
        raise ConfigError(f"{path}: cannot be read: {fault.strerror or fault}") from None


def check_documents(
    run_dir: Path, info: RunInfo, topology: Topology, plan: Plan, fabric: Fabric, criteria: Collection[Criterion]
) -> list[str]:
    """Notes on the documents of a run; ConfigError with file and line where they contradict each other."""
    for conflict in conflicts(info, topology, plan, fabric, criteria, tied(run_dir), release()):
        raise ConfigError(_words(run_dir, conflict))
    return remarks(info, release())


def _words(run_dir: Path, conflict: Conflict) -> str:
    path = run_dir / conflict.file
    if not conflict.place:
        return f"{path}: {conflict.words}"
    try:
        line = line_of(path, *conflict.place)
    except (ConfigError, yaml.YAMLError):
        line = 1
    return f"{path}:{line}: {'.'.join(str(part) for part in conflict.place)}: {conflict.words}"


def read_evidence(run_dir: Path, info: RunInfo, plan: Plan, results: Sequence[Result]) -> Evidence:
    """What is wrong with the results of a run, by their raw logs."""
    root = os.path.realpath(run_dir)
    shared = shared_logs(results)
    lines: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        lines[result.measurement].append(result)
    faults: dict[str, str] = {}
    notes = out_of_order(results)
    for m in plan.measurements:
        mine = lines[m.id]
        found = []
        for result in mine:
            raw = {log.path: _content(root, log.path) for log in result.provenance.raw}
            found.append(line_faults(m, result, raw))
        why, more = faults_of(info, m, mine, found, shared, _logs(run_dir, m.id))
        notes += more
        if why:
            faults[m.id] = why
    return Evidence(faults, tuple(notes))


def _logs(run_dir: Path, measurement: str) -> list[str]:
    folder = run_dir / "raw" / measurement
    return [f"raw/{measurement}/{path.name}" for path in folder.iterdir()] if folder.is_dir() else []


def _content(root: str, name: str) -> bytes | None:
    """A raw log; None where it is missing, no ordinary file, or leads out of the run, whatever lies there."""
    path = os.path.realpath(os.path.join(root, name))  # noqa: PTH118 - thousands of logs
    if not path.startswith(f"{root}{os.sep}") or not os.path.isfile(path):  # noqa: PTH113
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return None
