"""How often a login can be tried at a service, by address. The helper counts by user (module attempts)."""

from __future__ import annotations

from collections import deque

TRIES_S, TRIES_EACH, TRIES_ALL = 60.0, 10, 60
"""Of logins: within so many seconds, from one address and from all."""

CHECKS = 4
"""Passwords that a service has checked at the same time."""


class Tries:
    """Logins of the last TRIES_S seconds."""

    def __init__(self) -> None:
        """None was tried."""
        self._tried: deque[tuple[float, str]] = deque()

    def let(self, address: str, now: float) -> bool:
        """Whether one more can be tried, which counts it."""
        while self._tried and self._tried[0][0] <= now - TRIES_S:
            self._tried.popleft()
        if len(self._tried) >= TRIES_ALL or sum(who == address for _, who in self._tried) >= TRIES_EACH:
            return False
        self._tried.append((now, address))
        return True

    def right(self, address: str) -> None:
        """The password was right: this try is not counted, so that a class of users behind one address can log in."""
        for index, (_, who) in reversed(list(enumerate(self._tried))):
            if who == address:
                del self._tried[index]
                return
