"""What was found when the raw logs of a run were last read on this machine: one SQLite file of this user's cache.

It stands outside of the run: whoever edits the run does not edit it, and a run that came from elsewhere has none.
docs/explanation/evidence.md says when raw logs are not read once more, and why no damage gains by it. Any program that
opens SQLite reads it; nothing of it is ever run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import sqlite3
import stat
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import pydantic

from validation.base import bounded
from validation.base.files import cache_folder, ours
from validation.judging.run_data import Evidence
from validation.model import Denied, Result
from validation.model.base import ResultStatus
from validation.model.sample_columns import Column, Columns, Row, in_columns
from validation.rules.release import release
from validation.run.log_state import State

LEAST = 500
"""Results of a run below which nothing is kept of it: reading all its raw logs takes a tenth of a second."""
KEPT = 30
"""Runs of which something is kept: of 14,405 results it is 7 MB."""
MOST_BYTES = 512 * bounded.MIB
"""A file with more is none of these: of 225,000 results it is 100 MB."""
_STATES = frozenset(get_args(ResultStatus))
_TABLES = {
    "about": "name TEXT, value TEXT",
    "folders": "measurement TEXT, digest TEXT, logs TEXT",
    "results": "line INTEGER, measurement TEXT, attempt INTEGER, status TEXT, error TEXT, denied TEXT, facts TEXT,"
    " form TEXT, line_end INTEGER, faults TEXT",
    "places": "place INTEGER, lines TEXT, ends TEXT",
    "samples": "metric TEXT, unit TEXT, place INTEGER, sample_values TEXT",
}
_SCHEMA = [("table", name, f"CREATE TABLE {name} ({columns})") for name, columns in sorted(_TABLES.items())]


@dataclass(frozen=True)
class Lines:
    """results.jsonl of a run as it stands, and a hash of what decides what is wrong with it, beside it and the logs."""

    run: str
    identity: str
    text: bytes


@dataclass(frozen=True)
class Known:
    """What was found when all was read. `documents`: of which documents it is known that they agree; `lines`: how many
    lines of results.jsonl were looked at; `whole`: the run has no more of them now; `faults`: line (from 0) -> faults,
    for lines with some; `state`: that in which the folders of raw logs were read; `evidence`: what it came to, None
    where something may have changed that no state shows; `columns`: its results, None unless `whole`.
    """

    documents: str
    lines: int
    whole: bool
    faults: Mapping[int, Sequence[str]]
    state: State
    evidence: Evidence | None
    columns: Columns | None


@dataclass(frozen=True)
class LogsRead:
    """`evidence`: what is wrong with the results; `faults`: those of each line (from 0) that has some; `unsure`:
    measurements with logs outside of their own folder.
    """

    evidence: Evidence
    faults: Mapping[int, Sequence[str]]
    unsure: frozenset[str]


# --- read ----------------------------------------------------------------------------------------------------------


def is_kept(run_dir: Path) -> bool:
    """Whether something is kept of a run, whatever it is."""
    try:
        return path_of(run_dir).exists()
    except (OSError, RuntimeError):
        return False


def recall(run_dir: Path, lines: Lines) -> Known | None:
    """What is known of a run as its plan and its lines are now; None where that is nothing."""
    try:
        path = path_of(run_dir)
        if not _intact(path):
            return None
        with _opened(path) as base:
            return _known(base, lines)
    except (bounded.TooMuch, OSError, RuntimeError, sqlite3.Error, ValueError, LookupError, TypeError, OverflowError):
        return None  # not as this release writes it


def _intact(path: Path) -> bool:
    """Whether a file is this user's own, not too large, and what was written. OSError where it is not there."""
    sum_ = path.with_suffix(".sha256")
    if not ours(path.parent.parent, path.parent, path, sum_):
        return False
    if not all(stat.S_ISREG(one.lstat().st_mode) for one in (path, sum_)) or path.lstat().st_size > MOST_BYTES:
        return False
    return bounded.read_file(sum_, 1024) == _sum_of(path, path.name)


def _sum_of(path: Path, name: str) -> bytes:
    """What `sha256sum --check` reads for a file that is to have a name."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
    return f"{sha256.hexdigest()}  {name}\n".encode()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A file of this release, read only, with nothing but its tables in it: no view, trigger or function is run."""
    base = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
    try:
        for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
            base.execute(f"PRAGMA {setting}")
        if base.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall() != _SCHEMA:
            raise ValueError("other tables than this release writes")
        yield base
    finally:
        base.close()


