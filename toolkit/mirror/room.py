"""The folder of a mirror: what is in it already, whether the rest has room, and what a medium refuses."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.mirror.documents import Package, Plan, Repository, size_words
from toolkit.mirror.tools import ToolFault
from validation.base.counting import number_of

#: For indices, and what a file system takes for itself.
MARGIN = 64 << 20
_BLOCK = 1 << 20
FULL_AT = 1 << 20
"""Bytes that are free below which a tool that failed did so because the medium is full. Project default."""
FAT_MOST = (4 << 30) - 1
"""Bytes of the largest file of FAT32 (Microsoft's specification of FAT)."""
_FAT = ("vfat", "msdos")
_ODD = '":*?<>|\\'
"""What no name on FAT, exFAT and NTFS has."""
_UNTRUSTED = "the mirror is not signed, so no node trusts it"
_GOES_ON = "run the same command, which goes on where it ended"


def sha256(path: Path, asked_to_end: Callable[[], bool] = lambda: False) -> str:
    """Of a file. OSError. Where it is asked to end, that of a part."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while not asked_to_end() and (block := file.read(_BLOCK)):
            digest.update(block)
    return digest.hexdigest()


def lacking(plan: Plan, folder: Path) -> list[tuple[Repository, Package]]:
    """What the mirror has not got, or not whole. A file of the right size was checked when it came, and again by
    `verify`."""
    found = []
    for repository in plan.repositories:
        for package in repository.packages:
            place = folder / repository.folder / package.file
            try:
                there = place.lstat()
                whole = stat.S_ISREG(there.st_mode) and there.st_size == package.size
            except OSError:
                whole = False
            if not whole:
                found.append((repository, package))
    return found


def refuse_too_small(folder: Path, size: int) -> None:
    """UsageFault where the medium has no room for as many bytes."""
    free = shutil.disk_usage(folder).free
    if free < size + MARGIN:
        raise UsageFault(
            f"{folder}: has {size_words(free)} free, and {size_words(size + MARGIN)} are needed; make room, or name a "
            "folder on another medium; nothing was downloaded"
        )


def still_to_come(plan: Plan, folder: Path) -> int:
    """Bytes of the packages that the mirror lacks, and what indices take."""
    return sum(package.size for _, package in lacking(plan, folder)) + MARGIN


def is_full(folder: Path, size: int) -> bool:
    """Whether a medium has no room for as many bytes more, or cannot be written at all."""
    with suppress(OSError):
        return _read_only(folder) or shutil.disk_usage(folder).free < size
    return False


def refuse_limits(plan: Plan, folder: Path) -> None:
    """UsageFault where the file system has no such files: over 4 GiB, with such names, or that differ in case alone."""
    files = {f"{r.folder}/{p.file}": p.size for r in plan.repositories for p in r.packages}
    files |= {f"engines/{Path(one).name}": Path(one).stat().st_size for one in plan.engines if Path(one).is_file()}
    kind = file_system(folder)
    large = [name for name, size in files.items() if kind in _FAT and size > FAT_MOST]
    odd = [name for name in files if set(name) & set(_ODD)] if not _takes(folder / ".partial/a:b") else []
    alike = _alike(files) if _folds(folder / ".partial") else []
    for names, why in (
        (large, "is over 4 GiB, more than this file system takes"),
        (odd, "has a name with signs that this file system does not take"),
        (alike, "differs from another in capital letters alone, which is one file to this file system"),
    ):
        if names:
            more = f" (and {number_of(len(names) - 1, 'more file')})" if names[1:] else ""
            raise UsageFault(
                f"{folder}: {names[0]}{more} {why}{f' ({kind})' if kind else ''}; format the medium with ext4 or xfs, "
                "or name a folder on another one; nothing was downloaded"
            )


def file_system(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Its kind, as the kernel names it; "" where that is not known."""
    found, longest = "", -1
    place = str(folder.resolve())
    with suppress(OSError, IndexError):
        for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").split("\n"):
            before, _, after = line.partition(" - ")
            if not after:
                continue
            point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), before.split(" ")[4])
            if (f"{place}/".startswith(f"{point.rstrip('/')}/")) and len(point) >= longest:
                found, longest = after.split()[0], len(point)
    return found


def _takes(file: Path) -> bool:
    try:
        file.touch()
        file.unlink()
    except OSError as fault:
        return fault.errno not in (errno.EINVAL, errno.EILSEQ)
    return True


def _folds(folder: Path) -> bool:
    small, capital = folder / "case", folder / "CASE"
    small.touch()
    there = capital.exists()
    small.unlink()
    return there


def _alike(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    twice = []
    for name in names:
        if name.casefold() in seen:
            twice.append(name)
        seen.add(name.casefold())
    return twice


_MEDIUM = {
    errno.ENOSPC: "is full",
    errno.EDQUOT: "is full for this user (quota)",
    errno.EROFS: "is read-only",
    errno.EACCES: "may not be written by this user",
    errno.EPERM: "may not be written by this user",
    errno.EFBIG: "takes no file as large as this",
    errno.EIO: "has failed (Input/output error): it is broken, or was taken out",
    errno.ENODEV: "was taken out",
    errno.ENXIO: "was taken out",
}
_DENIED = (errno.EACCES, errno.EPERM)
_NEXT = {
    errno.EROFS: "mount it so that it can be written, or name a folder on another one",
    errno.EACCES: "name a folder that you may write",
    errno.EPERM: "name a folder that you may write",
    errno.EFBIG: "format it with ext4 or xfs, or name a folder on another one",
    errno.EIO: "look at dmesg, and use another medium if it is broken",
}


@contextmanager
def medium_said(folder: Path, left: Callable[[], int]) -> Iterator[None]:
    """What a medium refuses, whoever wrote to it, in one sentence: what, where, how much is free and still to come."""
    try:
        yield
    except OSError as fault:
        if fault.errno not in _MEDIUM:
            raise
        where = str(fault.filename2 or fault.filename or folder)  # of a copy the file that was written
        if fault.errno in _DENIED and not _of(folder, where):
            what = fault.filename2 or fault.filename or "something that is no file of this mirror"
            words = f"{what}: {fault.strerror}; {_UNTRUSTED}; give this user access to it, and {_GOES_ON}"
            raise UsageFault(words) from None
        raise UsageFault(_said(where, fault.errno, folder, left)) from None
    except ToolFault:
        number = errno.EROFS if _read_only(folder) else errno.ENOSPC if is_full(folder, FULL_AT) else 0
        if not number:
            raise
        raise UsageFault(_said(str(folder), number, folder, left)) from None


def _of(folder: Path, where: str) -> bool:
    """Whether who was denied access was denied it by the mirror's folder, not by another file."""
    if where == str(folder):
        return not os.access(folder, os.R_OK | os.W_OK | os.X_OK)
    return where.startswith(f"{folder}/")


def _said(where: str, number: int, folder: Path, left: Callable[[], int]) -> str:
    room = ""
    with suppress(OSError):
        if number in (errno.ENOSPC, errno.EDQUOT) and (where == str(folder) or where.startswith(f"{folder}/")):
            room = f"{size_words(shutil.disk_usage(folder).free)} free, {size_words(left())} still to come; "
    then = _NEXT.get(number, "make room")
    return f"{where}: cannot be written: the medium {_MEDIUM[number]}; {room}{_UNTRUSTED}; {then}, and {_GOES_ON}"


def _read_only(folder: Path) -> bool:
    with suppress(OSError):
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    return False
