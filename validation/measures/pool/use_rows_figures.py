"""Use of the pool: held, used and idle GPU-hours by class, and what pooling won, from the record of a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from statistics import fmean
from typing import Literal

from pydantic import Field

from validation.analysis import replay
from validation.measures.pool.use import GONE, PoolClass, PoolRequest, PoolUseFacts
from validation.model import Model
from validation.report.documents import RunDocuments
from validation.report.numbers import duration, number, plural
from validation.report.unplanned import why_unplanned

KIND = "pool-use"
_HOUR_S = 3600
LEAST_S = 86_400
"""Of less utilisation is not said: a morning is no use of a pool. Project default."""
WATCHED = 0.95
"""Of less of a class' time monitoring says nothing of how much was used. Project default."""
MOST_REQUESTS = 20_000
"""So many, the last that came, are replayed: some seconds. Project default."""


class ClassHours(Model):
    """GPU-hours of a class of GPUs. `used_h`: a kernel ran, `idle_h`: held beyond that; None: see `unwatched`."""

    gpu_class: str
    gpus: int
    capacity_h: float
    held_h: float
    free_h: float
    used_h: float | None
    idle_h: float | None
    unwatched: str


class UsersHours(Model):
    """What a class of users held; waiting times as they were."""

    users: str
    requests: int
    held_h: float
    mean_wait_s: float
    longest_wait_s: int


class Arrangement(Model):
    """The requests replayed. `pool`: the GPUs that there are; `divided`: the same, each class of users with its own;
    `silos`: GPUs of their own, so many that no class waits longer than in the pool; `smaller`: a pool in which they
    wait no longer than with `divided`. `refused`: requests that are larger than what there is for them.
    """

    name: Literal["pool", "divided", "silos", "smaller"]
    gpus: int
    mean_wait_s: float
    p95_wait_s: int
    refused: int
    held_ratio: float


class Share(Model):
    """A class of users with GPUs of its own. `divided_wait_s` None: nothing it asked for fits into `divided_gpus`."""

    users: str
    pool_wait_s: float
    divided_gpus: int
    divided_wait_s: float | None
    silo_gpus: int


class Replayed(Model):
    """What pooling won on the GPUs of a class. `left_out`: requests that are older than the last 20 000."""

    gpu_class: str
    requests: int
    left_out: int
    not_measured: str
    arrangements: tuple[Arrangement, ...] = ()
    shares: tuple[Share, ...] = ()


class BeforeAndSince(Model):
    """Utilisation of all GPUs before and since the pool was used, by the monitoring's own series `series`; None where
    it is not measured, and then why (`not_before`, `not_since`). `published`: of GPUs without a pool, by `source`.
    """

    series: str
    before: float | None
    before_seconds: float
    not_before: str
    since: float | None
    since_seconds: float
    not_since: str
    pooled: str
    published: tuple[float, float]
    source: str


class PoolUse(Model):
    """The page *Use of the pool*. `not_measured`: why there is nothing of it, "" where there is."""

    not_measured: str
    emulated: bool | None = None
    begin: str = ""
    end: str = ""
    seconds: int = 0
    running: int = Field(
        default=0, description="requests that still held their GPUs at the end; replayed as ended then"
    )
    waiting: int = Field(default=0, description="requests that still waited at the end; not replayed")
    never: int = Field(default=0, description="requests that ended before they had a GPU; not replayed")
    classes: tuple[ClassHours, ...] = ()
    users: tuple[UsersHours, ...] = ()
    replays: tuple[Replayed, ...] = ()
    utilisation: BeforeAndSince | None = None


def _utilisation(documents: RunDocuments, facts: PoolUseFacts) -> BeforeAndSince:
    claim, found = documents.reference.claim("denneman.utilisation"), facts.history
    low, high = (claim.published.value, claim.published.to) if claim.published else (None, None)
    assert low is not None
    assert high is not None
    known: dict[str, tuple[float | None, float, str]] = {}
    for name in ("before", "since"):
        read = None if found is None else getattr(found, name)
        seconds = 0.0 if read is None else read.seconds
        why = facts.unread or facts.unwatched or "monitoring has no reading of utilisation"
        if found is not None and name == "since" and found.pooled_s is None:
            why = "no GPU of the pool was leased yet"
        elif found is not None:
            had = f"for {duration(seconds)}" if seconds else "nothing"
            when = "before a GPU of the pool was first leased" if name == "before" else "since then"
            why = f"monitoring recorded {had} {when}, and a day is the least"
        fine = read is not None and seconds >= LEAST_S
        known[name] = (read.ratio if read is not None and fine else None, seconds, "" if fine else why)
    return BeforeAndSince(
        series="" if found is None else found.series,
        before=known["before"][0],
        before_seconds=known["before"][1],
        not_before=known["before"][2],
        since=known["since"][0],
        since_seconds=known["since"][1],
        not_since=known["since"][2],
        pooled="" if found is None or found.pooled_s is None else _moment(round(found.pooled_s)),
        published=(low, high),
        source=documents.reference.source(claim),
    )


