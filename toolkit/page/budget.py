"""How often Slurm is asked."""

from __future__ import annotations

from collections import deque

MOST, SPAN_S = 6, 61.0
"""Questions within so many seconds, however many people watch. A second more than the minute that is promised: a
question gets to Slurm a little after it is counted."""


class Budget:
    """Questions of the last SPAN_S seconds. Times are of a clock that nobody sets."""

    def __init__(self) -> None:
        """None was asked."""
        self._asked: deque[float] = deque()

    def left(self, now: float) -> int:
        """How many can be asked now."""
        while self._asked and self._asked[0] <= now - SPAN_S:
            self._asked.popleft()
        return MOST - len(self._asked)

    def take(self, now: float) -> None:
        """One is asked."""
        self._asked.append(now)

    def when(self, count: int, now: float) -> float:
        """The earliest time at which so many can be asked (1 to MOST)."""
        left = self.left(now)
        return now if left >= count else self._asked[count - left - 1] + SPAN_S
