"""Who comes: a program for a session, or one more connection of its TensorFlow to the server of that.

A connection begins with a JSON line: wire, release, token, and `session` (of a connection to a session's server: its
name; of a new session ""), there also `tensorflow`, the client's version. It is answered by lines: {"starting": true}
while a server starts, then {"session": name, "tensorflow": version}, or {"refused": sentence}. After that a session's
own connection carries an empty line now and then, both ways, and ends with either side; another one carries
TensorFlow's bytes. One with `back` waits until the session's server wants to reach its client, which it is told by
{"back": true}: no connection is ever opened from the server.
"""

from __future__ import annotations

import argparse
import hmac
import json
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from elastic_ai_tfserver import WIRE, release
from elastic_ai_tfserver.session import SessionFault, Sessions, Worker

HELLO_BYTES, HELLO_S = 4096, 5.0
#: Connections that have not shown the token yet, and such of one session.
MOST_WAITING, MOST_STREAMS = 16, 64
#: How often a session's connection is spoken on, and how long the other side may be silent.
BEAT_S, SILENT_S = 2.0, 20.0
BUFFER = 1 << 18


class Refused(Exception):
    """Who came may not; the text is a sentence for him. `known`: he has shown the token."""

    def __init__(self, words: str, known: bool = True) -> None:
        """What he is told, where he is known."""
        super().__init__(words)
        self.known = known


def pump(source: socket.socket, target: socket.socket) -> None:
    """All bytes from one to the other, and then its end."""
    room = bytearray(BUFFER)
    view = memoryview(room)
    with suppress(OSError):
        while count := source.recv_into(view):
            target.sendall(view[:count])
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def join(one: socket.socket, other: socket.socket) -> None:
    """Both ways, until both have ended."""
    back = threading.Thread(target=pump, args=(other, one), daemon=True)
    back.start()
    pump(one, other)
    back.join()
    one.close()
    other.close()


def minor(version: str) -> str:
    """Of 2.21.0 2.21."""
    return ".".join(version.split(".")[:2])


