"""The folder in which a user's programs leave what they print: theirs alone, in their home."""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from toolkit.lease import LeaseError

NAME = r"[0-9a-f]{12}"
#: Programs that have ended, the newest of them, whose output stays.
MOST_KEPT = 50


def state() -> Path:
    """Where the toolkit keeps what is this user's, by the user database: a later login may have another environment."""
    return Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".local" / "state" / "elastic-ai"


def _own(path: Path) -> Path:
    """The folder, if nobody else can write to it. LeaseError where somebody can."""
    try:
        found = path.stat()
    except OSError as fault:
        raise LeaseError(f"{path}: {fault.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise LeaseError(f"{path} is no folder; programs that go on alone leave their output there")
    if found.st_uid != os.geteuid():
        raise LeaseError(f"{path} belongs to another user (uid {found.st_uid}); what you run is not kept there")
    if found.st_mode & 0o022:
        raise LeaseError(f"{path} can be written by others; close it first: chmod go-w {path}")
    return path


def own_folder(name: str) -> Path:
    """state()/name, made where it is not there, for this user alone. LeaseError where it would not be theirs alone."""
    above, path = state(), state() / name
    try:
        above.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as fault:
        raise LeaseError(f"{fault.filename or path}: {fault.strerror}; what you run is kept there") from None
    _own(above)
    return _own(path)


def programs() -> Path:
    """Of all programs that go on alone, one folder for each."""
    return own_folder("kept")


def new_folder() -> Path:
    """For a new one. LeaseError where there is no room for it."""
    path = programs() / secrets.token_hex(6)
    try:
        path.mkdir(mode=0o700)
    except OSError as fault:
        raise LeaseError(f"{path}: {fault.strerror}; what the program prints is kept there") from None
    return path


def folders() -> list[Path]:
    """Those that are there, the newest first; [] where none ever was."""
    if not (state() / "kept").is_dir():
        return []
    found = [path for path in programs().iterdir() if re.fullmatch(NAME, path.name) and not path.is_symlink()]
    times: list[tuple[float, Path]] = []
    for path in found:
        try:
            times.append((path.stat().st_ctime if not path.is_dir() else (path / "order.json").stat().st_mtime, path))
        except OSError:
            continue  # it is being removed, or made
    return [path for _time, path in sorted(times, reverse=True)]


def prune(ended: Callable[[Path], bool]) -> None:
    """Remove the oldest of those that have ended."""
    for path in [path for path in folders() if ended(path)][MOST_KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
