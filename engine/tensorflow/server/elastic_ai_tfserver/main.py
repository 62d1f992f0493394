"""The program."""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from elastic_ai_tfserver import INWARD, fail
from elastic_ai_tfserver.confine import NotConfined, version
from elastic_ai_tfserver.door import Door
from elastic_ai_tfserver.options import allowed, options, plain, read_token
from elastic_ai_tfserver.session import SessionFault, Sessions

#: Programs of a lease at a time; of a part one, whose own limit is then the lease's.
MOST_SESSIONS = 16
#: Who has no token may come as often as he likes: so many are told in so many seconds.
TOLD, TOLD_S = 200, 10.0


class Report:
    """Events as JSON lines, without waiting: a reader that sleeps must not stop the server."""

    def __init__(self, handle: int) -> None:
        """handle: -1 for none."""
        self._handle, self._since, self._told = handle, 0.0, 0
        if handle >= 0:
            try:
                os.set_inheritable(handle, False)
            except OSError as fault:
                fail(f"--report-fd {handle}: {fault.strerror}")

    def __call__(self, **event: Any) -> None:
        """Tell one."""
        if event.get("event") == "refused":
            if time.monotonic() - self._since >= TOLD_S:
                self._since, self._told = time.monotonic(), 0
            self._told += 1
            if self._told > TOLD:
                return
        with suppress(OSError):
            if self._handle >= 0 and select.select([], [self._handle], [], 0)[1]:
                os.write(self._handle, (json.dumps(event) + "\n").encode())


def listen(given: argparse.Namespace) -> socket.socket:
    """The listening socket."""
    try:
        family = socket.AF_INET6 if plain(given.bind).version == 6 else socket.AF_INET
    except ValueError:
        fail(f"--bind {given.bind}: give an IP address of this machine")
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # A client speaks first: who says nothing does not come as far as here for a while, and takes nobody's place.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
    try:
        listener.bind((given.bind, given.port))
    except OSError as fault:
        fail(f"{given.bind} port {given.port}: {fault.strerror}", 1)
    listener.listen(4096)
    return listener


def main() -> None:
    """Runs the server until SIGTERM, which ends all sessions."""
    given = options()
    clients, token, report = allowed(given.allow), read_token(given.token_file), Report(given.report_fd)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold the token
    if not INWARD.is_file():
        fail(f"{INWARD} is not there, and without it TensorFlow's server would listen to everybody; install the engine "
             "again", 1)  # fmt: skip
    try:
        version()
    except NotConfined as fault:
        fail(str(fault), 1)
    stopped: list[int] = []
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())  # the kernel may give a signal to any thread, and this one waits in select()
    signal.signal(signal.SIGTERM, lambda number, _frame: stopped.append(number))
    folder = given.scratch or os.environ.get("HOME") or tempfile.gettempdir()
    with tempfile.TemporaryDirectory(prefix="tf", dir=folder, ignore_cleanup_errors=True) as scratch:
        sessions = Sessions(given, Path(scratch), 1 if given.memory_limit else MOST_SESSIONS)
        try:
            report(event="tensorflow", version=sessions.prepare())
        except SessionFault as fault:
            sessions.end_all()
            fail(str(fault), 1)
        door, listener = Door(given, token, sessions, report), listen(given)
        port = listener.getsockname()[1]
        if given.port_file:
            new = Path(f"{given.port_file}.new")
            new.write_text(f"{port}\n")
            new.replace(given.port_file)
        report(event="listening", port=port, pid=os.getpid())
        try:
            while not stopped:
                if listener in select.select([listener, reader], [], [])[0]:
                    accept(listener, clients, door, report)
        finally:
            listener.close()
            sessions.end_all()
            if given.port_file:
                Path(given.port_file).unlink(missing_ok=True)
            report(event="stopped", why="SIGTERM")


def accept(listener: socket.socket, clients: set[Any], door: Door, report: Report) -> None:
    """One connection to the door."""
    try:
        connection, address = listener.accept()
    except OSError:
        time.sleep(0.01)
        return
    peer = plain(address[0].split("%")[0])
    if peer in clients:
        door.enter(connection, str(peer))
    else:
        report(event="refused", peer=str(peer), why="address not allowed")
        connection.close()
