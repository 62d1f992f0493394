"""What is known of a run since its raw logs were last read on this machine, so that they need not be read each time.

It stands in this user's cache folder, not in the run: whoever edits the run does not edit it, and a run that came from
elsewhere has none. docs/explanation/evidence.md says when raw logs are not read once more, and why no damage gains
by it.
"""

from __future__ import annotations

import contextlib
import hashlib
import marshal
import os
import platform
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import pydantic

from validation.base.files import cache_folder
from validation.judging.documents import Evidence
from validation.model import Plan, Result
from validation.model.load import ConfigError
from validation.rules.release import release
from validation.run import plan_columns
from validation.run.columns import Columns, packed
from validation.run.frames import Frame, read_frames, write_frames
from validation.run.names import PLAN, RUN
from validation.run.read import Run

LEAST = 500
"""Results of a run below which nothing is kept of it: reading all its raw logs takes a tenth of a second."""
SETTLED_NS = 2_000_000_000
"""How old a file's last change must be before its time can tell it from a later one: file systems count in steps of up
to 2 s."""
KEPT = 30
"""Runs of which something is kept: of 14,405 results it is 3 MB."""
_SIZE = 16  # bytes of a folder's state
_FORM = 1
"""Of what is written here: another one is not read."""


@dataclass(frozen=True)
class State:
    """Of the folders of raw logs, by measurement: a digest of names, sizes, places and times of all that is in each.

    `settled`: those in which everything is old enough for its times to tell. `logs`: the names in each folder;
    `everything`: a digest of the folders themselves and of all in them (`untouched`), "" where something of it is too
    young to tell.
    """

    folders: Mapping[str, bytes] = field(default_factory=dict)
    settled: frozenset[str] = frozenset()
    logs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    everything: str = ""


@dataclass(frozen=True)
class Known:
    """What was found when all was read. `documents`: of which documents it is known that they agree; `lines`: how many
    lines of results.jsonl were looked at; `whole`: the run has no more of them now; `found`: line (from 0) -> faults,
    for lines with some; `folders`: the state in which each folder was read; `evidence`: what it came to, None where
    something may have changed that no state shows; `results`: those of the lines, from their columns; `logs`,
    `everything`: as of the state in which all was read.
    """

    documents: str
    lines: int
    whole: bool
    found: Mapping[int, Sequence[str]]
    folders: Mapping[str, bytes]
    evidence: Evidence | None
    results: list[Result] | None
    logs: Mapping[str, Sequence[str]]
    everything: str

    def same(self, state: State, measurement: str) -> bool:
        """True where the folder of a measurement is as it was when its logs were read."""
        return self.folders.get(measurement) == state.folders.get(measurement) is not None

    def all_same(self, state: State, measurements: Sequence[str]) -> bool:
        """True where all of them are, or still have no folder."""
        return all(self.folders.get(id_) == state.folders.get(id_) for id_ in measurements)


def documents_of(run: Run) -> str:
    """One hash for the documents of a run and the toolkit that looks at them."""
    return _hash(toolkit(), run.source(RUN).sha256, *(f"{name} {value}" for name, value in sorted(run.hashes.items())))


def look(run: Run) -> State:
    """The state of all folders of raw logs, before any is read. A link instead of a folder has none that tells."""
    raw = _raw(run)
    folders: dict[str, bytes] = {}
    logs: dict[str, Sequence[str]] = {}
    settled = set()
    before = time.time_ns() - SETTLED_NS
    everything = ""
    with contextlib.suppress(OSError):
        if os.path.islink(raw):  # noqa: PTH114
            return State()
        digest, youngest = _begun(os.lstat(raw))
        with os.scandir(raw) as found:
            for folder in found:
                folders[folder.name], logs[folder.name], newest, seen = _state(folder)
                digest.update(seen)
                youngest = max(youngest, newest)
                if newest < before and folders[folder.name]:
                    settled.add(folder.name)
        everything = digest.hexdigest() if youngest < before and all(folders.values()) else ""
    return State(folders, frozenset(settled), logs, everything)