def _hours(of: PoolClass, facts: PoolUseFacts) -> ClassHours:
    capacity = of.gpus * facts.seconds / _HOUR_S
    held = sum(facts.held_s(r) for r in facts.requests if r.gpu_class == of.name) / _HOUR_S
    seen = (of.seen_s or 0.0) / _HOUR_S
    used: float | None = None
    why = ""
    if facts.unwatched:
        why = facts.unwatched
    elif of.busy_s is None:
        why = "monitoring has no reading of these GPUs"
    elif seen < WATCHED * capacity:
        why = f"monitoring saw {number(seen)} of {number(capacity)} GPU-hours"
    else:
        used = of.busy_s / _HOUR_S
    return ClassHours(
        gpu_class=of.name,
        gpus=of.gpus,
        capacity_h=capacity,
        held_h=held,
        free_h=max(capacity - held, 0.0),
        used_h=used,
        idle_h=None if used is None else max(held - used, 0.0),
        unwatched=why,
    )


def _users(facts: PoolUseFacts) -> tuple[UsersHours, ...]:
    found = []
    for name in sorted({r.users for r in facts.requests}):
        mine = [r for r in facts.requests if r.users == name]
        waits = [r.started_s - r.arrived_s for r in mine]
        held = sum(map(facts.held_s, mine)) / _HOUR_S
        found.append(
            UsersHours(users=name, requests=len(mine), held_h=held, mean_wait_s=fmean(waits), longest_wait_s=max(waits))
        )
    return tuple(found)


def _arrangement(name: Literal["pool", "divided", "silos", "smaller"], outcome: replay.ReplayOutcome) -> Arrangement:
    return Arrangement(
        name=name,
        gpus=outcome.gpus,
        mean_wait_s=outcome.mean_s,
        p95_wait_s=outcome.percentile_s(95),
        refused=outcome.refused,
        held_ratio=outcome.held,
    )


def _replayed(of: PoolClass, facts: PoolUseFacts) -> Replayed:
    mine = sorted((r for r in facts.requests if r.gpu_class == of.name), key=lambda r: r.arrived_s)
    kept: Sequence[PoolRequest] = mine[-MOST_REQUESTS:]
    asked = [
        replay.RecordedRequest(
            r.arrived_s, (facts.until_s if r.ended_s is None else r.ended_s) - r.started_s, r.parts, r.users
        )
        for r in kept
    ]
    found = replay.gain(asked, of.gpus, facts.parts_per_gpu)
    if found is None:
        groups = len({r.group for r in asked})
        why = "nobody held a GPU of this class" if not asked else ""
        if groups == 1:
            why = f"one class of users alone held such GPUs ({asked[0].group}), and there is nobody to divide them with"
        elif asked:
            why = f"{plural(of.gpus, 'GPU')} cannot be divided among {plural(groups, 'class', 'classes')} of users"
        return Replayed(gpu_class=of.name, requests=len(asked), left_out=len(mine) - len(kept), not_measured=why)
    return Replayed(
        gpu_class=of.name,
        requests=len(asked),
        left_out=len(mine) - len(kept),
        not_measured="",
        arrangements=(
            _arrangement("pool", found.pool),
            _arrangement("divided", found.divided),
            _arrangement("silos", found.silos),
            _arrangement("smaller", found.smaller),
        ),
        shares=tuple(
            Share(
                users=name,
                pool_wait_s=found.groups[name][0],
                divided_gpus=gpus,
                divided_wait_s=found.groups[name][1],
                silo_gpus=found.silos_each[name],
            )
            for name, gpus in found.each.items()
        ),
    )


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")


def pool_use(documents: RunDocuments) -> PoolUse:
    """What the run's record of the pool says; why it says nothing, where it does not."""
    planned = next((m for m in documents.plan.measurements if m.kind == KIND), None)
    if planned is None:
        return PoolUse(not_measured=why_unplanned(documents, "operations", ("op.held",)))
    result = documents.latest.get(planned.id)
    facts = result.facts_of(PoolUseFacts) if result is not None and result.status == "ok" else None
    if facts is None:
        return PoolUse(not_measured=documents.lost(planned.id))
    return PoolUse(
        not_measured="",
        emulated=facts.emulated,
        begin=_moment(facts.from_s),
        end=_moment(facts.until_s),
        seconds=facts.seconds,
        running=sum(r.ended_s is None for r in facts.requests),
        waiting=facts.waiting,
        never=facts.never,
        classes=tuple(_hours(of, facts) for of in facts.classes),
        users=_users(facts),
        replays=tuple(_replayed(of, facts) for of in facts.classes if of.name != GONE),
        utilisation=_utilisation(documents, facts),
    )
