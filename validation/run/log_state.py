"""The state of the folders of a run's raw logs: what shows that something in them changed since they were read.

The kernel sets a folder's time of change whenever a name in it comes, goes or leads elsewhere, and a file's when it is
written; neither can be set back by writing or by `touch`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SETTLED_NS = 2_000_000_000
"""How old a file's last change must be before its time can tell it from a later one: file systems count in steps of up
to 2 s."""
_SIZE = 16  # bytes of a folder's digest


@dataclass(frozen=True)
class State:
    """Of the folders of raw logs, by measurement: a digest of names, sizes, places and times of all that is in each, ""
    where it has none.

    `settled`: those in which everything is old enough for its times to tell. `logs`: the names in each folder;
    `everything`: a digest of the folders themselves and of all in them (`untouched`), "" where something of it is too
    young to tell.
    """

    folders: Mapping[str, str] = field(default_factory=dict)
    settled: frozenset[str] = frozenset()
    logs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    everything: str = ""

    def same(self, now: State, measurement: str) -> bool:
        """True where the folder of a measurement is `now` as it was here."""
        return bool(self.folders.get(measurement)) and self.folders[measurement] == now.folders.get(measurement)

    def all_same(self, now: State, measurements: Iterable[str]) -> bool:
        """True where all of them are, or still have no folder."""
        return all(self.folders.get(id_) == now.folders.get(id_) for id_ in measurements)


def look(run_dir: Path, last: State | None = None) -> State:
    """The state of all folders of raw logs, before any is read; `last` itself where nothing changed since. A link
    instead of a folder has none that tells.
    """
    if last is not None and untouched(run_dir, last):
        return last
    raw = _raw(run_dir)
    folders: dict[str, str] = {}
    logs: dict[str, Sequence[str]] = {}
    settled = set()
    before = time.time_ns() - SETTLED_NS
    everything = ""
    with contextlib.suppress(OSError):
        if os.path.islink(raw):  # noqa: PTH114
            return State()
        own = os.lstat(raw)
        digest, youngest = _begun(own), max(own.st_mtime_ns, own.st_ctime_ns)
        with os.scandir(raw) as entries:
            for folder in entries:
                folders[folder.name], logs[folder.name], newest, told = _state(folder)
                digest.update(told)
                youngest = max(youngest, newest)
                if newest < before and folders[folder.name]:
                    settled.add(folder.name)
        everything = digest.hexdigest() if youngest < before and all(folders.values()) else ""
    return State(folders, frozenset(settled), logs, everything)


def untouched(run_dir: Path, last: State) -> bool:
    """True where nothing was added to the folders of raw logs, taken away, renamed or written since `look` gave
    `last`.

    Of a folder with the same times the names are known, and each is looked at without listing the folder once more.
    """
    if not last.everything:
        return False
    try:
        raw = os.open(_raw(run_dir), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        digest = _begun(os.fstat(raw))
        for folder, names in last.logs.items():
            told = [_told(os.stat(folder, dir_fd=raw, follow_symlinks=False))]
            for name in names:
                told.append(_told(os.stat(f"{folder}/{name}", dir_fd=raw, follow_symlinks=False)))
            digest.update(b"".join(told))
    except (OSError, ValueError):
        return False
    finally:
        os.close(raw)
    return digest.hexdigest() == last.everything


_TOLD = struct.Struct("<QQQqqq")


def _told(s: os.stat_result) -> bytes:
    """What of a file's state tells one from another: type, place, size, and when it was written and changed, in ns."""
    return _TOLD.pack(s.st_mode, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)


def _raw(run_dir: Path) -> str:
    return os.path.join(os.path.realpath(run_dir), "raw")  # noqa: PTH118


def _begun(raw: os.stat_result) -> hashlib.blake2b:
    """The digest of `State.everything`, begun with the folder of all."""
    return hashlib.blake2b(_told(raw), digest_size=_SIZE)


def _state(folder: os.DirEntry[str]) -> tuple[str, list[str], int, bytes]:
    """The digest of a folder, "" where it has none, the names in it, when it or something in it was last changed, in
    ns, and what `State.everything` has of it.
    """
    if not folder.is_dir(follow_symlinks=False):
        return "", [], 0, b""
    states = {}
    try:
        own = folder.stat(follow_symlinks=False)  # before its names: one that comes meanwhile changes it
        newest = max(own.st_mtime_ns, own.st_ctime_ns)
        with os.scandir(folder.path) as logs:
            for log in logs:
                s = log.stat(follow_symlinks=False)
                newest = max(newest, s.st_mtime_ns, s.st_ctime_ns)
                states[log.name] = _told(s)
    except OSError:
        return "", [], 0, b""
    names = sorted(states)
    told = b"".join(states[name] for name in names)
    listed = "\0".join(names).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(listed + b"\0\0" + told, digest_size=_SIZE).hexdigest(), names, newest, _told(own) + told
