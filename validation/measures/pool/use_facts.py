"""Who held how much of the pool and for how long (kind pool-use)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, once

GONE = "servers that left"
"""The class of GPUs of a server that Slurm does not know any more."""
NOBODY = "no class of users"
"""Who has no account in Slurm."""


class PoolClass(Model):
    """GPUs of one class as they are now. `busy_s`: GPU-seconds in which a kernel ran, `seen_s`: for which monitoring
    has a reading; both None where there is none.
    """

    name: Name
    gpus: Count
    busy_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seen_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class PoolRequest(Model):
    """What somebody asked for and got: a lease, or a job on the server itself. Times: seconds since 1970.

    `parts`: of a GPU, `parts_per_gpu` make one. `ended_s` None: it still runs. `users`: the class of users.
    """

    gpu_class: Name
    users: Name
    parts: int = Field(ge=1)
    arrived_s: Count
    started_s: Count
    ended_s: Count | None

    @model_validator(mode="after")
    def _in_order(self) -> PoolRequest:
        times = (self.arrived_s, self.started_s, self.started_s if self.ended_s is None else self.ended_s)
        if list(times) != sorted(times):
            raise ValueError("a request arrives, starts and ends, in this order")
        return self


class Utilised(Model):
    """Share of the time in which a kernel ran, of all GPUs that monitoring knew; it has readings of `seconds`."""

    ratio: float = Field(ge=0, le=1, allow_inf_nan=False)
    seconds: float = Field(gt=0, allow_inf_nan=False)


class PoolHistory(Model):
    """Utilisation before and since a GPU of the pool was first leased, by the monitoring's own series. Times: seconds
    since 1970; `first_s`: of the first reading; `pooled_s` None: nothing was leased yet.
    """

    series: Name
    first_s: float = Field(ge=0, allow_inf_nan=False)
    pooled_s: float | None = Field(ge=0, allow_inf_nan=False)
    before: Utilised | None
    since: Utilised | None

    @model_validator(mode="after")
    def _in_order(self) -> PoolHistory:
        if self.pooled_s is None and self.since is not None:
            raise ValueError("nothing was leased yet, and there is a time since")
        return self


class PoolUseFacts(Facts):
    """The record of a time. `waiting`: requests that had nothing by its end, `never`: that ended before they had.
    `history`: of a longer one, None where monitoring has nothing of it, and in runs of earlier releases; `unread`: why
    it could not be read.
    """

    type: Literal["pool-use"] = "pool-use"
    from_s: Count
    until_s: Count
    parts_per_gpu: int = Field(ge=1)
    emulated: bool | None
    unwatched: str
    classes: tuple[PoolClass, ...]
    requests: tuple[PoolRequest, ...]
    waiting: Count
    never: Count
    history: PoolHistory | None = None
    unread: str = ""

    @model_validator(mode="after")
    def _whole(self) -> PoolUseFacts:
        once(self.classes, "name")
        if self.until_s <= self.from_s:
            raise ValueError("a time ends after it began")
        unknown = {r.gpu_class for r in self.requests} - {c.name for c in self.classes}
        if unknown:
            raise ValueError(f"requests of a class that is not there: {min(unknown)}")
        return self

    @property
    def seconds(self) -> int:
        """How long the time is."""
        return self.until_s - self.from_s

    def held_s(self, request: PoolRequest) -> float:
        """GPU-seconds that a request held within the time."""
        end = self.until_s if request.ended_s is None else min(request.ended_s, self.until_s)
        return max(end - max(request.started_s, self.from_s), 0) * request.parts / self.parts_per_gpu
