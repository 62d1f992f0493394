"""The loader of the training's pictures on one storage: how many a second it reads there, and reads and decodes.

Pictures of the program's own are written as folders of classes and read as the training reads its own (train_data.py),
in the training's order, by as many processes as it has; without torch, so that they are not cut. Before each pass they
are taken out of this node's cache, outside of what is timed; how much really came from the storage is told.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from validation.probes.supervise import die_with_parent
from validation.probes.tool import Stopped, stopped
from validation.probes.train_data import BadData, Pictures, look, order, pixels
from validation.probes.train_input import OWN_CLASSES, WORKERS, make_pictures

PASSES = ("read", "decoded")
PASS_S = 3.0
OVER_S = 30.0  # beyond its time, until a process that reads is given up
IO = Path("/proc/self/io")


def write(folder: Path) -> tuple[int, int, str]:
    """Folders of classes with pictures below `folder`/train; how many, their bytes, and their kind."""
    with tempfile.TemporaryFile() as made:
        pictures = make_pictures(made, OWN_CLASSES)
        kind, size = "PPM", 0
        for number in range(len(pictures)):
            data, label = pictures.read(number)
            kind = "JPEG" if data[:2] == b"\xff\xd8" else "PPM"
            place = folder / "train" / f"class{label}"
            place.mkdir(parents=True, exist_ok=True)
            with (place / f"{number:06d}.{'jpg' if kind == 'JPEG' else 'ppm'}").open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            size += len(data)
            if stopped():
                raise Stopped
        return len(pictures), size, kind


def forget(path: str) -> None:
    """Take a file's pages out of this node's cache."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def _from_storage() -> int:
    """Bytes that this process had fetched from file systems; 0 where the kernel does not count."""
    try:
        lines = dict(line.split(": ", 1) for line in IO.read_text().splitlines())
        return int(lines["read_bytes"])
    except (OSError, ValueError, KeyError):
        return 0


def _reader(pictures: Pictures, mine: list[int], decode: bool) -> dict[str, Any]:
    """One process: its share of the pictures, again and again."""
    count, size, busy, before = 0, 0, 0.0, _from_storage()
    end = time.monotonic() + PASS_S
    while time.monotonic() < end and not stopped():
        for number in mine:
            forget(pictures.files[pictures.file_of[number]])
        for number in mine:
            begin = time.perf_counter()
            data, _ = pictures.read(number)
            if decode:
                pixels(data)
            busy += time.perf_counter() - begin
            count, size = count + 1, size + len(data)
            if time.monotonic() > end:
                break
    return {"count": count, "bytes": size, "seconds": round(busy, 6), "from_storage": _from_storage() - before}


def _forked(work: Callable[[], dict[str, Any]]) -> tuple[int, int]:
    """A process that does it, and where its answer comes."""
    read, written = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            die_with_parent()
            said = work()
        except BadData as fault:
            said = {"error": str(fault)}
        except BaseException as fault:
            said = {"error": f"{type(fault).__name__}: {fault}"}
        os.write(written, json.dumps(said).encode())
        os._exit(0)
    os.close(written)
    return pid, read


def _answer(pid: int, read: int) -> dict[str, Any]:
    text = b""
    while chunk := os.read(read, 1 << 16):
        text += chunk
    os.close(read)
    os.waitpid(pid, 0)
    return dict(json.loads(text or b'{"error": "a process that reads ended"}'))


def _passed(pictures: Pictures, workers: int, decode: bool) -> dict[str, Any]:
    shares = [order(0, 0, len(pictures))[at::workers] for at in range(workers)]
    running = [_forked(lambda mine=mine: _reader(pictures, mine, decode)) for mine in shares]  # type: ignore[misc]
    return {"workers": [_answer(*one) for one in running]}


def measure(folder: Path) -> dict[str, Any]:
    """Of each of PASSES what every process did; `error` where a picture could not be read."""
    home = folder / "pictures"
    home.mkdir()
    try:
        count, size, kind = write(home)
        pictures = look(str(home), "train", OWN_CLASSES)
    except (BadData, OSError) as fault:
        return {"error": str(fault)}
    workers = max(1, min(WORKERS, len(os.sched_getaffinity(0)), count))
    found: dict[str, Any] = {"error": "", "count": count, "bytes": size, "kind": kind, "processes": workers}
    for name in PASSES:
        found[name] = _passed(pictures, workers, decode=name == "decoded")
        wrong = next((one["error"] for one in found[name]["workers"] if one.get("error")), "")
        if wrong:
            return {"error": wrong}
    return found
