"""A folder's archive from a GPU server, unpacked here: all of it comes into the folder, whoever controls that server.

No link is followed on the way to a file, whoever made it. Files, folders and links within the folder are taken,
devices, other links and the bits that lend a user's rights (setuid, setgid) are not. What is read of headers is
bounded.
"""

from __future__ import annotations

import os
import stat
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

#: Headers of one file: two paths of 4096 bytes and its times, many times over.
MOST_HEADER_BYTES = 1 << 20
_PIECE = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: What is at the end of every archive: zeros.
_END_BYTES = 1024
_LEAVES = "is a link that leaves the folder"
#: Of a path: what Linux's programs can name, and more folders than any project has. Each folder on the way costs
#: memory here, whoever sends a path.
_MOST_PATH_BYTES, _MOST_DEEP = 4096, 200
#: Names of so many files are shown, and of each so many characters.
_SHOWN, _SHOWN_CHARACTERS = 3, 200

Parts = tuple[str, ...]


class HostileArchive(Exception):
    """Something that no tar of ours writes."""


class _Bounded:
    """A stream of which so many bytes may be read until more are allowed."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left = stream, 0
        self.tail = b""

    def allow(self, size_bytes: int) -> None:
        """From now on."""
        self._left = size_bytes

    def read(self, size: int) -> bytes:
        if self._left <= 0:
            raise HostileArchive("it has a header without an end")
        data = self._stream.read(size)
        self._left -= len(data)
        self.tail = (self.tail + data)[-_END_BYTES:]
        return data


def parts_of(name: str) -> Parts | None:
    """A name as tar gives those of `.`: () for the folder itself, None for any other form, which could be another
    spelling of a file that stays as it is."""
    if name in (".", "./"):
        return ()
    head, *parts = name.rstrip("/").split("/")
    if head != "." or not parts or any(part in ("", ".", "..") for part in parts) or "\0" in name:
        return None
    if len(parts) > _MOST_DEEP or len(name) > _MOST_PATH_BYTES:
        return None
    return tuple(parts)


def _mtime_ns(member: tarfile.TarInfo) -> int:
    """To the nanosecond, which the float of tarfile does not have."""
    whole, _, rest = member.pax_headers.get("mtime", "").partition(".")
    if not whole.lstrip("-").isdigit() or (rest and not rest.isdigit()):
        return int(member.mtime) * 10**9
    part = int(rest[:9].ljust(9, "0")) if rest else 0
    return int(whole) * 10**9 + (-part if whole.startswith("-") else part)


def shown(parts: Parts | str) -> str:
    """A path of the archive for people: one line, whatever is in it."""
    text = parts if isinstance(parts, str) else "/".join(parts)
    if len(text) > _SHOWN_CHARACTERS:
        text = f"{text[:_SHOWN_CHARACTERS]}…"
    return text if text.isprintable() else ascii(text)


@dataclass
class Some:
    """How many there are, and the first of them."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, words: str) -> None:
        """One more."""
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append(words)

    def __str__(self) -> str:
        """For people."""
        more = f" and {self.count - len(self.first)} more" if self.count > len(self.first) else ""
        return "; ".join(self.first) + more


@dataclass(frozen=True)
class Outcome:
    """refused: what was left out, each a path with its reason. faults: what this machine could not write."""

    refused: Some = field(default_factory=Some)
    faults: Some = field(default_factory=Some)


