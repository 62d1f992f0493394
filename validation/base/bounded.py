"""How much another program or file may say, and how it is read so that it cannot say more.

All bounds stand here. Each is many times what the largest site says, and small enough to be held in memory for every
node at once. Standard library only, for Python 3.9: machines of the pool import this module too.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from validation.base.counting import number_of
from validation.base.errors import ToolkitError

MIB = 1 << 20
PROBE_BYTES = 64 * MIB
"""Of what a probe prints on one of its two streams: the longest report, a training of days, is about 5 MiB."""
STEADY_BYTES = 1 * MIB
"""Of what a connection that others share prints: one document, and what a login file adds."""
SCAN_BYTES = 4 * MIB
"""Of an answer to `toolkit inventory`; a node with hundreds of ports takes a tenth."""
SLURM_BYTES = 512 * MIB
"""Of an answer of Slurm's commands: a job is about 6 KiB of squeue --json, and a controller holds tens of thousands."""
COMMAND_BYTES = 64 * MIB
"""Of any other command: an inventory of 1,000 nodes is about 10 MiB of ansible-inventory --list."""
FILE_BYTES = 2048 * MIB
"""Of a file of a run or a site that is read whole: more than a fleet's results."""
LOG_BYTES = 512 * MIB
"""Of a raw log of a run: many times what a probe may print."""
YAML_BYTES = 16 * MIB
"""The same of rules and settings, which people write."""
DEPLOY_LOG_BYTES = 256 * MIB
"""Of the log of a deployment: a run over 1,000 nodes writes about 100 MiB."""
KEPT_BYTES = 1 * MIB
"""Of what a program printed that printed too much: so much of its beginning is kept as evidence."""
_CHUNK_BYTES = 1 << 16


class TooMuch(ToolkitError):
    """A program or a file said more than its bound; the program was ended."""


def size(number: int) -> str:
    """`64 MiB`, of a bound."""
    return f"{number / MIB:g} MiB" if number >= MIB else number_of(number, "byte")


def run(
    args: Sequence[str],
    *,
    most: int = COMMAND_BYTES,
    timeout: float | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    where: str = "",
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, and hold at most `most` bytes of each of its two streams.

    TooMuch where it prints more: it is ended then. subprocess.TimeoutExpired and OSError as subprocess.run has them.
    `where`: the node that it speaks of, for the message.
    """
    command = [os.fspath(word) for word in args]
    given: int = subprocess.PIPE if stdin else subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd
    ) as process:
        try:
            out, err = _read(process, command, most, timeout, stdin, where)
        except BaseException:
            process.kill()
            raise
        code = process.wait()
    return subprocess.CompletedProcess(command, code, out, err)


def _read(
    process: subprocess.Popen[bytes], command: Sequence[str], most: int, timeout: float | None, stdin: bytes, where: str
) -> tuple[bytes, bytes]:
    until = None if timeout is None else time.monotonic() + timeout
    held: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    left = memoryview(stdin)
    with selectors.DefaultSelector() as ready:
        ready.register(_pipe(process.stdout), selectors.EVENT_READ, "stdout")
        ready.register(_pipe(process.stderr), selectors.EVENT_READ, "stderr")
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            ready.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        while ready.get_map():
            wait_s = None if until is None else until - time.monotonic()
            if wait_s is not None and wait_s <= 0:
                raise subprocess.TimeoutExpired(command, timeout or 0.0, bytes(held["stdout"]), bytes(held["stderr"]))
            for key, _ in ready.select(wait_s):
                if key.data == "stdin":
                    left = _feed(key.fileobj, left)
                    if not left:
                        ready.unregister(key.fileobj)
                        with contextlib.suppress(BrokenPipeError):
                            key.fileobj.close()  # type: ignore[union-attr]
                    continue
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if not chunk:
                    ready.unregister(key.fileobj)
                held[key.data] += chunk
                if len(held[key.data]) > most:
                    raise TooMuch(too_much(where, command[0], key.data, most))
    rest = None if until is None else max(0.0, until - time.monotonic())
    process.wait(rest)
    return bytes(held["stdout"]), bytes(held["stderr"])


def too_much(where: str, command: str, stream: str, most: int) -> str:
    """The one sentence of what printed without an end."""
    there = f"{where}: " if where else ""
    return f"{there}{command} printed more than {size(most)} on {stream} and was ended; run it by hand to see what"


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _feed(stream: Any, left: memoryview) -> memoryview:
    """What is left to write; nothing where nobody reads."""
    try:
        return left[os.write(stream.fileno(), left[:_CHUNK_BYTES]) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:
        return left[:0]


def read_file(path: Path, most: int = FILE_BYTES) -> bytes:
    """A file, whole; TooMuch where it is larger than `most`, also while it grows. OSError as open has it."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise TooMuch(f"{path}: has more than {size(most)}, which is no file of this toolkit; see what wrote it")
    return data
