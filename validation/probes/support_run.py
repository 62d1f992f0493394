"""Runs a command, or reads a file, for `toolkit support`: bounded in size and time, and given up where it hangs.

A tool that hangs in the kernel, as nvidia-smi does beside a GPU that has fallen off the bus, cannot be killed: it is
left to the supervisor after GIVE_UP_S, and what else would run the same program is not started.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import stat
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from validation.probes.smi import OWN_ALONE
from validation.probes.supervise import die_with_parent

MIB = 1 << 20
MOST_BYTES = 8 * MIB
"""Of one command's output, or one file. Project default."""
TIMEOUT_S = 30.0
"""Of one command. Project default."""
GIVE_UP_S = 2.0
"""From KILL to giving a process up."""
PIECE_BYTES = 48 << 10
LONGEST_LINE = 1 << 16
_CHUNK_BYTES = 1 << 16
_HUNG: dict[str, str] = {}


@dataclass
class Kept:
    """What was read. `total`: bytes that there were, as far as they were read; `newest`: where there were too many, the
    last ones are kept and not the first; `unread`: why there is nothing; `note`: what is to be known of it;
    `late`: the command was ended because its time was over.
    """

    source: str
    held: deque[bytes] = field(default_factory=deque)
    size: int = 0
    total: int = 0
    newest: bool = False
    unread: str = ""
    note: str = ""
    late: bool = False

    def add(self, chunk: bytes, most: int) -> None:
        """Keep a chunk, or of what is too much the newest or the first bytes."""
        self.total += len(chunk)
        if not self.newest:
            chunk = chunk[: max(0, most - self.size)]
        if chunk:
            self.held.append(chunk)
            self.size += len(chunk)
        while self.newest and self.size > most and self.held:
            over = self.size - most
            first = self.held.popleft()
            if len(first) > over:
                self.held.appendleft(first[over:])
            self.size -= min(over, len(first))

    def pieces(self) -> Iterator[bytes]:
        """All that was kept, in pieces."""
        for chunk in self.held:
            for at in range(0, len(chunk), PIECE_BYTES):
                yield chunk[at : at + PIECE_BYTES]


class _Lines:
    """Passes on the lines that a pattern is found in."""

    def __init__(self, wanted: re.Pattern[bytes]) -> None:
        self._wanted = wanted
        self._rest = b""

    def of(self, chunk: bytes, last: bool = False) -> bytes:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = b"" if last or len(lines[-1]) > LONGEST_LINE else lines.pop()
        return b"".join(line + b"\n" for line in lines if self._wanted.search(line))


def run(
    command: Sequence[str],
    *,
    most: int = MOST_BYTES,
    timeout_s: float = TIMEOUT_S,
    newest: bool = False,
    wanted: re.Pattern[bytes] | None = None,
    cwd: str = "/",
) -> Kept:
    """The output of a command, both streams as they come. `wanted`: keep the lines alone that it is found in."""
    kept = Kept(" ".join(command), newest=newest)
    name = os.path.basename(command[0])  # noqa: PTH119
    if name in _HUNG:
        kept.unread = f"not run: {_HUNG[name]}"
        return kept
    env = {**os.environ, "LC_ALL": "C", "TMPDIR": cwd if cwd != "/" else "/tmp", **OWN_ALONE}  # noqa: S108
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=cwd,
            start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
    except FileNotFoundError:
        kept.unread = f"{name} is not installed on this node"
        return kept
    except OSError as fault:
        kept.unread = f"{name} cannot be run: {fault.strerror}"
        return kept
    late = kept.late = _follow(process, kept, most, timeout_s, _Lines(wanted) if wanted else None)
    if late:
        kept.note = f"ended after {timeout_s:g} s, before its own end"
    if process.poll() is None:
        _HUNG[name] = f"{kept.source} hangs and cannot be ended"
        kept.note = f"hangs, and cannot be ended ({timeout_s:g} s)"
    elif process.returncode and not late:
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
        kept.note = f"ended with {how}"
    if not kept.size and kept.note:
        kept.unread = f"{name}: {kept.note}, and printed nothing"
    return kept


def _follow(process: subprocess.Popen[bytes], kept: Kept, most: int, timeout_s: float, lines: _Lines | None) -> bool:
    """Read to the end of the output; whether it was late and killed."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    until, late = time.monotonic() + timeout_s, False
    with selectors.DefaultSelector() as ready:
        ready.register(fd, selectors.EVENT_READ)
        while True:
            left_s = until - time.monotonic()
            endless = not kept.newest and kept.total > 8 * most
            if left_s <= 0 or endless:
                if late:
                    break
                late, until = True, time.monotonic() + GIVE_UP_S
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # a session of its own: what it started goes with it
                if endless:
                    break
                continue
            if not ready.select(left_s):
                continue
            chunk = os.read(fd, _CHUNK_BYTES)
            if chunk or lines is not None:
                kept.add(chunk if lines is None else lines.of(chunk, last=not chunk), most)
            if not chunk:
                break
    process.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(max(0.1, until - time.monotonic()) if late else GIVE_UP_S)
    if process.poll() is None and not late:  # it closed its output and goes on
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GIVE_UP_S)
    return late


def read(path: Path, most: int = MOST_BYTES, newest: bool = False, whole: bool = False) -> Kept:
    """A plain file: no link is followed, and no pipe or device is opened. `whole`: nothing of one that is too large."""
    kept = Kept(str(path), newest=newest)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        kept.unread = "is a link, which is not followed" if path.is_symlink() else str(fault.strerror)
        return kept
    with os.fdopen(fd, "rb", buffering=0) as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            kept.unread = "is no plain file"
            return kept
        if whole and about.st_size > most:
            kept.unread = f"has {about.st_size >> 20} MiB, and at most {most >> 20} MiB are taken"
            return kept
        if newest and about.st_size > most:
            file.seek(about.st_size - most)
            kept.total = about.st_size - most
        try:
            while kept.size < most and (chunk := file.read(min(_CHUNK_BYTES, most - kept.size))):
                kept.add(chunk, most)
        except OSError as fault:
            kept.unread = str(fault.strerror)
            return kept
        kept.total = max(kept.total, about.st_size)
    return kept
