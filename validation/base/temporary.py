"""Temporary folders of the controller that do not outlive it for long, however it dies.

Each is locked by who made it, and the kernel lets the lock go with him, also after kill -9. Whoever makes the next one
removes those of the same kind that nobody holds any more: by the lock, and not by their age.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: How mkdtemp ends a name.
_ENDING = re.compile(r"[a-z0-9_]{8}")


class Room:
    """A folder of this process alone, for as long as it lives at most."""

    def __init__(self, kind: str, base: Path | None = None) -> None:
        """`kind`: how its name begins, the same for all of a kind; in `base`, or where temporary files are."""
        base = base or Path(tempfile.gettempdir())
        sweep(kind, base)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=base))
            held = _locked(self.path)
            if held is not None and self.path.is_dir():  # else another process has just swept it
                self._held = held
                return

    def close(self) -> None:
        """Remove it."""
        if self._held >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._held)
            self._held = -1


@contextlib.contextmanager
def room(kind: str, base: Path | None = None) -> Iterator[Path]:
    """A folder for a block."""
    made = Room(kind, base)
    try:
        yield made.path
    finally:
        made.close()


def sweep(kind: str, base: Path) -> None:
    """Remove the folders of a kind that nobody holds; those of other users stay, and those of a longer name."""
    for folder in base.glob(f"{kind}-*"):
        held = _locked(folder) if _ENDING.fullmatch(folder.name.removeprefix(f"{kind}-")) else None
        if held is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)


def _locked(folder: Path) -> int | None:
    """A lock on a folder of this user; None where somebody else holds it, or it is none."""
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(held).st_uid == os.geteuid():
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return held
    except OSError:
        pass
    os.close(held)
    return None
