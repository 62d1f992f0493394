"""Writes a file to a storage, reads it back and compares every block, again and again, while the node burns in.

Each block is the pass's own bytes with its number at its head, so that a block that was lost, is an older one's or is
at another one's place is a wrong one. The file is flushed (fsync) and its pages are dropped before it is read: a shared
storage is asked for it. A pass that fails is counted and the next one is tried.

`stdout`: JSON with each pass (`at_s` from the begin, `bytes`, `write_s`, `read_s`, `wrong` blocks, `error`).
"""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.storage_place import Own, clear, looked_at, room
from validation.probes.storage_watch import Say, Tell, watched
from validation.probes.tool import Ran, Stopped, document, stopped

BLOCK = 1 << 20
SAID_EACH = 64  # blocks, after which a worker says that it goes on
HEAD = 16  # bytes of a block's number and its pass's
PAUSE_S = 1.0  # after a pass that failed


@dataclass
class Asked:
    """What is asked of this probe."""

    name: str  # of the storage
    path: str
    node: str
    token: str  # of the measurement: names the folder
    seconds: float  # in all
    size_mib: int  # of the file
    answer_s: float = 60.0  # how long the path may take to answer, and each 64 MiB of a pass
    filesystem: str = ""
    segment: int = 0
    segments: int = 0


def block(own: bytes, number: int, turn: int) -> bytes:
    """A block of a pass; `own`: the pass's bytes."""
    return number.to_bytes(8, "big") + turn.to_bytes(8, "big") + own


def own_bytes(token: str, turn: int) -> bytes:
    """Of a pass, the same wherever they are made."""
    return random.Random(f"{token} {turn}").getrandbits(8 * (BLOCK - HEAD)).to_bytes(BLOCK - HEAD, "big")  # noqa: S311


def one_pass(path: Path, token: str, turn: int, blocks: int, alive: Any) -> dict[str, Any]:
    """Write, flush, drop, read, compare. OSError where the storage has one."""
    own, wrong = own_bytes(token, turn), 0
    begin = time.monotonic()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        for number in range(blocks):
            if number and number % SAID_EACH == 0:
                os.fsync(descriptor)  # what is said is on the storage, so that no flush at the end takes all the time
            alive(number)
            data = memoryview(block(own, number, turn))
            while data:
                data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
        written = time.monotonic()
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(descriptor, 0, os.SEEK_SET)
        for number in range(blocks):
            alive(number)
            wrong += read_block(descriptor) != block(own, number, turn)
    finally:
        os.close(descriptor)
    read = time.monotonic()
    return {"bytes": blocks * BLOCK, "write_s": round(written - begin, 6), "read_s": round(read - written, 6),
            "wrong": wrong, "error": ""}  # fmt: skip


def read_block(descriptor: int) -> bytes:
    """The next block; less where the file ends."""
    parts, left = [], BLOCK
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def probe(args: Asked) -> ProbeDoc:
    """Pass after pass until the time is over."""

    def work(say: Say, tell: Tell) -> None:
        place = looked_at(args.path, args.filesystem or None)
        say("what an earlier run left", 60.0)
        clear(args.path)
        say("how much room there is", args.answer_s)
        place.update(room(args.path, args.size_mib << 20, 1))
        tell(place=place)

        def alive(number: int) -> None:
            if number % SAID_EACH == 0:
                say("writing and reading", args.answer_s)

        begin, passes = time.monotonic(), list[dict[str, Any]]()
        with Own(args.path, args.token, args.node) as own:
            while time.monotonic() - begin < args.seconds or not passes:
                at = round(time.monotonic() - begin, 3)
                try:
                    found = one_pass(own.folder / "soak", args.token, len(passes), args.size_mib, alive)
                except OSError as fault:
                    found = {"bytes": 0, "write_s": 0, "read_s": 0, "wrong": 0, "error": fault.strerror or str(fault)}
                    time.sleep(PAUSE_S)
                passes.append({"at_s": at, **found})
            say("removing what was written", args.answer_s)
        tell(passes=passes, took_s=round(time.monotonic() - begin, 3))

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        found = watched(args.path, work, args.answer_s)
        if stopped():
            raise Stopped
        text = json.dumps({"name": args.name, "node": args.node, "seconds": args.seconds, **found})
        ran = Ran(["soak-storage", args.path], 0, text, "")
        why = found.get("refused") or found.get("silent")
        return ran, {"passes": len(found.get("passes", ()))}, why

    return document("soak-storage", "probes", measure, lambda _: "")
