"""A process beside the program: between TensorFlow's connections, which come by a socket file that this user alone may
open, and the door of the lease's server, which wants the token first.

It begins with a session of the server, and says in a JSON line how that went. It ends with its input, so with the
program, however that ends; then the server ends the session. Where the session ends first, or the server is silent, it
says so in one sentence and closes all connections, by which TensorFlow's calls fail instead of waiting.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

CONNECT_S, STARTS_S = 5.0, 160.0
BEAT_S, SILENT_S = 2.0, 10.0
BUFFER = 1 << 18
#: Connections that wait for the server to want the program's TensorFlow.
PARKED = 2
MOST_LINE = 4096


class NoSession(Exception):
    """The text is a sentence."""


class Lines:
    """Lines of a connection, and no byte beyond them."""

    def __init__(self, sock: socket.socket) -> None:
        """Of this connection."""
        self.sock = sock

    def next(self, limit_s: float | None) -> dict[str, Any]:
        """The next that is no beat; limit_s None: whenever it comes. NoSession where none comes."""
        line, until = b"", time.monotonic() + (limit_s or 0)
        while True:
            left = None if limit_s is None else max(until - time.monotonic(), 0)
            if not select.select([self.sock], [], [], left)[0]:
                raise NoSession(f"it did not answer within {limit_s:.0f} s")
            data = self.sock.recv(1)
            if not data or len(line) > MOST_LINE:
                raise NoSession("it closed the connection")
            if data != b"\n":
                line += data
            elif line:
                try:
                    return dict(json.loads(line))
                except ValueError:
                    raise NoSession("it is no server of the engine tensorflow") from None


def pump(source: socket.socket, target: socket.socket) -> None:
    """All bytes from one to the other, and then its end."""
    view = memoryview(bytearray(BUFFER))
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


class Forwarder:
    """Of one program. given: address, port, token, release, wire, tensorflow; socket, the file of the server, and back,
    that of the program's own TensorFlow."""

    def __init__(self, given: dict[str, Any]) -> None:
        """Nothing is connected yet."""
        self.given, self.name = given, ""
        self.where = f"{given['address']}:{given['port']}"

    def _open(self, session: str, back: bool = False) -> tuple[socket.socket, dict[str, Any]]:
        """A connection that the door has answered. NoSession where it refused."""
        try:
            sock = socket.create_connection((self.given["address"], self.given["port"]), timeout=CONNECT_S)
        except OSError as fault:
            raise NoSession(f"it does not answer ({fault})") from None
        try:
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hello = {name: self.given[name] for name in ("wire", "release", "token", "tensorflow")}
            sock.sendall(json.dumps({**hello, "session": session, "back": back}).encode() + b"\n")
            if back:
                return sock, {}
            answer = Lines(sock).next(STARTS_S)
            while "starting" in answer:
                answer = Lines(sock).next(STARTS_S)
            if "refused" in answer:
                raise NoSession(str(answer["refused"]))
        except OSError as fault:
            sock.close()
            raise NoSession(f"the connection broke ({fault.strerror})") from None
        except BaseException:
            sock.close()
            raise
        return sock, answer

    def begin(self) -> dict[str, Any]:
        """The session. NoSession where there is none."""
        self.control, answer = self._open("")
        self.name = str(answer["session"])
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.given["socket"])
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        for _ in range(PARKED):
            threading.Thread(target=self._wait_back, daemon=True).start()
        return answer

    def _wait_back(self) -> None:
        """One connection by which the session's server reaches the program's TensorFlow, and the next one after it."""
        try:
            outer, _ = self._open(self.name, back=True)
            if "back" not in Lines(outer).next(None):
                return
        except (NoSession, OSError):
            return  # the session has ended, which its own connection tells
        threading.Thread(target=self._wait_back, daemon=True).start()
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inner.connect(self.given["back"])
        except OSError:
            outer.close()
            return
        join(inner, outer)

    def _accept(self) -> None:
        while True:
            inner, _ = self.listener.accept()
            threading.Thread(target=self._forward, args=(inner,), daemon=True).start()

    def _forward(self, inner: socket.socket) -> None:
        try:
            outer, _ = self._open(self.name)
        except NoSession:
            inner.close()
            return
        join(inner, outer)

    def keep(self, program: int) -> str:
        """As long as the program and the session are there: why the session ended, "" where the program did."""
        heard = said = time.monotonic()
        line = b""
        while time.monotonic() - heard < SILENT_S:
            control = self.control.fileno()
            ready = select.select([control, program], [], [], 0.5)[0]
            if program in ready and not os.read(program, 4096):
                return ""
            if control in ready:
                try:
                    data = self.control.recv(4096)
                except OSError as fault:
                    return f"the connection broke ({fault.strerror})"
                if not data:
                    return _end_of(line) or "it closed the connection: the lease has ended, or its server"
                heard, line = time.monotonic(), (line + data).lstrip(b"\n")[:MOST_LINE]
                if _end_of(line):
                    return _end_of(line)
            if time.monotonic() - said >= BEAT_S:
                with suppress(BlockingIOError):
                    try:
                        self.control.send(b"\n", socket.MSG_DONTWAIT)
                    except ConnectionError as fault:
                        return f"the connection broke ({fault.strerror})"
                said = time.monotonic()
        return f"it did not answer for {SILENT_S:.0f} s"


def _end_of(line: bytes) -> str:
    try:
        return str(json.loads(line).get("end", ""))
    except (ValueError, AttributeError):
        return ""


def main() -> None:
    """stdin: a JSON line, and then nothing until the program's end."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)  # of a terminal they are the program's; this one ends with it
    came = b""
    while not came.endswith(b"\n"):
        data = os.read(0, 65536)
        if not data:
            return
        came += data
    forwarder = Forwarder(json.loads(came))
    try:
        answer = forwarder.begin()
    except (NoSession, OSError) as fault:
        answer = {"refused": f"the lease's server {forwarder.where}: {fault}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.close()
    if "refused" in answer:
        return
    why = forwarder.keep(0)
    if why:
        print(f"elastic-ai: the lease's server {forwarder.where}: {why}", file=sys.stderr, flush=True)
    os._exit(0)  # with all connections; threads wait in them


if __name__ == "__main__":
    main()
