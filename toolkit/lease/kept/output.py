"""What a program that goes on alone prints: written to two files in turn, so that it takes so much of the disk and no
more, and read from them while they grow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from validation.base.visible import visible_lines

#: Of its two files each is named by the number of bytes that were written before it.
_FILE = re.compile(r"output\.([0-9]{1,19})")
#: Of each of the two. The newest half at least is always there.
HALF_BYTES = 16 << 20
PIECE_BYTES = 1 << 16
#: For a terminal: what colours text may pass; a carriage return lets a bar of progress draw itself again.
_PASSES = re.compile(r"\x1b\[[0-9;]{0,20}m|\r")
_BEGINS = re.compile(r"\x1b(?:\[[0-9;]{0,20})?\Z")
_PLAIN = "\x1b[0m"


def _starts(path: Path) -> list[int]:
    """Of the files that are there, the oldest first."""
    found = (_FILE.fullmatch(file.name) for file in path.iterdir())
    return sorted(int(match[1]) for match in found if match)


class Log:
    """Of one program; OSError where it cannot be written."""

    def __init__(self, path: Path, half_bytes: int = HALF_BYTES) -> None:
        """In its folder. `dropped`: bytes that are no longer there."""
        self._path, self._half = path, half_bytes
        starts = _starts(path) or [0]
        self.dropped, self._start = starts[0], starts[-1]
        self._file = self._open()
        self._written = os.fstat(self._file).st_size

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._path / f"output.{self._start}", flags, 0o600)

    def write(self, data: bytes) -> None:
        """All of it."""
        while data:
            if self._written >= self._half:
                self._turn()
            count = os.write(self._file, data[: self._half - self._written])
            self._written += count
            data = data[count:]

    def _turn(self) -> None:
        for start in _starts(self._path):
            if start < self._start:
                (self._path / f"output.{start}").unlink()
        self.dropped = self._start
        os.close(self._file)
        self._start += self._written
        self._file, self._written = self._open(), 0


class Reader:
    """Reads it from the beginning, and goes on where it grows. `missed`: bytes that were gone before they were read,
    between what it read before and what it reads now."""

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self._path = path
        self._file: int | None = None
        self._start = -1  # of the file that is read
        self._at = 0  # of the next byte, of all that was ever written
        self.missed = 0

    def _next(self) -> tuple[int, int] | None:
        """The file that follows the one that is read, open, and its start."""
        for _try in range(3):
            start = next((start for start in _starts(self._path) if start > self._start), None)
            if start is None:
                return None
            try:
                file = os.open(self._path / f"output.{start}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # it was removed meanwhile, and a newer one is there
            except OSError:
                return None
            return file, start
        return None

    def _rest(self) -> Iterator[bytes]:
        """Of the file that is read, to its end."""
        while self._file is not None and (data := os.read(self._file, PIECE_BYTES)):
            self._at += len(data)
            yield data

    def read(self) -> Iterator[bytes]:
        """What is there by now."""
        while True:
            yield from self._rest()
            following = self._next()
            if following is None:
                return
            yield from self._rest()  # what came between its end and the next one's beginning
            file, start = following
            if self._file is not None:
                os.close(self._file)
                self.missed += start - self._at
            self._file, self._start, self._at = file, start, start

    def skip_to_last(self, lines: int) -> bytes:
        """All that is there by now, of which only the last lines are returned."""
        tail = b""
        for data in self.read():
            tail = (tail + data)[-PIECE_BYTES:]
        self.missed = 0
        return b"".join(tail.splitlines(keepends=True)[-lines:])


class ForTerminal:
    """Output as a terminal may have it: text, colours and carriage returns; nothing else moves its cursor or changes
    its settings."""

    def __init__(self) -> None:
        """Nothing was shown yet."""
        self._left = b""
        self._coloured = False

    def text(self, data: bytes, last: bool = False) -> str:
        """A piece. What may be the beginning of a character or of a colour waits for the next one."""
        data = self._left + data
        whole = data if last else _whole(data)
        text = whole.decode("utf-8", "backslashreplace")
        begun = None if last else _BEGINS.search(text)
        if begun:
            text = text[: begun.start()]
        self._left = data[len(whole) - len(begun[0].encode()) if begun else len(whole) :]
        shown, at = [], 0
        for match in _PASSES.finditer(text):
            shown += [visible_lines(text[at : match.start()]), match[0]]
            at = match.end()
            self._coloured |= match[0] != "\r"
        shown.append(visible_lines(text[at:]))
        return "".join(shown) + (_PLAIN if last and self._coloured else "")


def _whole(data: bytes) -> bytes:
    """Without the beginning of a character at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if needs > back else data
    return data
