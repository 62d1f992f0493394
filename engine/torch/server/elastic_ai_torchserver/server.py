"""The parent: accepts, asks for the token, forks, and knows its children's ends."""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

from elastic_ai_torchserver import MOST_SESSIONS, NAME, fail, verbs
from elastic_ai_torchserver.door import TOO_MANY, Door, Waiting, read_token, refusal
from elastic_ai_torchserver.groups import Groups, pid_of
from elastic_ai_torchserver.memory import DeviceMemory
from elastic_ai_torchserver.options import allowed, plain
from elastic_ai_torchserver.peers import Peers
from elastic_ai_torchserver.session import serve

TOLD, TOLD_S = 200, 10.0  # who has no token may come as often as he likes: so many are told in so many seconds
CLD_KILLED = 128
PR_SET_PDEATHSIG = 1


class Server:
    """One for each lease."""

    def __init__(self, given: argparse.Namespace, library: ctypes.CDLL) -> None:
        """Everything but the socket."""
        self.given, self.library = given, library
        self.allowed = allowed(given.allow)
        self.peers = Peers(given.peers or "")
        peer_token = read_token(given.peer_token_file) if given.peer_token_file else bytearray()
        self.peer_token = bytes(peer_token)
        self.door = Door(
            read_token(given.token_file), tuple(given.transport.split(",")), self.refused, peer_token, self.may_come
        )
        self.children: dict[int, tuple[int, str]] = {}  # pid: row of the account, peer
        self.controls: dict[int, socket.socket] = {}  # pid: what its connections with other sessions are handed over by
        self.since, self.told, self.left_out = 0.0, 0, 0
        self.use_told, self.use = 0.0, ""
        self.memory = DeviceMemory(given.memory_limit, given.context_bytes) if given.device == "cuda" else None
        self.shared = mmap.mmap(-1, library.eats_account_bytes())
        self.account = ctypes.addressof(ctypes.c_char.from_buffer(self.shared))
        # Beside a GPU it counts the host's memory alone, whose limit is the unit's.
        library.eats_account_make(self.account, 0 if self.memory else given.memory_limit)

    def report(self, **event: object) -> None:
        """A JSON line, without waiting: a reader that sleeps must not stop the server."""
        fd = self.given.report_fd
        if fd < 0:
            return
        try:
            if select.select([], [fd], [], 0)[1]:
                os.write(fd, (json.dumps(event) + "\n").encode())
        except OSError:
            self.given.report_fd = -1

    def refused(self, peer: str, why: str) -> None:
        """Tells of a connection that is turned away."""
        now = time.monotonic()
        if now - self.since >= TOLD_S:
            if self.left_out:
                self.report(event="refused", left_out=self.left_out)
            self.since, self.told, self.left_out = now, 0, 0
        self.told += 1
        if self.told <= TOLD:
            self.report(event="refused", peer=peer, why=why)
        else:
            self.left_out += 1

    def listen(self) -> None:
        """Binds, and writes the port file."""
        if "verbs" in self.door.offered and (why := verbs.why_not(self.library, self.given.bind)):
            fail(why, 1)
        try:
            family = socket.AF_INET6 if plain(self.given.bind).version == 6 else socket.AF_INET
        except ValueError:
            fail(f"--bind {self.given.bind}: give an IP address of this machine")
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A client speaks first: who says nothing does not come as far as here for a while, and takes nobody's place.
        self.listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        try:
            self.listener.bind((self.given.bind, self.given.port))
        except OSError as fault:
            fail(f"{self.given.bind} port {self.given.port}: {fault.strerror}", 1)
        self.listener.listen(4096)
        self.listener.setblocking(False)
        port = self.listener.getsockname()[1]
        if self.given.port_file:
            new = Path(f"{self.given.port_file}.new")
            new.write_text(f"{port}\n")
            new.replace(self.given.port_file)
        self.report(event="listening", port=port, pid=os.getpid())

    def may_come(self, address: str, is_peer: bool) -> bool:
        """Whether it is a client's address, or another server's of the lease."""
        if is_peer:
            return any(plain(address) == plain(peer) for peer, _ in self.peers.read())
        return plain(address) in self.allowed

    def introduce(self, one: Waiting) -> None:
        """Another server's connection to the session that it wants; away with it where that is not here."""
        control = self.controls.get(pid_of(one.member))
        try:
            if control is not None:
                one.connection.setblocking(True)
                socket.send_fds(control, [one.member.encode()], [one.connection.fileno()], socket.MSG_DONTWAIT)
        except OSError:  # the session is ending
            pass
        one.connection.close()

    def accept(self) -> bool:
        """Takes one connection to the door; False when none is there."""
        try:
            connection, address = self.listener.accept()
        except BlockingIOError:
            return False
        except OSError:
            time.sleep(0.01)
            return False
        peer = plain(address[0].split("%")[0])
        if self.may_come(str(peer), False) or self.may_come(str(peer), True):
            self.door.let_wait(connection, str(peer))
        else:
            self.refused(str(peer), "address not allowed")
            connection.close()
        return True

    def look(self) -> None:
        """A child for each client that has shown the token."""
        for one in self.door.look():
            if one.member:
                self.introduce(one)
            else:
                self.start(one)

    def start(self, one: Waiting) -> None:
        """A child for a client that has shown the token."""
        taken = {row for row, _ in self.children.values()}
        row = next((row for row in range(MOST_SESSIONS) if row not in taken), None)
        if row is None:
            self.refused(one.peer, f"{MOST_SESSIONS} connections are open")
            with suppress(OSError):  # it may have gone; the server must not
                one.connection.send(refusal(TOO_MANY, f"the server has {MOST_SESSIONS} sessions, its most"))
            one.connection.close()
            return
        parent = os.getpid()
        control, childs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.fork()
        except OSError as fault:
            self.refused(one.peer, f"fork: {fault.strerror}")
            for left in (one.connection, control, childs):
                left.close()
            return
        if pid == 0:
            status = 1
            try:
                status = self.child(one, row, parent, childs)
            except BaseException as fault:  # a child returns nowhere
                print(f"{NAME}: session of {one.peer}: {fault}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        one.connection.close()
        childs.close()
        self.children[pid], self.controls[pid] = (row, one.peer), control
        self.report(event="client", peer=one.peer, pid=pid)

    def child(self, one: Waiting, row: int, parent: int, control: socket.socket) -> int:
        """In the child: nothing of the parent's but its death."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return 1
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        groups = Groups(self.given, self.listener.getsockname()[1], control, self.peer_token)
        self.listener.close()
        self.door.forget_all()
        for other in self.controls.values():
            other.close()
        return serve(one, row, self.given, self.library, self.account, self.memory, self.report, groups)

    def tell_use(self) -> None:
        """What all sessions hold of each device, by the account (its rows stand at its end), at most once a second."""
        file = self.given.use_file
        if not file or (time.monotonic() < self.use_told + 1 and self.children):
            return
        if self.memory:
            named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            use = [self.memory.used(index) for index, _ in enumerate(named.split(","))] if named else [-1]
        elif self.given.devices == 1:
            use = [sum(struct.unpack(f"<{MOST_SESSIONS}Q", self.shared[len(self.shared) - 8 * MOST_SESSIONS :]))]
        else:
            use = [-1] * self.given.devices
        lines = "".join(f"{held}\n" for held in use)
        if lines != self.use:
            Path(f"{file}.new").write_text(lines)
            Path(f"{file}.new").replace(file)
        self.use_told, self.use = time.monotonic(), lines

    def reap(self) -> None:
        """Children that have ended."""
        while self.children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            row, _ = self.children.pop(pid)
            self.controls.pop(pid).close()
            self.library.eats_account_clear(ctypes.c_void_p(self.account), row)
            if self.memory:
                self.memory.clear(row)
            code = CLD_KILLED + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            self.report(event="gone", pid=pid, status=code)

    def stop(self, why: str) -> None:
        """Ends all sessions, then this."""
        for number, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
            for pid in self.children:
                os.kill(pid, number)
            until = time.monotonic() + patience
            while self.children and time.monotonic() < until:
                self.reap()
                time.sleep(0.002)
        if self.given.port_file:
            Path(self.given.port_file).unlink(missing_ok=True)
        self.report(event="stopped", why=why)
        raise SystemExit(0)

    def run(self) -> None:
        """Until a signal, or nobody has come for so long."""
        self.listen()
        wake, write = os.pipe()
        os.set_blocking(write, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        idle_since = time.monotonic()
        while True:
            ends = [one.until for one in self.door.waiting]
            if self.children:
                idle_since = time.monotonic()
            elif self.given.idle_timeout:
                ends.append(idle_since + self.given.idle_timeout)
            if self.given.use_file and self.children:
                ends.append(time.monotonic() + 1)
            patience = max(0.0, min(ends) - time.monotonic()) if ends else None
            ready = [self.listener.fileno(), wake, *(one.connection.fileno() for one in self.door.waiting)]
            select.select(ready, [], [], patience)
            self.reap()
            self.tell_use()
            try:
                numbers = os.read(wake, 512)
            except BlockingIOError:
                numbers = b""
            for number in (signal.SIGTERM, signal.SIGINT):
                if number in numbers:
                    self.stop(signal.Signals(number).name)
            idle = self.given.idle_timeout and not self.children and not self.door.waiting
            if idle and time.monotonic() >= idle_since + self.given.idle_timeout:
                self.stop("idle")
            # Who comes with its hello is looked at before the next one could take its place.
            self.look()
            for _ in range(64):
                if not self.accept():
                    break
                self.look()
