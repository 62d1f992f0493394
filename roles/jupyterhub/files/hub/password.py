"""Passwords, by the helper of role pool_login: its client, where that role put it. It needs nothing of JupyterHub's."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

sys.path.append("/usr/lib/elastic-ai/lease")
from toolkit.login.client import Checked, LoginError, check_password
from toolkit.login.tries import CHECKS, Tries


class TooMany(Exception):
    """Too many logins of that address, or of all."""


class Passwords:
    """Checks passwords: few at the same time and few of one address, so that one client does not use up what the helper
    lets be tried for all users."""

    def __init__(self, check: Callable[[str, str], Checked] = check_password) -> None:
        """check: blocks for seconds."""
        self._check, self._tries, self._turns = check, Tries(), asyncio.Semaphore(CHECKS)

    async def check(self, user: str, password: str, address: str) -> Checked:
        """What the helper answers. TooMany where it was not asked; LoginError without an answer."""
        async with self._turns:
            if not self._tries.let(address, time.monotonic()):
                raise TooMany
            answer = await asyncio.to_thread(self._check, user, password)
            if answer.ticket:
                self._tries.right(address)
            return answer


def address_of(forwarded: str, peer: str) -> str:
    """Whose login it is: the last address of X-Forwarded-For, which the hub's own proxy wrote. Those before it, and
    X-Real-Ip, are the client's words. peer: where there is none."""
    return forwarded.rpartition(",")[2].strip() or peer


__all__ = ["LoginError", "Passwords", "TooMany", "address_of"]
