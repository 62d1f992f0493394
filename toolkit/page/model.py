"""What the page shows, from what Slurm and Prometheus said. Pure."""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolkit import answers
from toolkit.lease import pool
from toolkit.lease.client import manage
from toolkit.lease.display import clock
from toolkit.lease.fraction import share_text
from toolkit.lease.pool_file import PoolDescription
from toolkit.lease.queue.waiting_list import Waiting, in_order, order_of
from toolkit.page.collector import Reading
from toolkit.page.figures import NONE, Figures
from toolkit.page.validations import Validated
from toolkit.pool_answers import gpus_data, lease_data

OLD_S = 90.0
"""A reading older than this is shown as old even where no error came: three questions were missed."""


@dataclass(frozen=True)
class Tile:
    """A GPU of the map. uses: who has which part until when, or that it ends; state: free, part, taken or off."""

    index: int
    state: str
    words: str
    uses: tuple[str, ...]
    model: str
    celsius: float | None


@dataclass(frozen=True)
class Server:
    """A server of the map. trouble: why it takes no work, "" where it does."""

    name: str
    tiles: tuple[Tile, ...]
    trouble: str


@dataclass(frozen=True)
class Picture:
    """One state of the page. since: when the numbers are of, where they are old, "" where they are not. document: what
    programs read (`/pool/pool.json`)."""

    servers: tuple[Server, ...]
    queue: tuple[Waiting, ...]
    leases: tuple[manage.Lease, ...]
    free: str
    emulated: bool
    since: str
    trouble: str
    figures: Figures
    validations: tuple[Validated, ...]
    document: dict[str, Any]

    @property
    def gpus(self) -> int:
        """How many GPUs the pool has."""
        return sum(len(server.tiles) for server in self.servers)


def picture(
    reading: Reading,
    described: PoolDescription,
    figures: Figures = NONE,
    validations: Sequence[Validated] = (),
    now: float | None = None,
) -> Picture:
    """The page's state at a time (seconds since the epoch)."""
    now = time.time() if now is None else now
    found = pool.gpus_of(reading.nodes, reading.jobs, described)
    queue = in_order(reading.jobs, order_of(reading.jobs))
    leases = [lease for lease in manage.leases(reading.jobs) if lease.state != "ended"]
    ending = {(job.lease, held.node) for job in reading.jobs if job.state == "COMPLETING" for held in job.held}
    old = reading.at is not None and (bool(reading.trouble) or now - reading.at > OLD_S)
    document = {
        **gpus_data(found, queue),
        "leases": [lease_data(lease, None) for lease in leases],
        "at": answers.when(reading.at),
        "trouble": reading.trouble or None,
    }
    return Picture(
        servers=_servers(found, figures, ending),
        queue=tuple(queue),
        leases=tuple(leases),
        free=pool.free_text(found),
        emulated=any(gpu.emulated for gpu in found),
        since=clock(reading.at, now) if old else "",
        trouble=reading.trouble,
        figures=figures,
        validations=tuple(validations),
        document=document,
    )


def _servers(gpus: Sequence[pool.PoolGpu], figures: Figures, ending: Container[tuple[int, str]]) -> tuple[Server, ...]:
    by_name: dict[str, list[pool.PoolGpu]] = {}
    for gpu in gpus:
        by_name.setdefault(gpu.node, []).append(gpu)
    return tuple(
        Server(name, tuple(_tile(gpu, figures, ending) for gpu in there), there[0].state)
        for name, there in by_name.items()
    )


def _use_text(use: pool.Use, gpu: pool.PoolGpu, ending: Container[tuple[int, str]]) -> str:
    if (use.lease, gpu.node) not in ending:
        return pool.used_text(use, gpu.of, clock(use.until))
    return f"ending: {pool.used_text(replace(use, until=None), gpu.of, '')}"


def _tile(gpu: pool.PoolGpu, figures: Figures, ending: Container[tuple[int, str]]) -> Tile:
    if gpu.state:
        state, words = "off", "no work"
    elif gpu.free == gpu.of:
        state, words = "free", "free"
    elif gpu.free:
        state, words = "part", f"{share_text(gpu.free, gpu.of)} free"
    else:
        state, words = "taken", "taken"
    uses = tuple(_use_text(use, gpu, ending) for use in gpu.uses)
    known = figures.temperatures.get((gpu.node, gpu.index))
    return Tile(gpu.index, state, words, uses, gpu.model, known)
