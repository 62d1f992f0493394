"""Main process of a lease's unit on a GPU server: starts the engine's server, and ends the lease in time.

Where the lease's program runs on the server itself there is no engine: it keeps the time and watches the client.

It runs under the lease's own uid in the unit's sandbox, reads its instance from systemd's credentials, and ends, with
its whole unit, when the engine's server ends, when the time is over, or, for a `run` lease, when its owner's machine is
gone. The reason is left in $RUNTIME_DIRECTORY/reason for whoever cleans up.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from toolkit.lease import LeaseError, wire
from toolkit.lease.engines import load
from toolkit.lease.instance_record import Instance
from toolkit.lease.machine.sockets import listeners
from toolkit.lease.machine.unit import HOME, home_environment
from toolkit.lease.server.bounded_lines import Bounded
from toolkit.lease.use import Looker, looked_at
from toolkit.lease.wire import WORDS, Deadline, EndCode, Ending

#: A client that ends closes its connection; this long it may take to come back, as after a short failure of its own.
RETURN_S = 3.0
TICK_S = 0.5
MAX_CONNECTIONS = 32
#: Connections that have not proved yet that they have the token, and how long they may take. Those whose first line
#: shows it (wire.knock) have places of their own, which no stranger takes. Of the others the newest stay, for a first
#: line comes within milliseconds; the address that has most of them loses its oldest.
MAX_STRANGERS, MAX_KNOCKED, UNPROVEN_S = 512, 16, 5.0
#: Connections that the kernel keeps for us, and how many are taken between two looks at the others.
BACKLOG, ACCEPTS = 4096, 64
#: Knocks that were heard, so that none is heard twice.
MAX_HEARD = 4096


@dataclass
class _Peer:
    """A connection; `owner` once it has proved that it has the token, `knocked` once it has shown so."""

    sock: socket.socket
    address: str
    nonce: str
    since: float
    owner: bool = False
    knocked: bool = False
    lines: wire.LineBuffer = field(default_factory=wire.LineBuffer)


class Expiry:
    """When the lease ends. All by the monotonic clock: a step of the other ends nobody's lease."""

    def __init__(self, mode: str, deadline: Deadline, grace_s: float, first_s: float) -> None:
        """`first_s` is how long the owner may take to come at all."""
        self.mode, self.deadline, self.grace_s = mode, deadline, grace_s
        self._last = time.monotonic() + first_s - grace_s  # as if heard so late that grace ends after first_s
        self._closed: float | None = None

    def heard(self) -> None:
        """The owner spoke."""
        self._last, self._closed = time.monotonic(), None

    def closed(self) -> None:
        """The owner's last connection was closed by its side."""
        self._closed = time.monotonic()

    def over(self) -> Ending | None:
        """Why the lease ends now, None while it goes on."""
        if self.deadline.due is not None and time.monotonic() >= self.deadline.due:
            return Ending(self.deadline.code, WORDS[self.deadline.code])
        if self.mode == "run":
            now = time.monotonic()
            if self._closed is not None and now - self._closed > RETURN_S:
                return Ending(EndCode.CLIENT, "its client is gone")
            if now - self._last > self.grace_s:
                return Ending(EndCode.CLIENT, f"its client was silent for {self.grace_s:.0f} s")
        return None


