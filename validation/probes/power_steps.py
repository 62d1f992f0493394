"""Load that changes by a schedule, `share:seconds` after `share:seconds`, again and again: 1 is full, 0 is idle.

At a share between them what works rests after each piece of work, so long that it works that share of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

NAP_S = 0.1  # between two looks at whether to stop
SLICE_S = 1.0  # of work between two rests, at most


class Step(NamedTuple):
    """A share of the full load for a time."""

    share: float
    seconds: float


def steps_of(words: Iterable[str]) -> tuple[Step, ...]:
    """The schedule; ValueError where it is none, or begins idle."""
    found = tuple(Step(*map(float, word.split(":"))) for word in words)
    if any(not 0 <= one.share <= 1 or not one.seconds > 0 for one in found) or (found and not found[0].share):
        raise ValueError(f"{', '.join(words)}: no schedule of a load that begins with load")
    return found


class Pace:
    """Of one device from now on until `until`, by time.monotonic(). `spent`: of each share its seconds and those of
    work."""

    def __init__(self, words: Iterable[str], until: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Full load throughout where there are no words. `stop`: whether to come back at once."""
        self.steps, self.until, self.stop = steps_of(words), until, stop
        self.begin = self.at = time.monotonic()
        self.spent: dict[str, list[float]] = {}

    def now(self) -> tuple[float, float]:
        """Share of the load, and seconds until the next step."""
        if not self.steps:
            return 1.0, float("inf")
        at = (time.monotonic() - self.begin) % sum(step.seconds for step in self.steps)
        for step in self.steps:
            if at < step.seconds:
                return step.share, step.seconds - at
            at -= step.seconds
        return self.steps[0]

    def slice_s(self) -> float:
        """How long to work before the next rest, at most."""
        return max(0.01, min(SLICE_S, self.now()[1])) if self.steps else float("inf")

    def rest(self, busy_s: float) -> None:
        """After work of so many seconds: nothing at full load, else as long as the step wants."""
        if not self.steps:
            return
        share, left = self.now()
        if 0 < share < 1:
            self._nap(min(busy_s * (1 / share - 1), left))
        self._count(share or self.steps[0].share, busy_s)
        while self.now()[0] == 0 and self._goes_on():
            self._nap(self.now()[1])
            self._count(0.0, 0.0)

    def _goes_on(self) -> bool:
        return time.monotonic() < self.until and not self.stop()

    def _nap(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while (left := min(ends, self.until) - time.monotonic()) > 0 and not self.stop():
            time.sleep(min(NAP_S, left))

    def _count(self, share: float, busy_s: float) -> None:
        now = time.monotonic()
        mine = self.spent.setdefault(f"{share:g}", [0.0, 0.0])
        mine[0], mine[1], self.at = round(mine[0] + now - self.at, 3), round(mine[1] + busy_s, 3), now
