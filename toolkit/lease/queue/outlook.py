"""When a request could start, by the ends of what runs now. Pure.

It is what the running leases and jobs have agreed on: each of them may end earlier, and none is extended here. Requests
that wait already are not counted, because nobody knows how long theirs will run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolkit.lease.lease_request import LeaseRequest
from toolkit.lease.pool import PoolGpu


@dataclass(frozen=True)
class Outlook:
    """at: seconds since the epoch, `now` where it could start at once; None where something that has no end is in the
    way. servers: where it would be then. waits_for: leases and jobs that end until then."""

    at: float | None
    servers: tuple[str, ...] = ()
    waits_for: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Room:
    """Of a GPU at a moment: how many devices of the request fit on it."""

    node: str
    fits: int


def _free_at(gpu: PoolGpu, when: float) -> int:
    """Shards that are free at a time."""
    if gpu.state:
        return 0
    return gpu.of - sum(use.shards for use in gpu.uses if use.until is None or use.until > when)


def _rooms(gpus: Iterable[PoolGpu], request: LeaseRequest, when: float) -> list[_Room]:
    return [
        _Room(gpu.node, _free_at(gpu, when) // (gpu.of if request.part.whole else request.part.shards)) for gpu in gpus
    ]


def _by_server(rooms: Sequence[_Room]) -> dict[str, int]:
    found: dict[str, int] = {}
    for room in rooms:
        found[room.node] = found.get(room.node, 0) + room.fits
    return {name: fits for name, fits in found.items() if fits}


def _place(request: LeaseRequest, rooms: Sequence[_Room]) -> tuple[str, ...]:
    """Servers that would take it, () where they have no room."""
    by_server = _by_server(rooms)
    largest = sorted(by_server, key=lambda name: (-by_server[name], name))
    if request.spread:
        return tuple(largest[: request.count]) if len(largest) >= request.count else ()
    if request.where == "server":
        if request.unequal:
            most = largest[: request.servers_there]
            return tuple(most) if sum(by_server[name] for name in most) >= request.count else ()
        able = [name for name in largest if by_server[name] >= request.on_each]
        return tuple(able[: request.servers_there]) if len(able) >= request.servers_there else ()
    taken: list[str] = []
    left = request.count
    for name in largest:
        if left > 0:
            taken.append(name)
            left -= by_server[name]
    return tuple(taken) if left <= 0 else ()


def outlook(request: LeaseRequest, gpus: Sequence[PoolGpu], now: float) -> Outlook:
    """The first moment at which the request has room on these GPUs, which may take it."""
    ends = sorted({use.until for gpu in gpus for use in gpu.uses if use.until is not None and use.until > now})
    for when in (now, *ends):
        servers = _place(request, _rooms(gpus, request, when))
        if servers:
            over = {
                use.lease
                for gpu in gpus
                if gpu.node in servers
                for use in gpu.uses
                if use.until is not None and now < use.until <= when
            }
            return Outlook(when, servers, tuple(sorted(over)))
    return Outlook(None)


#: A scheduler's estimate that is later by no more than this says the same: it counts its own rounds.
SAME_S = 60.0


def later(one: Outlook, other: float | None) -> Outlook:
    """The outlook, no earlier than the scheduler's own estimate, where it gives one."""
    if other is None or one.at is None or other <= one.at + SAME_S:
        return one
    return Outlook(other, one.servers, one.waits_for)
