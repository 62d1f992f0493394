"""The client's side of a lease: connections that say that it is still there, and hear when the lease ends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

from toolkit.lease import Exit, LeaseError, wire
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.wire import EndCode, Ending, IdleNotice, Notice, Use

CONNECT_S = 5.0
RETRY_S = 0.5
#: How often the first connection is tried: others may crowd the port.
FIRST_TRIES = 3
#: An agent answers each beat; after so many without an answer the connection is dead, though nothing closed it.
BEATS_LOST = 3


class _Gone(Exception):
    """The agent closed the connection, or it broke."""


class _Impostor(_Gone):
    """Who answers does not know the lease."""


class _Connection:
    """One proved connection to one agent."""

    def __init__(self, endpoint: LeaseEndpoint) -> None:
        self._lines = wire.LineBuffer()
        self._waiting: list[str] = []
        self.sock = socket.create_connection((endpoint.address, endpoint.agent_port), timeout=CONNECT_S)
        try:
            if endpoint.knock:
                self.send(wire.knock(endpoint.token))
            nonce = wire.nonce_of(self.line())
            self.send(f"owner {wire.proof(endpoint.token, 'owner', nonce)}")
            words = self.line().split()
            known = len(words) == 3 and words[0] == "welcome"
            if not nonce or not known or not wire.proves(words[2], endpoint.token, "agent", nonce):
                raise _Impostor("the agent does not know this lease")
        except BaseException:
            self.sock.close()
            raise

    def line(self) -> str:
        """The next line; _Gone when the connection ends, TimeoutError when nothing comes."""
        while not self._waiting:
            data = self.sock.recv(4096)
            if not data:
                raise _Gone("closed")
            self._waiting += self._lines.feed(data)
            if self._lines.overflow:
                raise _Gone("not an agent")
        return self._waiting.pop(0)

    def send(self, line: str) -> None:
        """Send one line."""
        self.sock.sendall(line.encode() + b"\n")


class Keeper(threading.Thread):
    """Keeps one server's part of a lease alive; `notice` is there once its end is announced, `idle` while its GPUs are
    not used, and `lost` is set, with `ending`, when it ended."""

    def __init__(self, endpoint: LeaseEndpoint, lost: threading.Event) -> None:
        """Connect; the thread does not run yet. LeaseError when the agent does not answer."""
        super().__init__(daemon=True, name=f"lease-{endpoint.node}")
        self.endpoint, self.lost = endpoint, lost
        self.ending: Ending | None = None
        self.notice: Notice | None = None
        self.idle: IdleNotice | None = None
        #: What its devices do, by their place in the endpoint, and how often that was told.
        self.use: dict[int, Use] = {}
        self.use_told = 0
        self._ended = threading.Event()
        self._connection = self._first()
        self._heard = time.monotonic()

    def _first(self) -> _Connection:
        where = f"{self.endpoint.node} ({self.endpoint.address}:{self.endpoint.agent_port})"
        for last in [False] * (FIRST_TRIES - 1) + [True]:
            try:
                return _Connection(self.endpoint)
            except (OSError, _Gone) as fault:
                if last or isinstance(fault, (ConnectionRefusedError, _Impostor)):
                    words = f"the lease's agent on {where} does not answer: {fault}"
                    raise LeaseError(words, Exit.RETRY) from None
                time.sleep(RETRY_S)
        raise AssertionError

    def _beat(self) -> None:
        """Speak and listen until the connection breaks or the lease ends."""
        connection = self._connection
        connection.sock.settimeout(self.endpoint.heartbeat_s)
        connection.send("alive")
        sent = time.monotonic()
        while not self._ended.is_set():
            try:
                word, _, rest = connection.line().partition(" ")
                self._heard = time.monotonic()
                if word == "end":
                    self.ending = wire.parse_end(rest)
                    return
                if word == "ends":
                    self.notice = wire.parse_notice(rest) or self.notice
                if word == "idle":
                    self.idle = wire.parse_idle(rest)
                if word == "use":
                    self._hear_use(rest)
            except TimeoutError:
                if time.monotonic() - self._heard > BEATS_LOST * self.endpoint.heartbeat_s:
                    raise _Gone("silent") from None
            if time.monotonic() - sent >= self.endpoint.heartbeat_s * 0.9:
                connection.send("alive")
                sent = time.monotonic()

    def _hear_use(self, rest: str) -> None:
        found = wire.parse_use(rest)
        if found is not None and found[0] < len(self.endpoint.devices):
            self.use = {**self.use, found[0]: found[1]}
            self.use_told += 1

    def run(self) -> None:
        """The thread: as long as the lease and this program live."""
        while not self._ended.is_set() and self.ending is None:
            try:
                self._beat()
            except (OSError, _Gone):
                if time.monotonic() - self._heard > self.endpoint.grace_s:
                    words = f"{self.endpoint.node} did not answer for {self.endpoint.grace_s:.0f} s"
                    self.ending = Ending(EndCode.LOST, words)
                self._reconnect()
        self._connection.sock.close()
        if self.ending:
            self.lost.set()

    def _reconnect(self) -> None:
        self._connection.sock.close()
        self._ended.wait(RETRY_S)
        try:
            self._connection = _Connection(self.endpoint)
            self._heard = time.monotonic()
        except ConnectionRefusedError:
            self.ending = Ending(EndCode.LOST, f"its server on {self.endpoint.node} has ended")
        except (OSError, _Gone):
            return

    def end(self) -> None:
        """Stop keeping it."""
        self._ended.set()


def keep(endpoints: Sequence[LeaseEndpoint]) -> tuple[list[Keeper], threading.Event]:
    """Connect to all servers of a lease; the threads are not started yet. LeaseError when one does not answer."""
    lost = threading.Event()
    return [Keeper(endpoint, lost) for endpoint in endpoints], lost
