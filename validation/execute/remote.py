"""A probe that runs on a node, seen from the controller: a local process whose stdin holds the probe's life.

Closing stdin ends the probe and everything that it started (validation/probes/supervise.py), and the kernel closes it
for us when the controller dies, however it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from validation.model import Node
from validation.probes.controller import INVENTORY

STOP_TIMEOUT_S = 12.0  # the supervisor's grace and kill time, and a slow connection
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Output:
    """What came back from a probe's process."""

    returncode: int
    stdout: bytes
    stderr: bytes

    def documents(self) -> list[dict[str, Any]]:
        """Every line of stdout that is a JSON object, in order; other lines are left out."""
        found = []
        for line in self.stdout.splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(line)
                if isinstance(value, dict):
                    found.append(value)
        return found


class Remote:
    """A running probe. Reads its output all the time, so that it never blocks on a full pipe."""

    def __init__(self, node: str, process: asyncio.subprocess.Process) -> None:
        """Take over a process whose stdin, stdout and stderr are pipes."""
        self.node = node
        self._process = process
        self._out = bytearray()
        self._err = bytearray()
        self._line = asyncio.Event()  # a whole line of stdout is there, or the process has ended
        self._end = asyncio.ensure_future(self._watch())

    @classmethod
    async def spawn(cls, node: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> Remote:
        """Start `command` locally in a session of its own: a terminal's Ctrl-C must not reach it before us."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=env,
        )
        return cls(node, process)

    @classmethod
    async def here(cls, node: str, probe: Sequence[str], site: str) -> Remote:
        """Start a probe on this machine, on behalf of a node; it finds the inventory `site` in its environment."""
        command = [sys.executable, "-m", "validation.probes", "--controlled", *probe]
        return await cls.spawn(node, command, {**os.environ, INVENTORY: site})

    async def _pump(self, stream: asyncio.StreamReader | None, into: bytearray, notice: bool) -> None:
        if stream is None:
            return
        while chunk := await stream.read(_CHUNK_BYTES):
            into.extend(chunk)
            if notice and b"\n" in chunk:
                self._line.set()

    async def _watch(self) -> Output:
        try:
            await asyncio.gather(
                self._pump(self._process.stdout, self._out, True), self._pump(self._process.stderr, self._err, False)
            )
            code = await self._process.wait()
            return Output(code, bytes(self._out), bytes(self._err))
        finally:
            self._line.set()

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

    async def first_document(self) -> dict[str, Any] | None:
        """The first JSON object that the probe prints; None when it ends without one."""
        await self._line.wait()
        documents = Output(0, bytes(self._out), b"").documents()
        return documents[0] if documents else None

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
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            return await self._end


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
