"""No job starts while the key is exchanged; what runs goes on, and what waits keeps its place."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from toolkit.errors import LeaseError, UsageFault
from toolkit.lease.jobs.slurm_json import parse_jobs
from toolkit.lease.jobs.slurm_text import SlurmJob
from toolkit.node.head import Head, last_words

STARTING = ("CONFIGURING", "COMPLETING")
FRESH_S = 5.0
"""A job that began less than this before may still be at work on its first steps. Project default."""
SETTLED_S = 90.0
"""How long jobs that are starting or ending are waited for. Project default."""
PATIENCE_S = 60.0
"""How long a scheduler that does not answer is asked again while jobs are held. Project default."""
PAUSE_S = 2.0
_PARTITION = re.compile(r"^PartitionName=(\S+) .*?\bState=(\S+)", re.MULTILINE)


T = TypeVar("T")


class SchedulerFault(UsageFault):
    """The controller does not answer, or what it answers cannot be read."""


@dataclass(frozen=True)
class Jobs:
    """What the controller has: `running` goes on, `waiting` starts afterwards."""

    running: tuple[int, ...]
    waiting: tuple[int, ...]
    moving: tuple[int, ...]


class Pool:
    """The controller, as far as its starts are concerned."""

    def __init__(self, head: Head, clock: Callable[[], float] = time.monotonic) -> None:
        """`head`: where it runs. `patience_s`: how long it is asked again where it does not answer."""
        self.head, self.clock, self.patience_s = head, clock, 0.0

    def _patient(self, ask: Callable[[], T]) -> T:
        """SchedulerFault where it does not answer for `patience_s`."""
        until = self.clock() + self.patience_s
        while True:
            try:
                return ask()
            except (UsageFault, LeaseError) as fault:
                if self.clock() >= until:
                    raise SchedulerFault(str(fault)) from None
            time.sleep(PAUSE_S)

    def _asked(self, words: Sequence[str]) -> bytes:
        return self._patient(lambda: self._once(words))

    def _once(self, words: Sequence[str]) -> bytes:
        done = self.head.run(words)
        if done.returncode != 0:
            raise UsageFault(
                f"the pool's scheduler does not answer on {self.head.node.name}: {last_words(done.stderr)}"
            )
        return done.stdout

    def _jobs(self) -> list[SlurmJob]:
        return self._patient(lambda: parse_jobs(self._once(["squeue", "--json", "--all", "--states=all"])))

    def jobs(self) -> Jobs:
        """All of now."""
        found, now = [job for job in self._jobs() if not job.ended], time.time()
        waiting = tuple(job.id for job in found if job.state == "PENDING")
        running = tuple(job.id for job in found if job.state != "PENDING")
        moving = tuple(
            job.id
            for job in found
            if job.state in STARTING or (job.state == "RUNNING" and 0 <= now - (job.start or 0.0) < FRESH_S)
        )
        return Jobs(running, waiting, moving)

    def lost(self, running: Sequence[int]) -> dict[int, str]:
        """Of jobs that ran, those that Slurm ended since in another way than by their own end."""
        bad = ("NODE_FAIL", "BOOT_FAIL", "FAILED", "PREEMPTED", "REVOKED", "REQUEUED")
        return {job.id: job.state for job in self._jobs() if job.id in running and job.state in bad}

    def open_partitions(self) -> tuple[str, ...]:
        """Those in which jobs start."""
        text = self._asked(["scontrol", "show", "partition", "--oneliner"]).decode("utf-8", "replace")
        return tuple(name for name, state in _PARTITION.findall(text) if state == "UP")

    def set_all(self, names: Sequence[str], state: str) -> None:
        """DOWN: jobs are taken and wait; UP: they start."""
        for name in names:
            self._asked(["scontrol", "update", f"partitionname={name}", f"state={state}"])

    def settle(self, sleep: Callable[[float], None] = time.sleep) -> tuple[int, ...]:
        """Wait for jobs that are starting or ending; those that still are after SETTLED_S."""
        until = self.clock() + SETTLED_S
        while moving := self.jobs().moving:
            if self.clock() > until:
                return moving
            sleep(1)
        return ()
