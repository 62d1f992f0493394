"""The one that asks Slurm. Prolog and Epilog of the controller announce starts and ends, so that it asks seldom."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from toolkit.lease import LeaseError
from toolkit.lease.jobs import slurm
from toolkit.lease.jobs.slurm_text import PoolNode, SlurmJob
from toolkit.page.budget import Budget

EVERY_S = 30.0
"""Between two questions for jobs where nothing is announced: new requests show within this time."""
NODES_S = 120.0
"""Between two questions for nodes, which change seldom."""
SETTLE_S, ENDS_S = 0.2, 1.0
"""How long announcements of starts are gathered, and of ends: that a job ends is known without a question, which is for
the time when its GPU is free again."""
AGAIN_S = 2.0
"""When it is asked again for a job that is still on its way; twice as long each time that it still is."""

_EVENT = re.compile(rb"(start|end) ([0-9]{1,9})\s*$")


@dataclass(frozen=True)
class Reading:
    """What Slurm said. at: seconds since the epoch. trouble: why it has not answered since, "" where it does."""

    nodes: tuple[PoolNode, ...] = ()
    jobs: tuple[SlurmJob, ...] = ()
    at: float | None = None
    trouble: str = ""


class Source(Protocol):
    """Slurm, asked once for each call. LeaseError without an answer."""

    def nodes(self) -> Sequence[PoolNode]:
        """All servers."""

    def jobs(self) -> Sequence[SlurmJob]:
        """All jobs."""


class RealSlurm:
    """Its commands, never asked again by themselves: the collector has its own time for that."""

    def nodes(self) -> Sequence[PoolNode]:
        """All servers."""
        return slurm.nodes_now()

    def jobs(self) -> Sequence[SlurmJob]:
        """All jobs."""
        return slurm.jobs_now()


def announced(reading: Reading, what: str, number: int) -> Reading:
    """The reading after a start or an end that was announced: what is certain of it, until Slurm is asked."""
    state, before = ("CONFIGURING", ("PENDING",)) if what == "start" else ("COMPLETING", ("RUNNING", "CONFIGURING"))
    jobs = tuple(replace(job, state=state) if job.id == number and job.state in before else job for job in reading.jobs)
    return replace(reading, jobs=jobs)


class Collector:
    """Asks, and passes on each reading that differs."""

    def __init__(
        self, source: Source, changed: Callable[[Reading], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """changed: gets each new reading, in the loop."""
        self._source, self._changed, self._clock = source, changed, clock
        self.reading = Reading()
        self.budget = Budget()
        self.asked = 0
        self._nodes_due = self._jobs_due = clock()
        self._meanwhile: list[tuple[str, int]] = []  # announced since Slurm was asked: its answer can be older
        self._again_s = AGAIN_S
        self._poked = asyncio.Event()

    def heard(self, words: bytes) -> None:
        """An announcement; anything else is passed over."""
        found = _EVENT.search(words)
        if found is None:
            return
        what, number = found[1].decode(), int(found[2])
        self._meanwhile.append((what, number))
        after = announced(self.reading, what, number)
        if after != self.reading:
            self._pass_on(after)
        self._ask_within(SETTLE_S if what == "start" else ENDS_S)

    def poke(self) -> None:
        """Something has changed: ask soon."""
        self._ask_within(ENDS_S if any(job.state == "COMPLETING" for job in self.reading.jobs) else SETTLE_S)

    def _ask_within(self, seconds: float) -> None:
        self._again_s = AGAIN_S
        self._jobs_due = min(self._jobs_due, self._clock() + seconds)
        self._poked.set()

    def _pass_on(self, reading: Reading) -> None:
        self.reading = reading
        self._changed(reading)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            self._poked.clear()
            now = self._clock()
            due = min(self._nodes_due, self._jobs_due)
            if due <= now:
                count = (self._nodes_due <= now) + (self._jobs_due <= now)
                due = self.budget.when(count, now)
            if due <= now:
                await self._ask(now)
                continue
            try:
                await asyncio.wait_for(self._poked.wait(), due - now)
            except (TimeoutError, asyncio.TimeoutError):
                continue

    async def _ask(self, now: float) -> None:
        with_nodes, with_jobs = self._nodes_due <= now, self._jobs_due <= now
        try:
            if with_nodes:
                await self._ask_nodes(now)
            if with_jobs:
                await self._ask_jobs(now)
        except LeaseError as fault:
            self._nodes_due = self._jobs_due = now + EVERY_S
            self._pass_on(replace(self.reading, trouble=str(fault) or "Slurm does not answer"))

    async def _ask_nodes(self, now: float) -> None:
        self._nodes_due = now + NODES_S
        self._count()
        nodes = tuple(await asyncio.to_thread(self._source.nodes))
        self._pass_on(replace(self.reading, nodes=nodes, trouble=""))

    async def _ask_jobs(self, now: float) -> None:
        self._jobs_due = now + EVERY_S
        self._count()
        self._meanwhile.clear()
        jobs = tuple(await asyncio.to_thread(self._source.jobs))
        reading = Reading(self.reading.nodes, jobs, time.time())
        for what, number in self._meanwhile:
            reading = announced(reading, what, number)
        self._pass_on(reading)
        if any(job.state in ("CONFIGURING", "COMPLETING") for job in reading.jobs):
            self._jobs_due = min(self._jobs_due, now + self._again_s)
            self._again_s *= 2

    def _count(self) -> None:
        self.budget.take(self._clock())
        self.asked += 1


def listen(path: str) -> socket.socket:
    """The socket of announcements: systemd's where `path` is "", else one of our own."""
    if not path:
        return socket.socket(fileno=3)
    Path(path).unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(path)
    return made


async def hear(door: socket.socket, heard: Callable[[bytes], None]) -> None:
    """Pass on each announcement, until it is cancelled."""
    door.setblocking(False)
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(door, ready.set)
    try:
        while True:
            await ready.wait()
            ready.clear()
            for _ in range(100):
                try:
                    heard(door.recv(512))
                except BlockingIOError:
                    break
    finally:
        loop.remove_reader(door)
