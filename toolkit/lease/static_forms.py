"""What an administrator's machine and a GPU server say to each other of leases without Slurm: JSON, by ssh.

One form for each: what is wished, what is granted, what is there, and why not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from toolkit.lease import LeaseError
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.fields import Fields
from toolkit.lease.jobs.job_comment import ENGINE_NAME, MAX_CLIENTS

#: What its user ought to know.
MISSING = "without Slurm: no queue, no policies, no accounting, no preemption"


@dataclass(frozen=True)
class StaticWish:
    """count: GPUs, each another one; part: of each, as a user writes it. clients, host: the machine that may use it.
    engine: "" for the server's first."""

    count: int
    part: str
    clients: tuple[str, ...]
    host: str
    seconds: int
    engine: str = ""

    def text(self) -> str:
        """For the server. Without an engine's name it is as every release reads it."""
        told = asdict(self)
        if not self.engine:
            del told["engine"]
        return json.dumps(told)


def parse_wish(text: str) -> StaticWish:
    """DamagedDocument where it is none."""
    fields = Fields.of(text, "the request for a static lease")
    wish = StaticWish(
        count=fields.number("count", least=1),
        part=fields.text("part"),
        clients=fields.addresses("clients"),
        host=fields.text("host", r"[A-Za-z0-9._-]{1,64}"),
        seconds=fields.number("seconds", least=1),
        engine=fields.text("engine", ENGINE_NAME) if fields.has("engine") else "",
    )
    fields.end()
    if not 1 <= len(wish.clients) <= MAX_CLIENTS:
        fields.refuse("clients", f"are {len(wish.clients)}")
    return wish


@dataclass(frozen=True)
class StaticGrant:
    """what: 2 x 1/2 GPU. rounding: what of a part is no whole number of the server's shards, "" where nothing is."""

    endpoint: LeaseEndpoint
    what: str
    rounding: str

    def text(self) -> str:
        """For the administrator's machine."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class StaticLease:
    """One that is there. until: seconds since the epoch."""

    lease: str
    what: str
    where: str
    host: str
    until: float | None


def leases_text(leases: Sequence[StaticLease]) -> str:
    """For the administrator's machine."""
    return json.dumps({"leases": [asdict(one) for one in leases]})


def refusal_text(why: str) -> str:
    """Why the server does not do it."""
    return json.dumps({"error": why})


def answer_of(text: str, node: str) -> Fields:
    """A server's answer; LeaseError where it refuses, or says what is none."""
    fields = Fields.of(text, f"the answer of {node}")
    if fields.has("error"):
        raise LeaseError(fields.text("error", r"(?s:.*)"))
    return fields


def read_grant(fields: Fields) -> StaticGrant:
    """DamagedDocument where the answer is none."""
    endpoint = LeaseEndpoint.read(fields.inner("endpoint"))
    grant = StaticGrant(endpoint, fields.text("what"), fields.text("rounding"))
    fields.end()
    return grant


def read_leases(fields: Fields) -> list[StaticLease]:
    """DamagedDocument where the answer is no list of them."""
    found = []
    for one in fields.each("leases"):
        seconds = one.seconds_or_none("until")
        found.append(
            StaticLease(
                lease=one.text("lease", r"s[0-9]{1,6}"),
                what=one.text("what"),
                where=one.text("where"),
                host=one.text("host", r"[A-Za-z0-9._-]{1,64}"),
                until=seconds,
            )
        )
        one.end()
    fields.end()
    return found