def _known(base: sqlite3.Connection, lines: Lines) -> Known | None:
    about = dict(base.execute("SELECT name, value FROM about"))
    size = int(about["size"])
    if about["identity"] != lines.identity or len(lines.text) < size:
        return None
    if hashlib.sha256(memoryview(lines.text)[:size]).hexdigest() != about["sha256"]:
        return None
    whole = len(lines.text) == size
    folders = base.execute("SELECT measurement, digest, logs FROM folders").fetchall()
    faults = base.execute("SELECT line, faults FROM results WHERE faults IS NOT NULL")
    evidence = json.loads(about["evidence"]) if whole else None
    return Known(
        documents=about["documents"],
        lines=int(about["lines"]),
        whole=whole,
        faults={line: json.loads(text) for line, text in faults},
        state=_state(folders, about["everything"] if whole else ""),
        evidence=None if evidence is None else Evidence(evidence["faults"], tuple(evidence["notes"])),
        columns=_columns(base, lines, int(about["lines"])) if whole else None,
    )


def _state(rows: Sequence[tuple[str, str, str]], everything: str) -> State:
    folders = {id_: told for id_, told, _ in rows if told}
    logs = {id_: names.split("/") if names else [] for id_, _, names in rows}
    return State(folders, frozenset(folders), logs, everything)


def _columns(base: sqlite3.Connection, lines: Lines, count: int) -> Columns:
    asked = "SELECT measurement, attempt, status, error, denied, facts, form, line_end FROM results ORDER BY line"
    rows = [
        Row(id_, attempt, status, error, _denied(denied), json.loads(facts) if facts else {}, form, end)
        for id_, attempt, status, error, denied, facts, form, end in base.execute(asked)
    ]
    if len(rows) != count or not all(_fits(row) for row in rows) or any(a.end >= b.end for a, b in pairwise(rows)):
        raise ValueError("other results")
    places = {
        place: (array("I", json.loads(of)), array("I", json.loads(ends)))
        for place, of, ends in base.execute("SELECT place, lines, ends FROM places")
    }
    columns = {}
    for metric, unit, place, values in base.execute("SELECT metric, unit, place, sample_values FROM samples"):
        column = Column(unit, *places[place], array("d", json.loads(values)))
        fits = len(column.lines) == len(column.ends) and column.lines[-1] < count
        if not fits or column.ends[-1] != len(column.values):
            raise ValueError(f"{metric}: other samples")
        columns[metric, unit] = column
    return Columns(lines.run, lines.text, rows, columns)


def _fits(row: Row) -> bool:
    """Whether each of its values is of its type: SQLite takes any in any column."""
    texts = isinstance(row.measurement, str) and isinstance(row.form, str) and isinstance(row.error, str | None)
    return texts and isinstance(row.attempt, int) and isinstance(row.end, int) and row.status in _STATES


def _denied(text: str | None) -> tuple[Denied, ...]:
    return tuple(Denied.model_validate(one) for one in json.loads(text)) if text else ()


# --- written -------------------------------------------------------------------------------------------------------


def columns_of(results: Sequence[Result], lines: Lines) -> Columns | None:
    """The results of all lines as columns; None where they cannot be, as of no parser's results."""
    ends = list(accumulate(len(line) + 1 for line in lines.text.split(b"\n")[:-1]))
    return in_columns(results, lines.run, lines.text, ends) if len(ends) == len(results) else None


def remember(
    run_dir: Path, lines: Lines, columns: Columns | None, state: State, found: LogsRead, documents: str
) -> None:
    """Remember what all lines of a run came to. `documents`: those that contradict each other nowhere, "" where they
    were not looked at. What the disk refuses is not kept: the next one takes longer, and that is all.
    """
    if columns is None:
        return
    unsure, evidence = found.unsure, found.evidence
    settled = {id_: told for id_, told in state.folders.items() if id_ in state.settled and id_ not in unsure}
    sure = not unsure and len(settled) == len(state.folders)
    said = {"faults": dict(evidence.faults), "notes": list(evidence.notes)} if sure else None
    about = {
        "identity": lines.identity,
        "documents": documents,
        "size": str(len(lines.text)),
        "sha256": hashlib.sha256(lines.text).hexdigest(),
        "lines": str(len(columns.rows)),
        "everything": state.everything if sure else "",
        "evidence": json.dumps(said),
    }
    names = state.logs if sure and state.everything else {}
    folders = [(id_, settled.get(id_, ""), "/".join(names.get(id_, ()))) for id_ in {**settled, **names}]
    with contextlib.suppress(OSError, RuntimeError, sqlite3.Error, UnicodeEncodeError):
        write(path_of(run_dir), about, folders, columns, found.faults)