class Agent:
    """One lease's instance."""

    def __init__(self, instance: Instance, token: str, runtime: Path, token_file: Path) -> None:
        """Nothing is started yet."""
        self.instance, self.token, self.runtime = instance, token, runtime
        deadline = Deadline.read(instance.deadline_file)
        self.expiry = Expiry(instance.mode, deadline, instance.grace_s, instance.first_s)
        self.selector = selectors.DefaultSelector()
        self.peers: dict[socket.socket, _Peer] = {}
        #: Of those that have shown nothing yet, by address, the oldest first; and those that have knocked.
        self.strangers: dict[str, dict[socket.socket, _Peer]] = {}
        self.knocked: dict[socket.socket, _Peer] = {}
        self.heard: dict[str, None] = {}
        self.refused = Bounded("refused a connection without the token")
        self.ending: Ending | None = None
        #: Whether the owner was told that the lease is idle, which may be over.
        self.told_idle = False
        self._start = instance.start(runtime / "port", token_file)
        self.looker = Looker(instance.devices) if looked_at(instance) else None
        self.engine: subprocess.Popen[bytes] | None = None

    def stop(self, *_signal: object) -> None:
        """SIGTERM: the server takes the lease back."""
        code = self.expiry.deadline.code if self.expiry.deadline.early else EndCode.TAKEN_BACK
        self.ending = self.ending or Ending(code, WORDS[code])

    def start_engine(self) -> None:
        """Start the engine's server, if there is one, and wait until it listens. LeaseError when it does not."""
        if self.instance.native:
            return
        adapter = load(self.instance.engine)
        if self._start.peers_file is not None:
            self._start.peers_file.write_text(self.instance.peers_text())
        command = adapter.command(self._start)
        environment = {
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "LANGUAGE": "",
            **self._home(),
            **command.environment,
        }
        try:
            self.engine = subprocess.Popen(command.argv, env=environment, stdin=subprocess.DEVNULL)
        except OSError as fault:
            raise LeaseError(f"the engine's server did not start: {fault.strerror} ({command.argv[0]})") from None
        until = time.monotonic() + adapter.STARTS_S
        while time.monotonic() < until:
            if self.engine.poll() is not None:
                raise LeaseError(f"the engine's server ended at its start with exit code {self.engine.returncode}")
            if self._start.port_file.exists() if command.tells_port else self._listens():
                return
            if self.ending:
                raise LeaseError("taken back while it started")
            time.sleep(0.02)
        raise LeaseError(f"the engine's server did not listen within {adapter.STARTS_S:.0f} s")

    def _home(self) -> dict[str, str]:
        """The unit's own home; in a unit that was started without one, the folder that goes with it."""
        if not Path(HOME).is_dir():
            return {"HOME": str(self.runtime)}
        return home_environment(self.instance.memory_bytes)

    def _listens(self) -> bool:
        """Whether the engine has its port, and not somebody else, who would be shown the lease's token."""
        return any(one.uid == os.getuid() for one in listeners([self._start.port]))

    def listen(self) -> None:
        """Open the port for the owner."""
        server = socket.create_server((self.instance.address, self.instance.agent_port), backlog=BACKLOG)
        server.setblocking(False)
        self.selector.register(server, selectors.EVENT_READ, self._accept)

    def _accept(self, server: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, address = server.accept()
            except OSError:
                return  # nobody else, or no descriptor left for him
            self._welcome(sock, str(address[0]))

    def _welcome(self, sock: socket.socket, address: str) -> None:
        if sum(map(len, self.strangers.values())) >= MAX_STRANGERS:
            most = max(self.strangers.values(), key=len)
            self._drop(next(iter(most.values())))
        sock.setblocking(False)
        peer = _Peer(sock, address, secrets.token_hex(16), time.monotonic())
        self.peers[sock] = self.strangers.setdefault(address, {})[sock] = peer
        self.selector.register(sock, selectors.EVENT_READ, self._read)
        self._say(peer, f"{wire.GREETING} {peer.nonce}")
        if sock in self.peers:
            self._read(sock)  # who knocks has done so before anybody else could take his place

    def _knock(self, peer: _Peer, rest: str) -> None:
        """A first line that shows the token. It opens nothing: the connection has yet to prove that it is no replay."""
        said = wire.knocks(rest, self.token)
        if not said or said in self.heard:
            self.refused.tell()
            self._drop(peer)
            return
        self.heard[said] = None
        if len(self.heard) > MAX_HEARD:
            del self.heard[next(iter(self.heard))]
        if len(self.knocked) >= MAX_KNOCKED:
            self._drop(next(iter(self.knocked.values())))
        self._forget(peer)
        peer.knocked = True
        self.knocked[peer.sock] = peer

    def _forget(self, peer: _Peer) -> None:
        """It is among those that have not proved anything no more."""
        self.knocked.pop(peer.sock, None)
        of_address = self.strangers.get(peer.address, {})
        of_address.pop(peer.sock, None)
        if not of_address:
            self.strangers.pop(peer.address, None)

    def _say(self, peer: _Peer, line: str) -> None:
        try:
            peer.sock.send(line.encode() + b"\n")
        except OSError:
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        if self.peers.pop(peer.sock, None) is None:
            return
        self._forget(peer)
        self.selector.unregister(peer.sock)
        peer.sock.close()
        if peer.owner and not any(other.owner for other in self.peers.values()):
            self.expiry.closed()

    def _read(self, sock: socket.socket) -> None:
        peer = self.peers[sock]
        try:
            data = sock.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        lines = peer.lines.feed(data)
        for line in lines:
            if sock in self.peers:
                self._line(peer, line)
        if (not data or peer.lines.overflow) and sock in self.peers:
            self._drop(peer)

    def _until(self) -> str:
        until = self.expiry.deadline.until
        return "-" if until is None else f"{until:.0f}"

    def _announce(self, peer: _Peer) -> None:
        """An end before its time, to an owner, as soon as it is known."""
        deadline = self.expiry.deadline
        if deadline.early and deadline.due is not None:
            left_s = max(deadline.due - time.monotonic(), 0)
            self._say(peer, f"ends {left_s:.0f} {deadline.code.value} {WORDS[deadline.code]}")
        elif deadline.idle_due is not None:
            left_s = max(deadline.idle_due - time.monotonic(), 0)
            self._say(peer, f"idle {left_s:.0f} {(deadline.idle_s or 0) / 60:.0f}")
        elif self.told_idle:
            self._say(peer, "idle -")

    def _line(self, peer: _Peer, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "knock" and not peer.owner and not peer.knocked:
            self._knock(peer, rest)
        elif not peer.owner:
            owners = sum(other.owner for other in self.peers.values())
            if word == "owner" and owners < MAX_CONNECTIONS and wire.proves(rest, self.token, "owner", peer.nonce):
                self._forget(peer)
                peer.owner = True
                self.expiry.heard()
                self._say(peer, f"welcome {self._until()} {wire.proof(self.token, 'agent', peer.nonce)}")
                self._announce(peer)
            else:
                self.refused.tell()
                self._drop(peer)
        elif word == "alive":
            self.expiry.heard()
            self._say(peer, f"until {self._until()}")
            self._tell_use(peer)
        else:
            self._drop(peer)

    def _tell_use(self, peer: _Peer) -> None:
        """What its devices did at the last look, as far as that is known."""
        if self.looker is None:
            return
        for place, use in enumerate(self.looker.said):
            if peer.sock in self.peers:
                self._say(peer, f"use {place} {use.words()}")
        self.looker.ask()

    def _read_deadline(self) -> None:
        """The deadline as root last wrote it: an extension, or an early end, reaches the lease this way."""
        try:
            deadline = Deadline.read(self.instance.deadline_file)
        except (OSError, LeaseError):
            return  # what was known stays in force
        before, self.expiry.deadline = self.expiry.deadline, deadline
        if deadline != before:
            self.told_idle = before.idle_due is not None
            for peer in [p for p in self.peers.values() if p.owner]:
                self._announce(peer)

    def serve(self) -> None:
        """Go on until there is a reason to end."""
        if self.looker is not None:
            self.looker.start()
        while self.ending is None:
            for key, _events in self.selector.select(TICK_S):
                if key.fileobj in self.peers or key.data == self._accept:
                    key.data(key.fileobj)
            if self.engine is not None and self.engine.poll() is not None:
                words = f"the engine's server ended with exit code {self.engine.returncode}"
                self.ending = self.ending or Ending(EndCode.ENGINE, words)
            self._read_deadline()
            self.ending = self.ending or self.expiry.over()
            late = time.monotonic() - UNPROVEN_S
            for waiting in (*self.strangers.values(), self.knocked):
                for peer in [one for one in waiting.values() if one.since < late]:
                    self._drop(peer)
            self.refused.look()

    def finish(self) -> None:
        """Tell the owner why, and end the engine's server with all its children."""
        assert self.ending is not None
        self.refused.look(last=True)
        (self.runtime / "reason").write_text(self.ending.words + "\n")
        for peer in [p for p in self.peers.values() if p.owner]:
            self._say(peer, f"end {self.ending.code.value} {self.ending.words}")
        if self.engine is not None and self.engine.poll() is None:
            self.engine.terminate()
            try:
                self.engine.wait(5)
            except subprocess.TimeoutExpired:
                self.engine.kill()
                self.engine.wait()


def notify(message: str) -> None:
    """Tell systemd (sd_notify)."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(message.encode(), "\0" + address[1:] if address.startswith("@") else address)


def main() -> int:
    """Run as systemd starts it. Exit code 0 when the lease ended as leases do, 1 when it failed."""
    credentials, runtime = Path(os.environ["CREDENTIALS_DIRECTORY"]), Path(os.environ["RUNTIME_DIRECTORY"])
    token_file = credentials / "token"
    try:
        instance = Instance.parse((credentials / "instance").read_text(), "the lease's instance")
        agent = Agent(instance, token_file.read_text().strip(), runtime, token_file)
    except (LeaseError, OSError, ValueError) as fault:
        (runtime / "reason").write_text(f"{fault}\n")
        print(fault, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, agent.stop)
    try:
        agent.start_engine()
        agent.listen()
        notify("READY=1")
        agent.serve()
    except (LeaseError, OSError) as fault:
        agent.ending = Ending(EndCode.ENGINE, str(fault))
        agent.finish()
        print(fault, file=sys.stderr)
        return 1
    agent.finish()
    print(f"lease ended: {agent.ending.words if agent.ending else ''}", flush=True)
    return 0
