"""A node is asked over ssh by the program of validation/probes/support.py, and what it answers is taken with care.

Nothing that comes back is trusted: a line counts by the mark of this very call, names of files are checked, and what
is too long, too much or too late ends the connection. The program ends with its stdin, which we hold.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import re
import secrets
import shlex
import shutil
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolkit.errors import UsageFault
from toolkit.scan import shipped
from validation.base import noise
from validation.execute.remote import Output
from validation.execute.ssh import (
    ALIVE_COUNT,
    ALIVE_INTERVAL_S,
    BASE,
    CONNECT_TIMEOUT_S,
    EXIT_SSH,
    common_arguments,
    explain,
    on_a_new_line,
)
from validation.model import Node

PROBE = "validation.probes.support"
PARTS_S, ALL_S = 60.0, 1500.0
"""Of the list of parts, and of everything: the node ends by itself then. Project defaults."""
GRACE_S = 20.0
"""How much later we give a node up that does not."""
ANSWER_BYTES = 640 << 20
"""Of all that a node may send in one call, in the form in which it sends it. Project default."""
LONGEST_LINE = 1 << 17
STDERR_BYTES = 1 << 16
STOP_S = 12.0
_CHUNK_BYTES = 1 << 16
_NAME = re.compile(r"(?:node|part|toolkit)(?:/[A-Za-z0-9_+=@,][A-Za-z0-9._+=@,-]{0,99}){1,6}")


class Taking(Protocol):
    """What is done with a node's answers. `name` is checked by then."""

    def part(self, said: dict[str, Any]) -> None:
        """A part."""

    def piece(self, name: str, data: bytes) -> None:
        """A piece of a file."""

    def end(self, name: str, said: dict[str, Any]) -> None:
        """The end of a file."""

    def unread(self, what: str, why: str) -> None:
        """Something that the node could not read, or that we could not take."""

    def doing(self, words: str) -> None:
        """What the node does now."""


@dataclass
class _Answer:
    """What came so far, line by line."""

    mark: str
    taking: Taking
    rest: bytearray = field(default_factory=bytearray)
    total: int = 0
    done: bool = False
    too_old: str = ""
    ours: bool = False
    last: bytes = b""
    _skipping: bool = False

    def take(self, chunk: bytes) -> None:
        self.total += len(chunk)
        self.rest += chunk
        while (end := self.rest.find(b"\n")) >= 0:
            line = bytes(self.rest[:end])
            del self.rest[: end + 1]
            if self._skipping:
                self._skipping = False
            else:
                self._line(line)
        if len(self.rest) > LONGEST_LINE:
            self.rest.clear()
            self._skipping = True

    def _line(self, line: bytes) -> None:
        if len(line) > LONGEST_LINE or not line.strip():
            return
        for said in noise.documents(line):
            if said.get("type") == shipped.TOO_OLD:
                self.too_old = str(said.get("python"))[:20]
            if said.get("support") == self.mark:
                self.ours = True
                self._document(said)
                return
        self.last = line[:500]

    def _document(self, line: dict[str, Any]) -> None:
        name = line.get("file", line.get("end"))
        if line.get("done") is True:
            self.done = True
        elif isinstance(line.get("part"), dict):
            self.taking.part(line["part"])
        elif isinstance(line.get("doing"), str):
            self.taking.doing(noise.printable(line["doing"])[:200])
        elif isinstance(name, str) and not allowed(name):
            self.taking.unread(
                ascii(name)[:200], "the node gave a name that no file of a package may have; it was not taken"
            )
        elif isinstance(name, str) and "unread" in line:
            source = noise.printable(str(line["unread"]))[:200]
            self.taking.unread(f"{name} ({source})", noise.printable(str(line.get("why")))[:500])
        elif isinstance(name, str) and "data" in line:
            with contextlib.suppress(binascii.Error, ValueError, TypeError):
                self.taking.piece(name, base64.b64decode(line["data"], validate=True))
        elif isinstance(name, str) and "end" in line:
            self.taking.end(name, line)


def allowed(name: str) -> bool:
    """Whether a node may send a file of this name: it stays where it belongs, on any system."""
    return _NAME.fullmatch(name) is not None


