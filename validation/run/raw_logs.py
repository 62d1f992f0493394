"""Reading the raw logs of a run: what they have against its results (`judging/documents.py` says what that can be)."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from validation.base.bounded import LOG_BYTES
from validation.judging.documents import Evidence, faults_of, line_faults, out_of_order, shared_logs
from validation.model import Plan, Result, RunInfo
from validation.model.load import ConfigError
from validation.run.log_state import State
from validation.run.remembered import Known, LogsRead


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
            if before is not None and number < before.lines and before.same(state, m.id):
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
        with open(path, "rb") as file:  # noqa: PTH123
            content = file.read(LOG_BYTES + 1)
    except OSError:
        return None
    if len(content) > LOG_BYTES:
        raise ConfigError(f"{path}: has more than {LOG_BYTES >> 20} MiB, which no raw log has; look at it")
    return content