def untouched(run: Run, before: Known) -> bool:
    """True where nothing was added to the folders of raw logs, taken away, renamed or written since they were read.

    The kernel sets a folder's time of change whenever a name in it comes, goes or leads elsewhere: of one with the same
    times the names are known, and each is looked at without listing the folder once more.
    """
    if not before.everything:
        return False
    try:
        raw = os.open(_raw(run), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        digest, _ = _begun(os.fstat(raw))
        for folder, logs in before.logs.items():
            seen = [_told(os.stat(folder, dir_fd=raw, follow_symlinks=False))]
            for log in logs:
                seen.append(_told(os.stat(f"{folder}/{log}", dir_fd=raw, follow_symlinks=False)))
            digest.update(marshal.dumps(seen, 2))
    except (OSError, ValueError):
        return False
    finally:
        os.close(raw)
    return digest.hexdigest() == before.everything


_told = attrgetter("st_mode", "st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
"""What of a file's state tells one from another: type, place, size, and when it was written and changed, in ns."""


def _raw(run: Run) -> str:
    return os.path.join(os.path.realpath(run.folder), "raw")  # noqa: PTH118


def _begun(raw: os.stat_result) -> tuple[hashlib.blake2b, int]:
    """The digest of `State.everything`, begun with the folder of all, and when that was last changed, in ns."""
    return hashlib.blake2b(marshal.dumps(_told(raw), 2), digest_size=_SIZE), max(raw.st_mtime_ns, raw.st_ctime_ns)


def _state(folder: os.DirEntry[str]) -> tuple[bytes, list[str], int, bytes]:
    """The digest of a folder, b"" where it has none, the names in it, when it or something in it was last changed, in
    ns, and what `State.everything` has of it.
    """
    if not folder.is_dir(follow_symlinks=False):
        return b"", [], 0, b""
    seen = {}
    try:
        own = folder.stat(follow_symlinks=False)  # before its names: one that comes meanwhile changes it
        newest = max(own.st_mtime_ns, own.st_ctime_ns)
        with os.scandir(folder.path) as logs:
            for log in logs:
                s = log.stat(follow_symlinks=False)
                newest = max(newest, s.st_mtime_ns, s.st_ctime_ns)
                seen[log.name] = _told(s)
    except OSError:
        return b"", [], 0, b""
    names = sorted(seen)
    # version 2 has no references: equal lists are equal bytes
    digest = hashlib.blake2b(marshal.dumps([(name, seen[name]) for name in names], 2), digest_size=_SIZE).digest()
    return digest, names, newest, marshal.dumps([_told(own), *(seen[name] for name in names)], 2)


def known(run: Run) -> Known | None:
    """What is known of a run as its plan and its lines are now; None where that is nothing."""
    try:
        path = _path(run.folder)
    except (OSError, RuntimeError):
        return None
    try:
        (state,), _ = read_frames(path.with_suffix(".state"))
        said, text = state.said, run.text
        if said["identity"] != _identity(run) or len(text) < said["size"]:
            return None
        if hashlib.sha256(memoryview(text)[: said["size"]]).hexdigest() != said["sha256"]:
            return None
        digests = state.columns["folders"].tobytes()
        folders = {id_: digests[at * _SIZE : (at + 1) * _SIZE] for at, id_ in enumerate(said["folders"])}
        evidence = None
        whole = len(text) == said["size"]
        if said["evidence"] is not None and whole:
            evidence = Evidence(said["evidence"]["faults"], tuple(said["evidence"]["notes"]))
        frames = read_frames(path.with_suffix(".columns"))[0] if whole else []
        return Known(
            documents=said["documents"],
            lines=said["lines"],
            whole=whole,
            found={int(line): faults for line, faults in said["found"].items()},
            folders=folders,
            evidence=evidence,
            results=_results(run, frames, said["sha256"], said["lines"]),
            logs={id_: names.split("/") if names else [] for id_, names in said["logs"].items()},
            everything=said["everything"],
        )
    except ConfigError:
        return None  # whoever reads the documents in their order tells of it
    except (ValueError, KeyError, TypeError, IndexError):
        return None  # not as this release writes it


def planned(run: Run) -> Plan | None:
    """The plan of a run, as it was read from a plan.json of the very same bytes; None where that is not known."""
    try:
        (frame,), _ = read_frames(_path(run.folder).with_suffix(".plan"))
        if frame.said["sha256"] != run.hashes.get(PLAN) or frame.said["toolkit"] != toolkit():
            return None
        return plan_columns.unpacked(frame)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, IndexError):
        return None


def _results(run: Run, frames: Sequence[Frame], sha256: str, lines: int) -> list[Result] | None:
    if not frames or frames[-1].said["sha256"] != sha256 or not _by_this_toolkit(frames):
        return None
    begins, ends = [f.said["begin"] for f in frames], [f.columns["end"][-1] for f in frames]
    if begins != [0, *ends[:-1]] or sum(len(f.columns["end"]) for f in frames) != lines:
        return None  # two that wrote at a time
    return [result for frame in frames for result in Columns(frame, run.info.run, run.text).results()]


def keep(
    run: Run,
    state: State,
    found: Mapping[int, Sequence[str]],
    unsure: frozenset[str],
    evidence: Evidence,
    agree: bool,
) -> None:
    """Remember what all lines of a run came to. `found`: line -> faults, of lines with some; `unsure`: measurements
    whose logs lie where no state of a folder shows a change; `agree`: the documents of the run were looked at, and
    contradict each other nowhere.
    """
    results = run.results
    if len(results) < LEAST or run.torn:
        return
    folders = {id_: digest for id_, digest in state.folders.items() if id_ in state.settled and id_ not in unsure}
    sure = not unsure and len(folders) == len(state.folders)
    size, sha256 = len(run.text), hashlib.sha256(run.text).hexdigest()
    said: dict[str, Any] = {
        "identity": _identity(run),
        "documents": documents_of(run) if agree else "",
        "size": size,
        "sha256": sha256,
        "lines": len(results),
        "found": {str(line): list(faults) for line, faults in found.items()},
        "folders": list(folders),
        "logs": {id_: "/".join(names) for id_, names in state.logs.items()} if sure and state.everything else {},
        "everything": state.everything if sure else "",
        "evidence": {"faults": dict(evidence.faults), "notes": list(evidence.notes)} if sure else None,
    }
    try:
        path = _path(run.folder)
    except (OSError, RuntimeError):
        return
    _make_room(path.parent)
    _grow(run, path.with_suffix(".columns"), sha256)
    write_frames(path.with_suffix(".state"), [Frame(said, {"folders": array("B", b"".join(folders.values()))})])
    _keep_plan(run, path.with_suffix(".plan"))


def _keep_plan(run: Run, path: Path) -> None:
    here = {"sha256": run.hashes.get(PLAN, ""), "toolkit": toolkit()}
    frames, _ = read_frames(path)
    if here["sha256"] and not (frames and here.items() <= frames[0].said.items()):
        made = plan_columns.packed(run.plan)
        write_frames(path, [Frame({**made.said, **here}, made.columns)])


def _make_room(folder: Path) -> None:
    """Remove what is kept of the runs that were judged longest ago."""
    with contextlib.suppress(OSError):
        states = sorted(folder.glob("*.state"), key=lambda path: path.lstat().st_mtime_ns, reverse=True)
        for old in states[KEPT - 1 :]:
            for end in (".columns", ".plan"):
                old.with_suffix(end).unlink(missing_ok=True)
            old.unlink()


def _by_this_toolkit(frames: Sequence[Frame]) -> bool:
    return all(frame.said.get("toolkit") == toolkit() for frame in frames)


def _grow(run: Run, path: Path, sha256: str) -> None:
    """Append the columns of the lines that are not there yet; begin anew where others are there."""
    frames, behind = read_frames(path)
    begin, lines = 0, 0
    if frames and _by_this_toolkit(frames):
        if frames[-1].said["sha256"] == sha256:
            return
        begin, lines = frames[-1].columns["end"][-1], sum(len(frame.columns["end"]) for frame in frames)
    if not begin or hashlib.sha256(memoryview(run.text)[:begin]).hexdigest() != frames[-1].said["sha256"]:
        begin, lines, behind = 0, 0, 0
    ends, at = [], begin
    for _ in run.results[lines:]:
        at = run.text.index(b"\n", at) + 1
        ends.append(at)
    made = packed(run.results[lines:], begin, ends)
    if made is not None and at == len(run.text):
        write_frames(path, [Frame({**made.said, "sha256": sha256, "toolkit": toolkit()}, made.columns)], behind)


def _identity(run: Run) -> str:
    """What decides, beside lines and logs, what is wrong with a result."""
    return _hash(str(_FORM), toolkit(), run.info.run, run.info.created, run.hashes.get(PLAN, ""))


def _path(folder: Path) -> Path:
    return cache_folder("checked") / _hash(os.path.realpath(folder))


@cache
def toolkit() -> str:
    """This toolkit as it is installed: its release, its files by size and time, and what else reads with it."""
    here = Path(__file__).resolve().parent
    files = []
    for folder, _, names in os.walk(here):
        for name in names:
            if name.endswith((".py", ".yml")):
                path = os.path.join(folder, name)  # noqa: PTH118
                try:
                    status = os.stat(path)  # noqa: PTH116
                except OSError:
                    files.append(path)  # gone meanwhile
                    continue
                files.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return _hash(release(), platform.python_version(), pydantic.VERSION, *sorted(files))


def _hash(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()
