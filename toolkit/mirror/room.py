"""The folder of a mirror: what is in it already, and whether the rest has room."""

from __future__ import annotations

import errno
import hashlib
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.mirror.documents import Package, Plan, Repository, size_words

#: For indices, and what a file system takes for itself.
MARGIN = 64 << 20
_BLOCK = 1 << 20


def sha256(path: Path) -> str:
    """Of a file. OSError."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_BLOCK):
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


@contextmanager
def full_disk_said(folder: Path) -> Iterator[None]:
    """A disk that is full, in one sentence."""
    try:
        yield
    except OSError as fault:
        if fault.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        raise UsageFault(
            f"{folder}: cannot be written: {fault.strerror}; the mirror is not signed, so no node trusts it; make room "
            "and run the same command, which goes on where it ended"
        ) from None
