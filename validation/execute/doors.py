"""Many commands at once on one machine over ssh: a few shared connections, for a server allows ten sessions in each."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from validation.base import bounded
from validation.base.errors import RunError
from validation.base.sockets import sockets
from validation.base.temporary import Room
from validation.execute.remote import Output, Remote
from validation.execute.ssh import (
    ALIVE_COUNT,
    ALIVE_INTERVAL_S,
    BASE,
    CONNECT_TIMEOUT_S,
    GREET_TIMEOUT_S,
    common_arguments,
)
from validation.model import SshTarget

SESSIONS = 8
"""Of each connection; sshd's own limit is ten (MaxSessions, sshd_config(5))."""
_STAY = """printf '\\n{"ready": true, "mark": "%s"}\\n' MARK; exec cat >/dev/null"""


class Doors:
    """Connections to one machine. `explain`: one line of why it cannot be reached, from what ssh said."""

    def __init__(self, target: SshTarget, explain: Callable[[Output], str]) -> None:
        """Nothing is opened yet."""
        self._target, self._explain = target, explain
        self._room: Room | None = None
        self._anchors: list[Remote] = []
        self._given: list[int] = []
        self._gate = asyncio.Lock()

    async def spawn(
        self,
        node: str,
        words: Sequence[str],
        made: type[Remote] = Remote,
        what: str = "",
        most: int = bounded.PROBE_BYTES,
    ) -> Remote:
        """Start `words` there on behalf of a node; RunError where the machine is not reached."""
        async with self._gate:
            usable = (at for at, anchor in enumerate(self._anchors) if not anchor.ended and self._given[at] < SESSIONS)
            free = next(usable, None)
            if free is None:
                free = await self._open()
            self._given[free] += 1
        name = str(self._socket(free))
        line = ["ssh", "-F", "none", "-S", name, "-o", "ProxyCommand=false", *BASE, "-l", self._target.user]
        line += ["-p", str(self._target.port), self._target.host, shlex.join(words)]
        remote = await made.spawn(node, line, what=what or words[0], most=most)
        remote.when_ended(lambda: self._given.__setitem__(free, self._given[free] - 1) if self._given else None)
        return remote

    def _socket(self, number: int) -> Path:
        if self._room is None:
            self._room = sockets("eat-door")
        return self._room.path / str(number)

    async def _open(self) -> int:
        number = len(self._anchors)
        command = ["ssh", "-M", "-S", str(self._socket(number)), "-o", "ControlPersist=no", *BASE]
        command += ["-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}", "-o", f"ServerAliveInterval={ALIVE_INTERVAL_S}"]
        command += ["-o", f"ServerAliveCountMax={ALIVE_COUNT}", *common_arguments(self._target), self._target.host]
        mark = secrets.token_hex(8)
        stay = _STAY.replace("MARK", mark)
        anchor = await Remote.spawn("head", [*command, stay], what="its login", most=bounded.STEADY_BYTES)
        try:
            hello = await asyncio.wait_for(
                anchor.first_document(lambda said: said.get("mark") == mark), GREET_TIMEOUT_S
            )
        except asyncio.TimeoutError:
            await anchor.stop()
            words = f"no shell answered within {GREET_TIMEOUT_S} s; see what its login files wait for"
            raise RunError(f"the head {self._target.host}: {words}") from None
        if hello is None:
            raise RunError(f"the head {self._target.host}: {self._explain(await anchor.stop())}")
        self._anchors.append(anchor)
        self._given.append(1)  # the anchor itself
        return number

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(*(anchor.stop() for anchor in self._anchors))
        self._anchors, self._given = [], []
        if self._room is not None:
            self._room.close()
            self._room = None
