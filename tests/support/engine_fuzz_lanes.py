"""A client that means harm by its data connections: seeded cases; some keep to the protocol and some do not."""

from __future__ import annotations

import random
import socket
import struct
from contextlib import ExitStack, suppress

from tests.support.engine_fuzz import ALLOC, DTOH, EVIL, HANGS_S, HTOD, RETAIN, gone
from tests.support.engine_run import Server, wait_for
from tests.support.engine_wire import (
    CHUNK,
    FLAG_STRIPED,
    LANE_END,
    OP_LANES,
    admitted,
    asked,
    join_hello,
    read,
    reply,
    request,
    tickets,
    verdict,
)

ROOM = 3 * CHUNK + 12_345  # allocated; the lease has some more
TAKEN_S = 0.5
NUMBER = struct.Struct("<Q")


class Lanes:
    """A session with data connections, and a seed that decides what goes by them."""

    def __init__(self, stack: ExitStack, sock: socket.socket, port: int, chance: random.Random) -> None:
        """Opens some or all."""
        self.sock, self.chance = sock, chance
        self.context = asked(sock, RETAIN, 0, 0)[1]
        self.pointer = asked(sock, ALLOC, ROOM, context=self.context)[1]
        given = tickets(sock)
        chance.shuffle(given)
        self.lanes = []
        for ticket in given[: chance.randrange(1, 5)]:
            lane = stack.enter_context(socket.create_connection(("127.0.0.1", port), HANGS_S))
            lane.sendall(join_hello(ticket))
            assert verdict(lane) == 0
            self.lanes.append(lane)
        assert asked(sock, OP_LANES, len(self.lanes))[0] == 0

    def messages(self, data: bytes) -> list[list[bytes]]:
        """The chunks of a copy in any order, those of each lane with its end."""
        found: list[list[bytes]] = [[] for _ in self.lanes]
        numbers = list(range((len(data) + CHUNK - 1) // CHUNK))
        self.chance.shuffle(numbers)
        for number in numbers:
            message = NUMBER.pack(number) + data[number * CHUNK : (number + 1) * CHUNK]
            self.chance.choice(found).append(message)
        for messages in found:
            messages.append(NUMBER.pack(LANE_END))
        return found

    def ask(self, op: int, size: int, at: int = 0) -> None:
        """A striped copy of so many bytes at that place of the memory, or beside it."""
        self.sock.sendall(request(op, self.pointer + at, size, context=self.context, flags=3 | FLAG_STRIPED))

    def right(self) -> None:
        """A copy that is refused or done, and the same bytes back."""
        size, at = self.chance.randrange(1, ROOM), self.chance.choice((0, 0, 1, 4097))
        data = self.chance.randbytes(size)
        self.ask(HTOD, size, at)
        for lane, messages in zip(self.lanes, self.messages(data), strict=True):
            lane.sendall(b"".join(messages))
        fits = at + size <= ROOM
        assert (reply(self.sock)[0] == 0) == fits
        self.ask(DTOH, size, at)
        assert (reply(self.sock)[0] == 0) == fits
        back = bytearray(size)
        for lane in self.lanes if fits else []:
            while (number := NUMBER.unpack(read(lane, NUMBER.size))[0]) != LANE_END:
                end = min(size, (number + 1) * CHUNK)
                back[number * CHUNK : end] = read(lane, end - number * CHUNK)
        assert not fits or back == data

    def wrong(self) -> None:
        """A copy whose chunks are none of it, missing, twice, cut off, or come by a connection that ends."""
        size = self.chance.choice((*EVIL, ROOM, ROOM, ROOM))
        self.ask(self.chance.choice((HTOD, HTOD, HTOD, DTOH)), size)
        sent = self.messages(self.chance.randbytes(ROOM))
        for _ in range(self.chance.randrange(1, 4)):
            messages = self.chance.choice(sent)
            at = self.chance.randrange(len(messages) + 1)
            made = [NUMBER.pack(self.chance.choice(EVIL)), NUMBER.pack(LANE_END), self.chance.randbytes(999)]
            if self.chance.random() < 0.5 and at < len(messages):
                messages[at] = messages[at][: self.chance.randrange(len(messages[at]))]
            else:
                messages.insert(at, self.chance.choice((*made, *self.chance.choice(sent))))
        for lane, messages in zip(self.lanes, sent, strict=True):
            lane.settimeout(TAKEN_S)
            with suppress(OSError):  # it has closed already, or takes no more, for nobody reads what belongs to no copy
                lane.sendall(b"".join(messages))
                if self.chance.random() < 0.5:
                    lane.shutdown(socket.SHUT_WR)


def attack_lanes(server: Server, seed: int) -> None:
    """One case. AssertionError where a right copy fails, or the session's process does not end."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        sock = stack.enter_context(admitted(server.port))
        pid = server.child()
        lanes = Lanes(stack, sock, server.port, chance)
        for _ in range(chance.randrange(3)):
            lanes.right()
        if chance.random() < 0.8:
            lanes.wrong()
    wait_for(lambda: gone(server, pid), HANGS_S)
