"""Answers of the commands around leased GPUs."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from toolkit.answer_forms.base import FORMAT, Form, Time


class GpuUse(Form):
    """A share of a GPU that somebody has."""

    user: str
    shards: int
    until: Time | None
    lease: int
    is_lease: bool


class Gpu(Form):
    """A GPU of the pool."""

    node: str
    index: int
    gpu_class: str
    model: str
    memory_mib: int | None
    emulated: bool
    of: int = Field(description="parts that the GPU is counted in")
    uses: list[GpuUse]
    reserved_mib: int
    context_bytes: int | None
    state: str | None = Field(description="why its server takes no work")
    free_shards: int
    free: float = Field(description="share of the GPU that is free")


class Gpus(Form):
    """`toolkit gpus`: the pool."""

    gpus: list[Gpu]


class Reservation(Form):
    """Servers that are kept for somebody."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    start: Time = FORMAT
    end: Time = FORMAT
    now: bool
    for_: str = Field(alias="for")
    name: str
    servers: list[str]
    repeats: str | None


class Calendar(Form):
    """`toolkit gpus --calendar`."""

    days: int
    reservations: list[Reservation]


class LeasedGpu(Form):
    """A GPU, or a part of it, of a lease."""

    server: str
    index: int
    shards: int | None


class LeasePart(Form):
    """A job of the lease."""

    job: int
    state: str
    gpus: list[LeasedGpu]


class Lease(Form):
    """`toolkit lease request`, `show` and `extend`."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    lease: int
    user: str
    what: str
    state: str
    where: str | None
    until: Time | None
    class_: str = Field(alias="class")
    reason: str | None = Field(description="why it waits, in Slurm's word")
    ended: str | None
    parts: list[LeasePart]


class Leases(Form):
    """`toolkit lease list`."""

    leases: list[Lease]


class StaticLease(Form):
    """`toolkit lease request --static`."""

    lease: str
    server: str
    what: str
    client: str
    user: str
    note: str | None
    until: Time | None


class ListedStaticLease(Form):
    """A lease without Slurm."""

    lease: str
    what: str
    where: str
    host: str
    until: Time | None


class StaticLeases(Form):
    """`toolkit lease list --static SERVER`."""

    server: str
    leases: list[ListedStaticLease]


class Released(Form):
    """A lease that was to be released."""

    lease: str
    state: Literal["released", "ends", "had-ended", "refused"]
    words: str


class ReleasedLeases(Form):
    """`toolkit lease release`."""

    leases: list[Released]


class LeaseEnv(Form):
    """`toolkit lease env`: what a program needs to use a lease."""

    lease: int
    engine: str
    environment: dict[str, str]
    servers: list[str]
    secret: str | None
    secret_variable: str
    holds_memory_of: str
