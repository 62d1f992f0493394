"""Reservations as a calendar: when which servers are kept for whom. Only administrators make reservations, so that no
word of a user's stands in what is read here."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from toolkit.lease import LeaseError
from toolkit.lease.jobs.slurm_text import epoch, expand_hosts

PREFIX = "pool_"
"""How the names of those begin that the pool's policy has."""
_REPEATS = ("HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY")
_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z]*)=(\S*)")


@dataclass(frozen=True)
class Reservation:
    """One entry of the calendar. Times in seconds since the epoch; `repeats` is Slurm's word, "" for one that does not.

    `accounts` are classes of users, `users` users beside them; MAINT and the like stand in `flags`.
    """

    name: str
    start: float
    end: float
    nodes: tuple[str, ...]
    accounts: tuple[str, ...]
    users: tuple[str, ...]
    flags: tuple[str, ...]

    @property
    def repeats(self) -> str:
        """How it repeats."""
        return next((flag for flag in _REPEATS if flag in self.flags), "")

    @property
    def title(self) -> str:
        """As the policy calls it."""
        return self.name.removeprefix(PREFIX)

    @property
    def whom(self) -> str:
        """For whom; a maintenance is for nobody."""
        if "MAINT" in self.flags:
            return "maintenance"
        return ", ".join([*self.accounts, *self.users]) or "nobody"


def parse_reservations(text: str) -> list[Reservation]:
    """`scontrol -o show reservation` with SLURM_TIME_FORMAT=%s. LeaseError where an entry has no times."""
    found = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        name = fields.get("ReservationName")
        if not name:
            continue  # "No reservations in the system"
        start, end = epoch(fields.get("StartTime", "")), epoch(fields.get("EndTime", ""))
        if start is None or end is None or end < start:
            raise LeaseError(f"Slurm says of reservation {name[:40]} what cannot be read: {line[:120]!r}")
        found.append(
            Reservation(
                name,
                start,
                end,
                expand_hosts(fields.get("Nodes", "")),
                _names(fields.get("Accounts", "")),
                _names(fields.get("Users", "")),
                tuple(flag for flag in fields.get("Flags", "").split(",") if flag),
            )
        )
    return found


def _names(text: str) -> tuple[str, ...]:
    return () if text in ("", "(null)") else tuple(text.split(","))


def calendar(reservations: Iterable[Reservation], now: float, days: int) -> list[tuple[float, float, Reservation]]:
    """Start and end of every occurrence that is not over and begins within so many days, in order.

    What repeats does so by the clock on the wall here: from eight o'clock it is eight o'clock after a change to summer
    time too.
    """
    until = now + days * 86400
    found = []
    for one in reservations:
        for start, end in _occurrences(one, until):
            if end > now and start < until:
                found.append((start, end, one))
    return sorted(found, key=lambda entry: (entry[0], entry[2].name))


def _occurrences(one: Reservation, until: float) -> Iterable[tuple[float, float]]:
    yield one.start, one.end
    step = {"HOURLY": timedelta(hours=1), "WEEKLY": timedelta(days=7)}.get(one.repeats, timedelta(days=1))
    first = datetime.fromtimestamp(one.start)
    number = 1
    while one.repeats:
        moment = first + number * step
        start = time.mktime(moment.timetuple())
        if start >= until:
            return
        weekend = moment.weekday() >= 5
        if not (one.repeats == "WEEKDAY" and weekend) and not (one.repeats == "WEEKEND" and not weekend):
            yield start, start + (one.end - one.start)
        number += 1
