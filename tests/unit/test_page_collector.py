"""When the page of the pool asks Slurm, by a clock that skips what nothing happens in."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.lease_texts import jobs_of, slurm_job
from toolkit.lease.jobs.slurm_text import PoolNode, SlurmJob
from toolkit.page.budget import MOST, SPAN_S
from toolkit.page.collector import Collector, Reading

Event = tuple[float, str, int]
"""Seconds, start or end, job."""
FREES_S = 0.8
"""From the end of a job to the time when its GPU is free."""


class Skipping(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> asyncio.AbstractEventLoop:
    async def here(function: Callable[[], Any]) -> Any:
        return function()

    monkeypatch.setattr(asyncio, "to_thread", here)
    selector = Skipping()
    made = asyncio.SelectorEventLoop(selector)
    made.time = lambda: selector.now  # type: ignore[method-assign]
    return made


@dataclass
class Day:
    """Slurm while these things happen, and what the page then showed."""

    events: Sequence[Event]
    loop: asyncio.AbstractEventLoop
    asked: list[float] = field(default_factory=list)
    shown: list[tuple[float, dict[int, str]]] = field(default_factory=list)
    late: Callable[[], None] = lambda: None
    slow: Callable[[], None] = lambda: None

    def nodes(self) -> Sequence[PoolNode]:
        self.asked.append(self.loop.time())
        self.slow()
        return ()

    def jobs(self) -> Sequence[SlurmJob]:
        now = self.loop.time()
        self.asked.append(now)
        times: dict[int, dict[str, float]] = {}
        for at, what, number in self.events:
            times.setdefault(number, {})[what] = at
        answer = [
            job
            for number, seen in times.items()
            if now < seen.get("end", 1e9) + FREES_S
            for job in slurm_job(number, state=self._state(now, seen), gres="gpu:v100:1(IDX:0)")
        ]
        self.late()
        return jobs_of(answer)

    @staticmethod
    def _state(now: float, seen: dict[str, float]) -> str:
        if now < seen.get("start", 0.0):
            return "PENDING"
        return "RUNNING" if now < seen.get("end", 1e9) else "COMPLETING"

    def __call__(self, span_s: float) -> None:
        self.loop.run_until_complete(self._run(span_s))
        self.loop.close()

    async def _run(self, span_s: float) -> None:
        collector = Collector(self, self._show, self.loop.time)
        work = asyncio.create_task(collector.run())
        for at, what, number in self.events:
            await asyncio.sleep(at - self.loop.time())
            collector.heard(f"{what} {number}".encode())
        await asyncio.sleep(span_s - self.loop.time())
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    def _show(self, reading: Reading) -> None:
        self.shown.append((self.loop.time(), {job.id: job.state for job in reading.jobs}))

    def most(self) -> int:
        """Questions in the fullest minute."""
        return max(sum(1 for other in self.asked if at <= other < at + SPAN_S) for at in self.asked)

    def seen(self, number: int, states: Sequence[str | None], since: float) -> float:
        """Seconds until a job was shown so."""
        return next(at for at, jobs in self.shown if at >= since and jobs.get(number) in states) - since


def test_an_end_is_shown_at_once_and_the_free_gpu_with_one_question(loop: asyncio.AbstractEventLoop) -> None:
    day = Day([(100, "end", 1)], loop)
    day(200)
    assert day.seen(1, ["COMPLETING"], 100) == 0
    assert day.seen(1, [None], 100) <= FREES_S + 1
    assert len([at for at in day.asked if 100 <= at < 110]) == 1


def test_a_lease_that_follows_others_is_shown_free_as_soon(loop: asyncio.AbstractEventLoop) -> None:
    """They took all questions of the minute before: this one waited for a quarter of one."""
    day = Day([(100, "end", 9), (110, "start", 1), (125, "end", 1)], loop)
    day(200)
    assert day.seen(1, [None], 125) <= FREES_S + 1
    assert day.most() <= MOST


def test_however_much_happens_six_questions_a_minute_are_the_most(loop: asyncio.AbstractEventLoop) -> None:
    day = Day([(100 + 2 * n, ("start", "end")[n % 2], n + 1) for n in range(100)], loop)
    day(300)
    assert day.most() == MOST


def test_a_controller_that_answers_slowly_is_not_asked_more_often(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked after a slow answer counts from then, not from the time when both were due."""
    day, real, late_s = Day([(100 + 2 * n, "start", n + 1) for n in range(100)], loop), loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: real() + late_s[0])
    day.slow = lambda: late_s.append(late_s.pop() + 5)
    day(400)
    assert day.most() == MOST


def test_an_answer_that_is_older_than_an_announcement_does_not_undo_it(loop: asyncio.AbstractEventLoop) -> None:
    day = Day([(100, "end", 1)], loop)
    shown: list[str] = []

    async def run() -> None:
        collector = Collector(day, lambda reading: shown.extend(job.state for job in reading.jobs), loop.time)
        day.late = lambda: collector.heard(b"end 1") if loop.time() < 1 else None
        work = asyncio.create_task(collector.run())
        await asyncio.sleep(0.5)
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    loop.run_until_complete(run())
    loop.close()
    assert shown[-1] == "COMPLETING"
