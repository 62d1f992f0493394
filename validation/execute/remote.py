"""A probe that runs on a node, seen from the controller: a local process whose stdin holds the probe's life.

Closing stdin ends the probe and everything that it started (validation/probes/supervise.py), and the kernel closes it
for us when the controller dies, however it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from validation.base import bounded, noise
from validation.model import Node
from validation.probes import ProbeDoc
from validation.probes.controller import INVENTORY

STOP_TIMEOUT_S = 12.0  # the supervisor's grace and kill time, and a slow connection
_CHUNK_BYTES = 1 << 16


def is_report(document: Mapping[str, Any]) -> bool:
    """Whether a document has all keys of a probe's report."""
    return ProbeDoc.__required_keys__ <= set(document)


def named(probe: Sequence[str]) -> str:
    """`the probe NAME`, of the arguments of `python -m validation.probes`."""
    return f"the probe {next((word for word in probe if word[:1].isalpha()), '')}".rstrip()


@dataclass(frozen=True)
class Output:
    """What came back from a probe's process. `fault`: why it was ended before its own end, "" where it was not."""

    returncode: int
    stdout: bytes
    stderr: bytes
    fault: str = ""

    def documents(self) -> list[dict[str, Any]]:
        """Every line of stdout that is a JSON object, in order; other lines are left out."""
        return noise.documents(self.stdout)

    @property
    def last_words(self) -> str:
        """The line that tells best how it ended: of stderr, else of stdout; "" where neither has one."""
        said = noise.last_words(self.stderr.decode("utf-8", "replace"))
        return said or noise.last_words(self.stdout.decode("utf-8", "replace"))


class Remote:
    """A running probe. Reads its output all the time, so that it never blocks on a full pipe."""

    def __init__(
        self, node: str, process: asyncio.subprocess.Process, what: str = "", most: int = bounded.PROBE_BYTES
    ) -> None:
        """Take over a process whose stdin, stdout and stderr are pipes; `what` it is, in words, and how many bytes it
        may print on each stream."""
        self.node = node
        self._process = process
        self._what, self._most = what or "the command", most
        self._out = bytearray()
        self._err = bytearray()
        self._news = asyncio.Event()  # a whole line of stdout is there, or the process has ended
        self._closed = False
        self._fault = ""
        self._end = asyncio.ensure_future(self._watch())

    @classmethod
    async def spawn(
        cls,
        node: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        what: str = "",
        most: int | None = None,
    ) -> Remote:
        """Start `command` locally in a session of its own: a terminal's Ctrl-C must not reach it before us."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=env,
        )
        return cls(node, process, what or command[0], most or bounded.PROBE_BYTES)

    @classmethod
    async def here(cls, node: str, probe: Sequence[str], site: str) -> Remote:
        """Start a probe on this machine, on behalf of a node; it finds the inventory `site` in its environment."""
        command = [sys.executable, "-m", "validation.probes", "--controlled", *probe]
        return await cls.spawn(node, command, {**os.environ, INVENTORY: site}, named(probe))

    async def _pump(self, stream: asyncio.StreamReader | None, into: bytearray, name: str) -> None:
        if stream is None:
            return
        while chunk := await stream.read(_CHUNK_BYTES):
            if self._fault:
                continue  # read on, so that the node's end is not held up; nothing of it is kept
            into.extend(chunk)
            if len(into) > self._most:
                self._too_much(name)
            elif b"\n" in chunk and into is self._out:
                self._news.set()

    def _too_much(self, name: str) -> None:
        """End what prints without an end: on the node by its stdin, and here where that does not help."""
        self._fault = f"{self._what} printed more than {bounded.size(self._most)} on {name} and was ended"
        for held in (self._out, self._err):
            del held[bounded.KEPT_BYTES :]
        self._news.set()
        if self._process.stdin is not None:
            self._process.stdin.close()
        kill = asyncio.get_running_loop().call_later(STOP_TIMEOUT_S, self._kill)
        self._end.add_done_callback(lambda _: kill.cancel())

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _watch(self) -> Output:
        try:
            await asyncio.gather(
                self._pump(self._process.stdout, self._out, "stdout"),
                self._pump(self._process.stderr, self._err, "stderr"),
            )
            code = await self._process.wait()
            return Output(code, bytes(self._out), bytes(self._err), self._fault)
        finally:
            self._closed = True
            self._news.set()

    @property
    def said(self) -> str:
        """What came on stderr so far."""
        return self._err.decode("utf-8", "replace")

    def when_ended(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the process is over."""
        self._end.add_done_callback(lambda _: tell())

    @property
    def ended(self) -> bool:
        """True when the process is over."""
        return self._end.done()

    async def first_document(self, ours: Callable[[dict[str, Any]], bool] = noise.is_ready) -> dict[str, Any] | None:
        """The first JSON object that is `ours`, whatever else comes before it; None when it ends without one."""
        read = 0
        while True:
            over = self._closed or bool(self._fault)
            whole = len(self._out) if over else self._out.rfind(b"\n") + 1
            for document in noise.documents(bytes(self._out[read:whole])):
                if ours(document):
                    return document
            read = max(read, whole)
            if over:
                return None
            self._news.clear()
            await self._news.wait()

    def go(self) -> None:
        """Let a held probe start."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._process.stdin.write(b"go\n")

    async def finish(self) -> Output:
        """Wait for the end; safe to cancel and to call again."""
        return await asyncio.shield(self._end)

    async def stop(self) -> Output:
        """End the probe and wait until nothing of it is left on the node; kill the local end if that takes too long."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            return await asyncio.wait_for(asyncio.shield(self._end), STOP_TIMEOUT_S)
        except asyncio.TimeoutError:
            self._kill()
            return await self._end
        finally:
            if self._end.done() and self._process.stdin is not None:  # asked for, or asyncio prints it at exit
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    await self._process.stdin.wait_closed()


class Launcher(Protocol):
    """How probes are started on nodes."""

    async def connect(self, nodes: Sequence[Node]) -> dict[str, str]:
        """Reach all nodes at the same time; node name -> one clear line, for each that cannot be used."""

    async def start(self, node: str, probe: Sequence[str]) -> Remote:
        """Start a probe: the arguments of `python -m validation.probes`."""

    async def here(self, node: str, probe: Sequence[str]) -> Remote:
        """The same on this machine, on behalf of a node."""

    async def alive(self, node: str) -> str | None:
        """None when the node answers, after one try to connect again where it had gone; else one clear line."""

    async def close(self) -> None:
        """Stop every probe that still runs and end all connections."""