class Door:
    """Asks for the token."""

    def __init__(self, given: argparse.Namespace, token: str, sessions: Sessions, report: Callable[..., None]) -> None:
        """report: is told what happens."""
        self.given, self._token, self.sessions, self.report = given, token.encode(), sessions, report
        self._waiting: dict[socket.socket, str] = {}
        self._streams: dict[str, set[socket.socket]] = {}
        self._parked: dict[str, queue.SimpleQueue[socket.socket]] = {}
        self._lock = threading.Lock()

    def enter(self, connection: socket.socket, peer: str) -> None:
        """A new connection, in a thread of its own; of too many the oldest of the address that has most goes."""
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                peers = list(self._waiting.values())
                most = max(peers, key=peers.count)
                oldest = next(sock for sock, one in self._waiting.items() if one == most)
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
                self._waiting.pop(oldest)
            self._waiting[connection] = peer
        threading.Thread(target=self._visit, args=(connection, peer), daemon=True).start()

    def _visit(self, visitor: socket.socket, peer: str) -> None:
        connection: socket.socket | None = visitor
        try:
            hello = self._hello(visitor)
            visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            visitor.settimeout(None)
            name = str(hello.get("session", ""))
            if name and hello.get("back"):
                if not self._park(visitor, name):
                    raise Refused("this session has ended")
                connection = None
            elif name:
                self._stream(visitor, name)
            else:
                self._session(visitor, peer, str(hello.get("tensorflow", "")))
        except Refused as fault:
            self.report(event="refused", peer=peer, why=str(fault))
            _say(visitor, refused=str(fault) if fault.known else "the server does not know this token")
        except OSError:
            pass
        finally:
            with self._lock:
                self._waiting.pop(visitor, None)
            if connection is not None:
                connection.close()

    def _hello(self, connection: socket.socket) -> dict[str, Any]:
        line, until = b"", time.monotonic() + HELLO_S
        while not line.endswith(b"\n"):
            connection.settimeout(max(until - time.monotonic(), 0.01))
            try:
                data = connection.recv(1)  # what follows the line is TensorFlow's
            except TimeoutError:
                raise Refused("no token in time", known=False) from None
            if not data or len(line) >= HELLO_BYTES:
                raise Refused("no hello", known=False)
            line += data
        try:
            hello = json.loads(line)
            shown = str(hello["token"]).encode()
        except (ValueError, KeyError, TypeError):
            raise Refused("no hello", known=False) from None
        if not hmac.compare_digest(shown, self._token):
            raise Refused("token refused", known=False)
        with self._lock:
            self._waiting.pop(connection, None)
        if hello.get("wire") != WIRE or hello.get("release") != release():
            raise Refused(
                f"the client has release {hello.get('release')} of the engine, the server {release()}; run site.yml "
                "for both"
            )
        return dict(hello)

    def _stream(self, connection: socket.socket, name: str) -> None:
        worker = self.sessions.running.get(name)
        if worker is None:
            raise Refused("this session has ended")
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with self._lock:
            streams = self._streams.setdefault(name, set())
            if len(streams) >= MOST_STREAMS:
                raise Refused(f"the session has {MOST_STREAMS} connections already")
            streams.add(connection)
        try:
            inner.connect(worker.file)
            _say(connection, session=name)
            join(connection, inner)
        finally:
            inner.close()
            with self._lock:
                streams.discard(connection)

    def _park(self, connection: socket.socket, name: str) -> bool:
        with self._lock:
            parked, streams = self._parked.get(name), self._streams.setdefault(name, set())
            if parked is None or len(streams) >= MOST_STREAMS:
                return False
            streams.add(connection)
            parked.put(connection)
        return True

    def _pass_back(self, listener: socket.socket, worker: Worker) -> None:
        """Each connection of the session's server to its client by one that the client has parked."""
        parked = self._parked[worker.name]
        with suppress(OSError):
            while True:
                inner, _ = listener.accept()
                threading.Thread(target=self._back, args=(inner, parked), daemon=True).start()

    def _back(self, inner: socket.socket, parked: queue.SimpleQueue[socket.socket]) -> None:
        try:
            outer = parked.get(timeout=HELLO_S)
        except queue.Empty:
            inner.close()
            return
        _say(outer, back=True)
        join(outer, inner)

    def _session(self, connection: socket.socket, peer: str, has: str) -> None:
        try:
            _say(connection, starting=True)
            version = self.sessions.prepare()
            if minor(has) != minor(version):
                raise Refused(
                    f"the program has TensorFlow {has or 'of an unknown release'}, and the server of the lease "
                    f"{version}; install tensorflow {minor(version)}.* for the program (its ordinary wheel), or run it "
                    "by --where server"
                )
            worker = self.sessions.begin()
        except SessionFault as fault:
            raise Refused(str(fault)) from None
        self.report(event="client", peer=peer, pid=worker.process.pid)
        with self._lock:
            self._parked[worker.name] = queue.SimpleQueue()
        listener = worker.listen_back()
        threading.Thread(target=self._pass_back, args=(listener, worker), daemon=True).start()
        threading.Thread(target=self._prepare, daemon=True).start()
        try:
            _say(connection, session=worker.name, tensorflow=version)
            self._beat(connection, worker)
        finally:
            with self._lock:
                streams = self._streams.pop(worker.name, set())
                self._parked.pop(worker.name)
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            self.sessions.end(worker)
            for stream in streams:
                with suppress(OSError):
                    stream.shutdown(socket.SHUT_RDWR)
            self.report(event="gone", pid=worker.process.pid, status=worker.process.returncode)

    def _prepare(self) -> None:
        with suppress(SessionFault):
            self.sessions.prepare()

    def _beat(self, connection: socket.socket, worker: Worker) -> None:
        """Until the client is gone, or silent, or the server has ended, which the client is told."""
        heard = said = time.monotonic()
        while time.monotonic() - heard < SILENT_S:
            if worker.process.poll() is not None:
                _say(connection, end=worker.end_words())
                return
            if select.select([connection], [], [], 0.5)[0]:
                if not connection.recv(4096):
                    return
                heard = time.monotonic()
            if time.monotonic() - said >= BEAT_S:
                # not waited for: a client that does not read is silent for itself
                with suppress(BlockingIOError):
                    connection.send(b"\n", socket.MSG_DONTWAIT)
                said = time.monotonic()


def _say(connection: socket.socket, **words: Any) -> None:
    with suppress(OSError):
        connection.sendall(json.dumps(words).encode() + b"\n")