def command(node: Node, size: int) -> list[str]:
    """ssh with what runs there: a Python that reads the program, `size` bytes of stdin, and runs it."""
    target = node.ssh
    ssh = ["ssh", *BASE, "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}", "-o", f"ServerAliveInterval={ALIVE_INTERVAL_S}"]
    ssh += ["-o", f"ServerAliveCountMax={ALIVE_COUNT}", *common_arguments(target), target.host]
    python = ["env", "LC_ALL=C", "python3", "-I", "-B", "-c", f"import sys;exec(sys.stdin.buffer.read({size}))"]
    there = shlex.join(python if target.user == "root" else ["sudo", "-n", *python])
    return [*ssh, on_a_new_line(there)]


async def ask(node: Node, site: str, taking: Taking, asked: dict[str, Any], deadline_s: float) -> str:
    """Ask a node; "" where it answered to its end, else why not, in one sentence. UsageFault without ssh here."""
    if shutil.which("ssh") is None:
        raise UsageFault("ssh is not installed on this machine; install the OpenSSH client")
    mark = secrets.token_hex(16)
    words = json.dumps({**asked, "mark": mark, "deadline_s": deadline_s})
    program = shipped.program(PROBE, "begin(ASKED)", int(deadline_s + GRACE_S))
    program = f"ASKED = {words!r}\n".encode() + program
    answer = _Answer(mark, taking)
    process = await asyncio.create_subprocess_exec(
        *command(node, len(program)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    err = bytearray()
    fault = ""
    try:
        fault = await asyncio.wait_for(_talk(process, program, answer, err), deadline_s + GRACE_S)
    except asyncio.TimeoutError:
        fault = f"did not end within {deadline_s + GRACE_S:.0f} s; what it sent until then is kept"
    finally:
        await _stop(process)
    if answer.done:
        return ""
    if fault:
        return fault
    if answer.too_old:
        return f"Python there is {answer.too_old}, and {'.'.join(map(str, shipped.OLDEST))} is needed"
    code = process.returncode if process.returncode is not None else -1
    if answer.ours:
        gone = "the connection ended" if code == EXIT_SSH else f"its program ended with status {code}"
        return f"{gone} before everything was read; what it sent until then is kept"
    if b"python3" in err and b"not found" in err:
        return "python3 is not installed there"
    return explain(node.ssh, Output(code, answer.last, bytes(err)), site)


async def _talk(process: asyncio.subprocess.Process, program: bytes, answer: _Answer, err: bytearray) -> str:
    """Send the program and read what comes, until it is done; stdin stays open, for the program ends with it."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None

    async def send(stream: asyncio.StreamWriter) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            stream.write(program)
            await stream.drain()

    async def complain(stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(_CHUNK_BYTES):
            err.extend(chunk[: max(0, STDERR_BYTES - len(err))])

    others = [asyncio.ensure_future(send(process.stdin)), asyncio.ensure_future(complain(process.stderr))]
    try:
        while chunk := await process.stdout.read(_CHUNK_BYTES):
            answer.take(chunk)
            if answer.done:
                return ""
            if answer.total > ANSWER_BYTES:
                return f"sent more than {ANSWER_BYTES >> 20} MiB and was cut off; what it sent until then is kept"
        await process.wait()
        await asyncio.wait(others, timeout=1.0)
        return ""
    finally:
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Have the process over: first by its stdin, which ends the program on the node."""
    if process.stdin is not None:
        process.stdin.close()
    drained = asyncio.ensure_future(_drain(process))
    try:
        await asyncio.wait_for(asyncio.shield(drained), STOP_S)
    except asyncio.TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await drained
    if process.stdin is not None:  # ssh that ended before it took the program: asked for, or asyncio prints it at exit
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await process.stdin.wait_closed()


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read on, so that nothing waits for us, and keep nothing."""

    async def empty(stream: asyncio.StreamReader | None) -> None:
        while stream is not None and await stream.read(_CHUNK_BYTES):
            pass

    await asyncio.gather(empty(process.stdout), empty(process.stderr))
    await process.wait()
