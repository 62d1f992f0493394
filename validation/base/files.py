"""Writing files: whole or not at all, and on the disk before the next step."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from validation.base.errors import ConfigError

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def flush_folder(folder: Path) -> None:
    """Wait until the names in `folder` are on the disk. OSError when the disk refuses."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(target: Path, content: bytes | Iterable[bytes], hint: str = "make room or choose another place") -> Path:
    """Write a whole file or nothing: a reader, or a crash, never sees half of it. Returns `target`.

    `content`: all of it, or part by part. ConfigError when the disk refuses, with the reason and `hint`, which says
    what to do.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as file:
            file.writelines((content,) if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
        flush_folder(target.parent)
    except BaseException as fault:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(fault, OSError):
            raise ConfigError(f"{target}: cannot be written: {fault.strerror or fault}; {hint}") from None
        raise
    return target


def users_folder(variable: str, usual: str) -> Path:
    """What a variable of the XDG Base Directory Specification names, else `usual` in the user's home. A relative path
    is ignored, as the specification says. RuntimeError where this user has no home."""
    named = os.environ.get(variable, "")
    return Path(named) if Path(named).is_absolute() else Path.home() / usual


def cache_folder(name: str) -> Path:
    """A folder of this name in the user's cache. OSError or RuntimeError where this user has no home."""
    cache = users_folder("XDG_CACHE_HOME", ".cache")
    if not cache.is_absolute():
        raise FileNotFoundError(cache)
    return cache / "elastic-ai-toolkit" / name


def ours(*paths: Path) -> bool:
    """True where nobody but this user (and root) can have written these. OSError where one is missing."""
    found = [path.lstat() for path in paths]
    return not any(one.st_uid != os.geteuid() or one.st_mode & _OTHERS or stat.S_ISLNK(one.st_mode) for one in found)