class Folder:
    """Where an archive is unpacked. stays: whether a path in it is none of the archive's, whatever that has."""

    def __init__(self, folder: Path, stays: Callable[[Parts], bool], newer: bool = False) -> None:
        """newer: of what is there already older files alone are replaced."""
        self._root, self._stays, self._newer = folder.resolve(), stays, newer
        self._at: Parts = ()
        self._here = os.open(self._root, _FOLDER)
        self._umask = os.umask(0)
        os.umask(self._umask)
        self._made: dict[Parts, tuple[int, int]] = {}  # folders that were not here: their mode and time
        self._links: list[Parts] = []
        self.outcome = Outcome()

    def close(self) -> None:
        """After which nothing is written."""
        os.close(self._here)

    def take(self, stream: IO[bytes]) -> Outcome:
        """Everything that may come. HostileArchive, tarfile.TarError where it is no archive or not a whole one."""
        bounded = _Bounded(stream)
        bounded.allow(MOST_HEADER_BYTES)
        with tarfile.open(fileobj=bounded, mode="r|") as archive:  # type: ignore[call-overload]
            while (member := archive.next()) is not None:
                archive.members, archive.pax_headers = [], {}  # of members before this one nothing stays in memory
                bounded.allow(max(member.size, 0) + MOST_HEADER_BYTES)
                self._take(archive, member)
        bounded.allow(MOST_HEADER_BYTES)
        while bounded.read(_PIECE):  # what pads it
            pass
        if bounded.tail.strip(b"\0"):
            raise HostileArchive("it is not a whole archive")
        for parts in self._links:  # those that came later may lead them elsewhere
            if not self._is_inside(parts):
                self._refuse(parts, _LEAVES)
                self._away(parts)
        for parts, (mode, when) in sorted(self._made.items(), reverse=True):  # when nothing more comes in
            with suppress(OSError, OverflowError):
                there = self._inside(parts)
                os.fchmod(there, mode & 0o777 & ~self._umask)
                os.utime(there, ns=(when, when))
        return self.outcome

    def _refuse(self, name: Parts | str, why: str) -> None:
        self.outcome.refused.add(f"{shown(name)} {why}")

    def _take(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = parts_of(member.name)
        if parts is None:
            return self._refuse(member.name, "is no path in the folder")
        if self._stays(parts):
            return None
        try:
            if member.isdir():
                self._inside(parts)
                if parts in self._made:
                    self._made[parts] = member.mode, _mtime_ns(member)
            elif not parts:
                self._refuse(".", "is no folder there")
            elif member.issparse() or not (member.isreg() or member.issym() or member.islnk()):
                self._special(parts, member)
            elif not self._is_newer_here(parts, member):
                self._entry(archive, parts, member)
        except (OSError, ValueError, OverflowError) as fault:  # a time that no clock reaches is the last
            why = fault.strerror if isinstance(fault, OSError) else str(fault)
            self.outcome.faults.add(f"{shown(parts)}: {why}")

    def _entry(self, archive: tarfile.TarFile, parts: Parts, member: tarfile.TarInfo) -> None:
        if member.issym():
            self._link(parts, member)
        elif member.islnk():
            self._same_file(parts, member)
        else:
            self._file(archive, parts, member)

    def _inside(self, parts: Parts) -> int:
        """A descriptor of that folder, which is made where it is missing; a link in its place is replaced."""
        if parts == self._at:
            return self._here
        here = os.open(self._root, _FOLDER)
        try:
            for depth in range(1, len(parts) + 1):
                below = self._step(here, parts[:depth])
                os.close(here)
                here = below
        except BaseException:
            os.close(here)
            raise
        os.close(self._here)
        self._here, self._at = here, parts
        return here

    def _step(self, here: int, parts: Parts) -> int:
        """The last of these in the folder of the others."""
        name = parts[-1]
        try:
            return os.open(name, _FOLDER, dir_fd=here)
        except FileNotFoundError:
            pass
        except OSError:
            if not stat.S_ISLNK(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
                raise
            os.unlink(name, dir_fd=here)
        os.mkdir(name, 0o700, dir_fd=here)
        self._made[parts] = 0o755, time.time_ns()
        return os.open(name, _FOLDER, dir_fd=here)

    def _there(self, parts: Parts) -> os.stat_result | None:
        """What is here under that name, itself."""
        with suppress(FileNotFoundError):
            return os.stat(parts[-1], dir_fd=self._inside(parts[:-1]), follow_symlinks=False)
        return None

    def _is_newer_here(self, parts: Parts, member: tarfile.TarInfo) -> bool:
        there = self._there(parts) if self._newer else None
        return there is not None and not stat.S_ISDIR(there.st_mode) and there.st_mtime_ns > _mtime_ns(member)

    def _special(self, parts: Parts, member: tarfile.TarInfo) -> None:
        there = self._there(parts)
        if not (member.isfifo() and there is not None and stat.S_ISFIFO(there.st_mode)):  # it went there from here
            self._refuse(parts, "is neither a file nor a folder nor a link")

    def _away(self, parts: Parts) -> int:
        """The folder of that name, in which it is free now."""
        here = self._inside(parts[:-1])
        with suppress(FileNotFoundError):
            os.unlink(parts[-1], dir_fd=here)
        return here

    def _file(self, archive: tarfile.TarFile, parts: Parts, member: tarfile.TarInfo) -> None:
        source = archive.extractfile(member)
        assert source is not None
        new = os.open(parts[-1], _NEW, 0o600, dir_fd=self._away(parts))
        with os.fdopen(new, "wb") as stream:
            while data := source.read(_PIECE):
                stream.write(data)
            stream.flush()
            os.fchmod(new, member.mode & 0o777 & ~self._umask)
            os.utime(new, ns=(_mtime_ns(member), _mtime_ns(member)))

    def _link(self, parts: Parts, member: tarfile.TarInfo) -> None:
        there = self._there(parts)
        same = there is not None and stat.S_ISLNK(there.st_mode)
        if same and os.readlink(parts[-1], dir_fd=self._inside(parts[:-1])) == member.linkname:
            return  # it went there from here
        if not self._leads_inside(parts, member.linkname):
            self._refuse(parts, _LEAVES)
            return
        os.symlink(member.linkname, parts[-1], dir_fd=self._away(parts))
        self._links.append(parts)
        when = _mtime_ns(member)
        os.utime(parts[-1], ns=(when, when), dir_fd=self._inside(parts[:-1]), follow_symlinks=False)

    def _leads_inside(self, parts: Parts, target: str) -> bool:
        """Whether a link's target is in the folder, whatever comes there later: its `..` are all at the beginning."""
        ahead = [part for part in target.split("/") if part not in ("", ".")]
        up = next((n for n, part in enumerate(ahead) if part != ".."), len(ahead))
        if target.startswith("/") or "\0" in target or ".." in ahead[up:] or up >= len(parts):
            return False
        end = (*parts[: len(parts) - 1 - up], *ahead[up:])
        return not self._stays(end) and self._is_inside(end)

    def _is_inside(self, parts: Parts) -> bool:
        """Whether a path, with every link followed, is in the folder and none of what stays."""
        try:
            real = self._root.joinpath(*parts).resolve()
            return not self._stays(real.relative_to(self._root).parts)
        except (OSError, RuntimeError, ValueError):  # elsewhere, or in a circle
            return False

    def _same_file(self, parts: Parts, member: tarfile.TarInfo) -> None:
        """A second name of a file that comes back too."""
        first = parts_of(member.linkname)
        there = self._there(first) if first and not self._stays(first) else None
        if first is None or there is None or not stat.S_ISREG(there.st_mode):
            self._refuse(parts, "is a second name of a file that did not come back")
            return
        if first != parts:
            where = os.dup(self._inside(first[:-1]))
            try:
                os.link(first[-1], parts[-1], src_dir_fd=where, dst_dir_fd=self._away(parts), follow_symlinks=False)
            finally:
                os.close(where)


def unpack(stream: IO[bytes], folder: Path, stays: Callable[[Parts], bool], newer: bool = False) -> Outcome:
    """As Folder and its take."""
    there = Folder(folder, stays, newer)
    try:
        return there.take(stream)
    finally:
        there.close()
