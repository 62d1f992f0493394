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


class Waiting(Form):
    """A request in the pool's queue."""

    place: int = Field(description="1 for the next")
    lease: int
    user: str
    what: str | None = Field(description="of a lease what was asked for")
    gpu_class: str
    since: Time | None
    expected: Time | None
    why: str = Field(description="why it waits, in Slurm's word")


class Gpus(Form):
    """`toolkit gpus`: the pool."""

    gpus: list[Gpu]
    waiting: list[Waiting]


class GpusWhen(Form):
    """`toolkit gpus --when`: when a request could start, by the ends of what runs."""

    what: str
    start: Time | None = Field(description="null: something without an end is in the way")
    now: bool
    servers: list[str]
    after: list[int] = Field(description="leases and jobs that end until then")
    waiting: int = Field(description="requests that wait already")


class GpuClassLimit(Form):
    """A class of GPU that may be used."""

    name: str
    longest_s: int | None


class ClassLimits(Form):
    """What a class of users may have; null: no limit. Wholes and parts add up to GPUs."""

    name: str
    default: bool
    gpus: float | None
    used: float
    together: float | None
    used_together: float
    longest_s: int | None
    jobs: int | None
    jobs_now: int
    priority: int
    preempts: list[str]
    classes: list[GpuClassLimit]


class GpusLimits(Form):
    """`toolkit gpus --limits`: what the caller may have."""

    user: str
    limited: bool = Field(description="whether the pool has classes of users")
    classes: list[ClassLimits]


class Framework(Form):
    """A framework in an image."""

    version: str
    cuda: str | None = Field(description="CUDA that it was built for, null where it uses no GPU")


class Image(Form):
    """An image of containers on the pool's servers."""

    names: list[str]
    identity: str
    default: bool
    servers: list[str]
    size_bytes: int
    cuda: str | None
    python: str | None = Field(description="version of its python3")
    frameworks: dict[str, Framework]


class Images(Form):
    """`toolkit images`: what programs can run in."""

    images: list[Image]


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
    runs: str | None = Field(
        description="your program that goes on alone on it (toolkit run --detach), on this machine"
    )
    parts: list[LeasePart]


class Leases(Form):
    """`toolkit lease list`."""

    leases: list[Lease]


class PoolPage(Form):
    """The pool's page, `/pool/pool.json`: what `toolkit gpus` and `toolkit lease list --all` answer, in one object."""

    gpus: list[Gpu]
    waiting: list[Waiting]
    leases: list[Lease]
    at: Time | None = Field(description="when Slurm gave these numbers; null: it has not yet")
    trouble: str | None = Field(description="why it has not answered since; null: it has")


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


class PolicyDifference(Form):
    """A right or rule, before and after, in words."""

    what: str = Field(description="its key in the policy")
    before: str
    after: str


class PolicyChange(Form):
    """The same differences for some users, or for all."""

    users: list[str] = Field(description="none: for all users")
    before: list[str] = Field(description="their classes of users, the default one first")
    after: list[str]
    differences: list[PolicyDifference]


class PolicyLease(Form):
    """A lease of now."""

    lease: int
    user: str
    gpus: float
    gpu_class: str
    waits: bool


class OutsideLease(Form):
    """A lease that its user could not request again."""

    held: PolicyLease
    why: str


class JoinMissing(Form):
    """What a cluster lacks that the pool joins."""

    needed: bool = Field(description="whether leases cannot do without")
    what: str
    todo: str = Field(description="what the cluster's administrator does")


class PoolJoined(Form):
    """`toolkit pool check` without a file: what the cluster lacks that the pool joins."""

    inventory: str
    head: str
    cluster: str
    release: str
    missing: list[JoinMissing]


class PoolCheck(Form):
    """`toolkit pool check`: what a policy file would change."""

    file: str
    inventory: str
    head: str
    changes: list[PolicyChange]
    outside: list[OutsideLease]
    unknown_groups: list[str]
