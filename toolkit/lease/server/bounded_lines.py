"""Lines that anybody on the network can bring about: some of them, and how many were left out."""

from __future__ import annotations

import sys
import time

#: So many lines in so many seconds.
LINES, WINDOW_S = 10, 60.0


class Bounded:
    """One sentence on stderr, again and again, within bounds."""

    def __init__(self, words: str) -> None:
        """Nothing was said yet."""
        self.words = words
        self._since, self._said, self._left_out = -WINDOW_S, 0, 0

    def tell(self) -> None:
        """Once more."""
        self.look()
        if self._said < LINES:
            self._said += 1
            print(self.words, file=sys.stderr, flush=True)
        else:
            self._left_out += 1

    def look(self, last: bool = False) -> None:
        """Say what was left out, once its time is over; last: now."""
        if not last and time.monotonic() - self._since < WINDOW_S:
            return
        if self._left_out:
            print(f"{self.words}: {self._left_out} times more", file=sys.stderr, flush=True)
        self._since, self._said, self._left_out = time.monotonic(), 0, 0
