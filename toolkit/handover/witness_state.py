"""How far a witnessed list has come, kept in the run's directory until it has ended: killed anywhere, it goes on."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from toolkit import rundir
from toolkit.errors import UsageFault
from validation.base import bounded
from validation.measures.witness.witnessed import Line
from validation.model import Model
from validation.model.load import ConfigError, load_json

FOLDER, STATE = "witness", "state.json"
STEPS = 5
BEAT_S = 2.0
"""So often a watch writes down that it watches: what lies between two such lines was watched."""


_TIMES = {1: ("off_asked", "off_done"), 3: ("back_asked", "back_done"), 4: ("ended",)}
"""What each step writes down."""


class State(Model):
    """`step`: which of the test comes next, from 1. `times`: when the steps before were asked and done. `skipped`:
    tests that the witness left out in this pass, with the reason."""

    witness: str = ""
    test: str = ""
    step: int = Field(default=1, ge=1, le=STEPS)
    times: dict[str, float] = Field(default={})
    skipped: dict[str, str] = Field(default={})

    @model_validator(mode="after")
    def _timed(self) -> State:
        wanted = {name for step, names in _TIMES.items() if step < self.step for name in names}
        if missing := sorted(wanted - self.times.keys()):
            raise ValueError(f"step {self.step} has no moment {missing[0]} before it")
        return self


class Kept:
    """The state and the record of the test that is being led."""

    def __init__(self, run_dir: Path) -> None:
        """Nothing is written yet."""
        self.folder = run_dir / FOLDER

    @property
    def state(self) -> State:
        """As it was left; a new one where there is none."""
        path = self.folder / STATE
        try:
            return load_json(path, State) if path.exists() else State()
        except ConfigError as fault:
            raise UsageFault(f"{fault}; to begin this list again: rm -r {self.folder}") from None

    def write(self, state: State) -> None:
        """Whole or not at all."""
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as fault:
            raise UsageFault(f"{self.folder}: cannot be made: {fault.strerror or fault}; make room") from None
        rundir.write_document(self.folder / STATE, state)

    def record(self, test: str) -> Record:
        """The file of a test's lines."""
        try:
            return Record(self.folder / f"{test}.jsonl")
        except OSError as fault:
            words = f"{self.folder / test}.jsonl: {fault.strerror}; to begin this list again: rm -r {self.folder}"
            raise UsageFault(words) from None

    def begin(self, test: str) -> None:
        """A test from its first step on: what was watched of an earlier try is no part of it."""
        (self.folder / f"{test}.jsonl").unlink(missing_ok=True)

    def clear(self) -> None:
        """The list has ended."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Record:
    """What was watched, line by line: each is written at once, and a torn last one is left out."""

    def __init__(self, path: Path) -> None:
        """Open it to append; what is in it is of the same test, before a break."""
        path.parent.mkdir(exist_ok=True)
        self._path = path
        torn = path.exists() and not path.read_bytes().endswith(b"\n")
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        if torn:
            os.write(self._fd, b"\n")

    def put(self, said: dict[str, object]) -> None:
        """One line."""
        os.write(self._fd, json.dumps(said).encode() + b"\n")

    def close(self) -> None:
        """Nothing is pending."""
        os.close(self._fd)

    def read(self) -> tuple[list[Line], list[tuple[float, float]]]:
        """All lines, and the spans in which somebody watched."""
        lines, spans = list[Line](), list[tuple[float, float]]()
        for raw in bounded.read_file(self._path).splitlines():
            try:
                entry = json.loads(raw)
                if "begins" in entry:
                    spans.append((float(entry["begins"]), float(entry["begins"])))
                elif "beat" in entry and spans:
                    spans[-1] = (spans[-1][0], float(entry["beat"]))
                else:
                    lines.append(Line.model_validate(entry))
            except (ValueError, TypeError, ValidationError):
                continue  # the last line before a kill
        return sorted(lines, key=lambda line: line.at), spans


def still_away(lines: Sequence[Line], before: dict[tuple[str, str, str], Line]) -> list[str]:
    """What is not as it was before, in words."""
    now = {line.key: line for line in lines}
    return sorted(str(now[key]) for key, line in before.items() if key in now and now[key].value != line.value)
