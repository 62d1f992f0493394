"""Checkpoints of a long training: written aside and renamed, so that a kill at any moment leaves a whole one.

`latest.json` names the newest file with its size, digest and what it is of; the one before it stays, too. A file that
does not have its digest is not taken, the one before it is. What is kept for nobody goes with its process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any, NoReturn

LATEST = "latest.json"
KEPT = 2
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - of this process alone, by mkdtemp


class Refused(Exception):
    """Why a checkpoint is not continued, in words."""


def _durable(path: Path, data: bytes) -> None:
    """Write a file so that its name has either all of it or what was there before, power cuts included."""
    aside = path.with_name(f".{path.name}.partial")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def save(folder: Path, state: bytes, about: dict[str, Any]) -> None:
    """Keep `state`, which `about` describes: `step` (whole training), `epoch`, and what must be equal to go on."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"step-{about['step']:09}.state"
    _durable(folder / name, state)
    entry = {"file": name, "bytes": len(state), "sha256": hashlib.sha256(state).hexdigest(), **about}
    entries = [entry, *(one for one in _entries(folder) if one.get("file") != name)][:KEPT]
    _durable(folder / LATEST, json.dumps({"checkpoints": entries}, indent=1).encode())
    kept = {one["file"] for one in entries}
    for old in folder.glob("step-*.state"):
        if old.name not in kept:
            with contextlib.suppress(OSError):
                old.unlink()


def _entries(folder: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads((folder / LATEST).read_text())["checkpoints"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def load(folder: Path, same: dict[str, Any]) -> tuple[bytes, dict[str, Any]] | None:
    """The newest whole checkpoint, None where there is none. Refused where it is of another training than `same`, or
    where none of those that are named is whole.
    """
    entries = _entries(folder)
    if not entries and (folder / LATEST).exists():
        raise Refused(f"{folder / LATEST} cannot be read; give another folder for the checkpoints, or remove it")
    for entry in entries:
        other = next((key for key, value in same.items() if entry.get(key) != value), None)
        if other is not None:
            raise Refused(
                f"{folder} has a checkpoint of another training: its {other} is {entry.get(other)}, this one's is "
                f"{same[other]}; give another folder for the checkpoints, or train as it was begun"
            )
        try:
            state = (folder / str(entry["file"])).read_bytes()
        except OSError:
            continue
        if hashlib.sha256(state).hexdigest() == entry["sha256"]:
            return state, entry
    if entries:
        raise Refused(f"{folder}: none of its {len(entries)} checkpoints is whole; remove them to start again")
    return None


def usable(folder: Path) -> str:
    """Why nothing can be kept in a folder, in words; "" where it can."""
    trial = folder / f".trial.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as fault:
        return f"no checkpoint can be written to {folder}: {fault.strerror}"
    return ""


def going() -> Path:
    """A folder of this process alone, in memory where there is some. It is removed when the process has ended, however
    that was: a process beside it waits for the end. To be called before there are threads.
    """
    place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK | os.X_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="elastic-ai-train-", dir=place))
    reading, _ = os.pipe()
    ready, told = os.pipe()
    if os.fork() == 0:
        _wait_and_remove(folder, reading)
    os.close(reading)  # its other end stays open until this process has ended
    os.close(told)
    os.read(ready, 1)  # until the other's end is closed: from here on nothing ends both
    os.close(ready)
    return folder


def _wait_and_remove(folder: Path, reading: int) -> NoReturn:
    """In the process beside, which holds nothing that the launcher waits for and is in no group that it ends."""
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nowhere, standard)
        os.dup2(reading, 3)
        os.closerange(4, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16))
        os.read(3, 1)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)
