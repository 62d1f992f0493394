"""Connections that have not shown the token yet."""

from __future__ import annotations

import hmac
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from elastic_ai_torchserver import fail

MAGIC, VERSION, TOKEN_BYTES = b"EAITRCH\n", 5, 256
PEER_MAGIC = b"EAIPEER\n"  # of another server of the lease, with the lease's secret and the session that it wants
HELLO = struct.Struct(f"<8sII64s60sI{TOKEN_BYTES}s")
#: By their numbers in a hello.
TRANSPORTS = ("tcp", "verbs")
TRANSPORT_AT = HELLO.size - TOKEN_BYTES - 4
TOKEN_S = 5.0  # in which a connection shows the token
MOST_WAITING = 16
STARTING, REFUSED = 5, 4
WRONG_TOKEN, WRONG_VERSION, NO_DEVICE, TOO_MANY, NO_TRANSPORT = 1, 2, 3, 4, 5


def read_token(file: str) -> bytearray:
    """The token, padded as a hello has it. In a bytearray, so that a child can wipe it."""
    room = bytearray(TOKEN_BYTES + 2)
    try:
        with open(file, "rb", buffering=0) as opened:  # noqa: PTH123
            length = opened.readinto(room) or 0
    except OSError as fault:
        fail(f"--token-file {file}: {fault.strerror}")
    ends = [at for at in (room.find(b"\n", 0, length), room.find(b"\r", 0, length)) if at >= 0]
    length = min([length, *ends])
    if not 16 <= length < TOKEN_BYTES:
        fail(f"--token-file {file}: its first line must have 16 to {TOKEN_BYTES - 1} characters")
    for at in range(length, len(room)):
        room[at] = 0
    del room[TOKEN_BYTES:]
    return room


def wipe(secret: bytearray) -> None:
    """Zeros in its place."""
    for at in range(len(secret)):
        secret[at] = 0


def message(kind: int, body: bytes) -> bytes:
    """A message of the wire."""
    return struct.pack("<BI", kind, len(body)) + body


def refusal(why: int, words: str) -> bytes:
    """REFUSED."""
    text = words.encode()
    return message(REFUSED, struct.pack("<BI", why, len(text)) + text)


@dataclass
class Waiting:
    """A connection whose client has not shown the token yet. The hello is received where it is wiped."""

    connection: socket.socket
    peer: str
    until: float
    hello: bytearray = field(default_factory=lambda: bytearray(HELLO.size))
    came: int = 0
    member: str = ""  # the session that another server wants
    transport: str = ""  # that it asks for; known when it is let in

    def receive(self) -> int:
        """How much of the hello came now; 0: nothing will come any more."""
        try:
            with memoryview(self.hello) as whole:
                count = self.connection.recv_into(whole[self.came :])
        except (BlockingIOError, InterruptedError):
            raise
        except OSError:
            count = 0
        self.came += count
        return count

    def begins_right(self) -> bool:
        """What is no client is seen at its first bytes."""
        length = min(self.came, len(MAGIC))
        return self.hello[:length] in (MAGIC[:length], PEER_MAGIC[:length])

    def is_peer(self) -> bool:
        """Whether another server of the lease has come, as it says."""
        return self.hello[: len(PEER_MAGIC)] == PEER_MAGIC

    def close(self) -> None:
        """Ends the connection, and what came by it."""
        self.connection.close()
        wipe(self.hello)


class Door:
    """Asks for the token. `refused` is told of each connection that is turned away, and why."""

    def __init__(
        self, token: bytearray, offered: tuple[str, ...], refused: Callable[[str, str], None], peer_token: bytearray,
        may_come: Callable[[str, bool], bool],
    ) -> None:  # fmt: skip
        """Nobody waits yet. offered: of TRANSPORTS. may_come: whether an address is a client's, or (True) another
        server's. peer_token: empty where no server may come."""
        self.token, self.offered, self.refused = token, offered, refused
        self.peer_token, self.may_come = peer_token, may_come
        self.waiting: list[Waiting] = []

    def let_wait(self, connection: socket.socket, peer: str) -> None:
        """A new connection; where too many wait, the oldest of the address that has most goes."""
        if len(self.waiting) == MOST_WAITING:
            peers = [one.peer for one in self.waiting]
            most = max(peers, key=peers.count)
            oldest = next(one for one in self.waiting if one.peer == most)
            self.turn_away(oldest, "too many connections wait without a token")
        connection.setblocking(False)
        self.waiting.append(Waiting(connection, peer, time.monotonic() + TOKEN_S))

    def turn_away(self, one: Waiting, why: str, words: bytes = b"") -> None:
        """Closes; what is told finds room at a connection's beginning."""
        self.refused(one.peer, why)
        try:
            if words:
                one.connection.send(words)
        except OSError:
            pass
        self.forget(one)

    def forget(self, one: Waiting) -> None:
        """Without a word."""
        one.close()
        self.waiting.remove(one)

    def look(self) -> Iterator[Waiting]:
        """Takes what has come, one after the other; who has shown the token is given, and waits no longer."""
        for one in list(self.waiting):
            if self._has_shown(one):
                yield one

    def _has_shown(self, one: Waiting) -> bool:
        try:
            got = one.receive()
        except (BlockingIOError, InterruptedError):
            if time.monotonic() >= one.until:
                self.turn_away(one, "no token in time")
            return False
        if not got or not one.begins_right():
            self.forget(one)
            return False
        if one.came < HELLO.size:
            return False
        version = struct.unpack_from("<I", one.hello, len(MAGIC))[0]
        is_peer = one.is_peer()
        wanted = self.peer_token if is_peer else self.token
        with memoryview(one.hello) as whole:
            proven = hmac.compare_digest(whole[-TOKEN_BYTES:], wanted) if wanted else False
        proven = proven and self.may_come(one.peer, is_peer)
        if not proven:
            self.turn_away(one, "token refused", refusal(WRONG_TOKEN, "the server does not know this token"))
        elif version != VERSION:
            words = f"the client speaks wire version {version}, the server {VERSION}: install one release on both"
            self.turn_away(one, "release differs", refusal(WRONG_VERSION, words))
        elif not is_peer and (transport := self._transport(one)) not in self.offered:
            words = f"it offers {' and '.join(self.offered)} alone, and this program's ELASTIC_AI_TRANSPORT asks for "
            words += transport
            self.turn_away(one, "transport not offered", refusal(NO_TRANSPORT, words))
        else:
            if is_peer:
                one.member = HELLO.unpack(one.hello)[4].rstrip(b"\0").decode("ascii", "replace") or "?"
            one.transport = self._transport(one)
            wipe(one.hello)
            self.waiting.remove(one)
            return True
        return False

    def _transport(self, one: Waiting) -> str:
        number = struct.unpack_from("<I", one.hello, TRANSPORT_AT)[0]
        return TRANSPORTS[number] if number < len(TRANSPORTS) else f"number {number}"

    def forget_all(self) -> None:
        """In a child: nothing of the others, and no token."""
        for one in self.waiting:
            one.close()
        wipe(self.token)
        wipe(self.peer_token)