def write(
    path: Path,
    about: Mapping[str, str],
    folders: Iterable[tuple[str, str, str]],
    columns: Columns,
    faults: Mapping[int, Sequence[str]],
) -> None:
    """Write a file of what is known, whole or not at all. OSError or sqlite3.Error where that cannot be."""
    for folder in (path.parent.parent, path.parent):  # each by itself: parents of a folder are made by the umask
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_room(path.parent)
    part, sum_ = (path.with_name(f".{path.name}.{os.getpid()}.{end}") for end in ("part", "sum"))
    for new in (part, sum_):
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    try:
        with contextlib.closing(sqlite3.connect(part)) as base, base:
            base.execute("PRAGMA journal_mode = OFF")
            for _, _, made in _SCHEMA:
                base.execute(made)
            for table, rows in _tables(about, folders, columns, faults).items():
                marks = ", ".join("?" * len(_TABLES[table].split(",")))
                base.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - our own names
        if part.stat().st_size <= MOST_BYTES:
            sum_.write_bytes(_sum_of(part, path.name))
            sum_.replace(path.with_suffix(".sha256"))
            part.replace(path)
    finally:
        for new in (part, sum_):
            new.unlink(missing_ok=True)


def _tables(
    about: Mapping[str, str],
    folders: Iterable[tuple[str, str, str]],
    columns: Columns,
    faults: Mapping[int, Sequence[str]],
) -> dict[str, Iterable[tuple[Any, ...]]]:
    """The rows of each table. Metrics that the very same lines have share these."""
    places: dict[tuple[bytes, bytes], int] = {}
    lines: list[tuple[int, str, str]] = []
    samples = []
    for (metric, unit), column in columns.by_metric.items():
        key = column.lines.tobytes(), column.ends.tobytes()
        if key not in places:
            places[key] = len(places)
            lines.append((places[key], json.dumps(column.lines.tolist()), json.dumps(column.ends.tolist())))
        samples.append((metric, unit, places[key], json.dumps(column.values.tolist())))
    results = (
        (
            line, row.measurement, row.attempt, row.status, row.error,
            json.dumps([one.model_dump() for one in row.denied]) if row.denied else None,
            json.dumps(row.plain) if row.plain else None, row.form, row.end,
            json.dumps(list(faults[line])) if line in faults else None,
        )
        for line, row in enumerate(columns.rows)
    )  # fmt: skip
    return {"about": about.items(), "folders": folders, "results": results, "places": lines, "samples": samples}


def _make_room(folder: Path) -> None:
    """Remove what is kept of the runs that were judged longest ago."""
    with contextlib.suppress(OSError):
        files = sorted(folder.glob("*.sqlite"), key=lambda path: path.lstat().st_mtime_ns, reverse=True)
        for old in files[KEPT - 1 :]:
            old.with_suffix(".sha256").unlink(missing_ok=True)
            old.unlink()


def path_of(run_dir: Path) -> Path:
    """Where something is kept of a run. OSError or RuntimeError where this user has no home."""
    return cache_folder("checked") / f"{digest(os.path.realpath(run_dir))}.sqlite"


@cache
def toolkit() -> str:
    """This toolkit as it is installed: its release, its files by size and time, and what else reads with it."""
    files = []
    for folder, _, names in os.walk(Path(__file__).resolve().parents[1]):
        for name in names:
            if name.endswith((".py", ".yml")):
                path = os.path.join(folder, name)  # noqa: PTH118
                try:
                    status = os.stat(path)  # noqa: PTH116
                except OSError:
                    files.append(path)  # gone meanwhile
                    continue
                files.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return digest(release(), platform.python_version(), pydantic.VERSION, *sorted(files))


def digest(*words: str) -> str:
    """One hash for words in their order."""
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()
