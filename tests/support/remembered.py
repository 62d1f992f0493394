"""A run whose lines were read once, and who reads it again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from validation.model import VerdictDoc
from validation.run import log_state, raw_logs, remembered
from validation.run.read import Run
from validation.run.rejudge import judge_files

Read = list[str]


def lines_read(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Read:
    """The measurements whose logs are read from now on, in their order. Small runs are remembered, too, and at once,
    in `folder`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(remembered, "LEAST", 1)
    monkeypatch.setattr(log_state, "SETTLED_NS", 0)
    known: Read = []
    faults = raw_logs.line_faults

    def line_faults(m: Any, result: Any, raw: Any) -> list[str]:
        known.append(m.id)
        return faults(m, result, raw)

    monkeypatch.setattr(raw_logs, "line_faults", line_faults)
    return known


def judged(run: Path, read: Read) -> VerdictDoc:
    """The verdict, by what is known; `read` tells of this judging alone."""
    time.sleep(0.01)  # more than a step of a file's times here
    read.clear()
    return judge_files(run, again=True)


def all_of(run: Path) -> list[str]:
    return sorted(result.measurement for result in Run(run).results)


def file_of(run: Path, end: str = ".sqlite") -> Path:
    return remembered.path_of(run).with_suffix(end)


def linked(path: Path) -> None:
    outside = path.parents[3] / "outside"
    path.rename(outside)
    path.symlink_to(outside)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)
