"""A file of frames in this user's cache folder: appended one after another, each with its own hash.

A frame is a JSON object and columns of numbers, byte for byte as `array` has them. A frame that is cut or does not have
its hash ends the file; what stands before it is good. The file is a help and no evidence: without it, things
take longer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.base import bounded
from validation.base.files import ours

_MAGIC = b"EAFRAME1"
_HASH = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Frame:
    """`said` is the JSON object, `columns` are by name."""

    said: Mapping[str, Any]
    columns: Mapping[str, array[Any]]


def read_frames(path: Path) -> tuple[list[Frame], int]:
    """All whole frames from the start of the file, and the bytes they take; none where it is not there, or could be
    somebody else's.
    """
    frames: list[Frame] = []
    at = 0
    try:
        if not ours(path.parent.parent, path.parent, path):
            return frames, at
        data = memoryview(bounded.read_file(path))
    except (bounded.TooMuch, OSError, RuntimeError):
        return frames, at
    while (found := _frame(data, at)) is not None:
        frame, at = found
        frames.append(frame)
    return frames, at


def _frame(data: memoryview, at: int) -> tuple[Frame, int] | None:
    start = at + len(_MAGIC) + 8
    if len(data) < start + _HASH or data[at : at + len(_MAGIC)] != _MAGIC:
        return None
    end = start + int.from_bytes(data[at + len(_MAGIC) : start], "big")
    if len(data) < end + _HASH or hashlib.sha256(data[start:end]).digest() != data[end : end + _HASH]:
        return None
    try:
        size = int.from_bytes(data[start : start + 8], "big")
        head = json.loads(bytes(data[start + 8 : start + 8 + size]))
        if head["order"] != sys.byteorder:
            return None
        columns: dict[str, array[Any]] = {}
        place = start + 8 + size
        for name, code, width, count in head["columns"]:
            column: array[Any] = array(code)
            if column.itemsize != width:
                return None
            column.frombytes(data[place : place + width * count])
            columns[name] = column
            place += width * count
    except (ValueError, KeyError, TypeError):
        return None
    return Frame(head["said"], columns), end + _HASH


def write_frames(path: Path, frames: Sequence[Frame], behind: int = 0) -> None:
    """Write frames `behind` so many bytes of the file, or begin it anew. What the disk refuses is not written: the next
    one takes longer, and that is all.
    """
    content = b"".join(map(_bytes, frames))
    with contextlib.suppress(OSError, RuntimeError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if behind:
            with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as file:
                file.truncate(behind)
                file.seek(behind)
                file.write(content)
            return
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(part, flags, 0o600), "wb") as file:
            file.write(content)
        part.replace(path)


def _bytes(frame: Frame) -> bytes:
    columns = [[name, c.typecode, c.itemsize, len(c)] for name, c in frame.columns.items()]
    head = json.dumps({"order": sys.byteorder, "said": frame.said, "columns": columns}).encode()
    payload = b"".join((len(head).to_bytes(8, "big"), head, *(c.tobytes() for c in frame.columns.values())))
    return b"".join((_MAGIC, len(payload).to_bytes(8, "big"), payload, hashlib.sha256(payload).digest()))
