"""The pool's policies: variable `slurm_pool`, in an inventory's `group_vars/all/pool.yml`.

Who may use which class of GPU, how much of it and how long, who goes first, and what is kept for whom at which time of
day. docs/how-to/pool.md explains each key to administrators; here they are checked, and a fault is one sentence with
file and line. Role slurm turns the result into Slurm's own partitions, QOS, accounts and reservations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from toolkit.errors import or_nearest
from toolkit.inventory_lines import locate
from toolkit.lease import SHARDS_PER_GPU
from validation.base.counting import number_of
from validation.model.base import explain
from validation.model.load import ConfigError, line_of, load_yaml, read_source

#: Where an inventory keeps its policies, below the inventory's folder.
POOL_FILE = Path("group_vars/all/pool.yml")
#: Names that Slurm reserves: its own account, and the QOS of users in no class.
RESERVED = ("root", "normal")
#: Servers look at their leases every half minute; fewer looks than ten would take what is used now and then.
LEAST_IDLE_MINUTES = 5
_NAME = r"^[a-z][a-z0-9_-]{0,29}$"
_ACCOUNT_NAME = r"^[a-zA-Z_][a-zA-Z0-9_.@-]{0,63}$"
_FRACTION = re.compile(r"(\d+)/(\d+)|\d+(\.\d+)?")
#: A host by name or address, IPv6 too, without a port; and a name as slurm.conf takes it for clusters and partitions.
_HOST, _IN_SLURM = r"^[A-Za-z0-9][A-Za-z0-9.:-]{0,252}$", r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


def gpus(value: object) -> Fraction:
    """A number of GPUs above 0: 2, 2.5, "1/7" or "5/20". ValueError with one sentence for anything else."""
    if isinstance(value, Fraction):
        return value
    text = str(value).strip()
    if isinstance(value, bool) or _FRACTION.fullmatch(text) is None or re.search(r"/0+$", text):
        raise ValueError(f"invalid GPU count {value!r}; use 2, 0.5 or 1/7")
    number = Fraction(text)
    if number <= 0:
        raise ValueError(f"invalid GPU count {value!r}; it must be above 0")
    return number


def shards(number: Fraction, per_gpu: int = SHARDS_PER_GPU) -> int:
    """A number of GPUs in shards. ValueError where it is no whole number of them: nothing is rounded silently."""
    whole = number * per_gpu
    if whole.denominator != 1:
        raise ValueError(
            f"{number} GPU is {float(whole):g} of the {number_of(per_gpu, 'part')} that a GPU is counted in; "
            f"the nearest that can be kept are {Fraction(int(whole), per_gpu)} and {Fraction(int(whole) + 1, per_gpu)}"
        )
    return int(whole)


Gpus = Annotated[Fraction, BeforeValidator(gpus)]
Name = Annotated[str, Field(pattern=_NAME)]
Login = Annotated[str, Field(pattern=_ACCOUNT_NAME)]


#: Jobs of one user that Slurm's controller keeps, where the policy says nothing else.
MAX_SUBMITTED = 1000


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


class GpuClass(_Model):
    """A class of GPU, which is a partition of Slurm. `max_hours` None: no limit of its own. A lease whose GPUs were not
    used for `idle_minutes` is taken back; None: never for that."""

    max_hours: float | None = Field(default=None, gt=0, strict=False)
    idle_minutes: float | None = Field(default=None, ge=LEAST_IDLE_MINUTES, strict=False)


class UserClass(_Model):
    """Who belongs together: an account and a QOS of Slurm.

    `classes` None = all classes of GPUs. `max_gpus` holds for all of them together, `max_gpus_per_user` for each, whole
    GPUs and fractions added up. `max_hours` is the longest lease. A higher `priority` (0 to 1000) goes first.
    `idle_minutes` as of a class of GPU; the shorter holds. `max_submitted`: how many jobs of each wait or run at once,
    each part of a lease one: Slurm's controller has room for 10,000 of all users.
    `preempts` names classes of users whose leases end where these need the GPUs.
    """

    groups: tuple[Login, ...] = Field(default=(), strict=False)
    users: tuple[Login, ...] = Field(default=(), strict=False)
    classes: tuple[Name, ...] | None = Field(default=None, strict=False, min_length=1)
    max_gpus: Gpus | None = None
    max_gpus_per_user: Gpus | None = None
    max_submitted: int = Field(default=MAX_SUBMITTED, ge=1)
    max_hours: float | None = Field(default=None, gt=0, strict=False)
    idle_minutes: float | None = Field(default=None, ge=LEAST_IDLE_MINUTES, strict=False)
    priority: int = Field(default=0, ge=0, le=1000)
    preempts: tuple[Name, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _somebody(self) -> UserClass:
        if not self.groups and not self.users:
            raise ValueError("it has no members; name Unix groups (groups) or users (users)")
        if self.max_gpus is not None and self.max_gpus_per_user is not None and self.max_gpus_per_user > self.max_gpus:
            raise ValueError("max_gpus_per_user is more than max_gpus; lower it, or leave it out")
        return self


class Reservation(_Model):
    """Whole nodes of one class of GPU, kept for classes of users at a time of day (of the head's clock).

    `nodes`: their names, or how many.
    """

    for_: tuple[Name, ...] = Field(alias="for", strict=False, min_length=1)
    gpu_class: Name = Field(alias="class")
    nodes: Annotated[int, Field(ge=1)] | Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    start: str = Field(alias="from", pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
    hours: float = Field(gt=0, le=24, strict=False)
    days: Literal["daily", "weekdays", "weekends"] = "daily"


class Preemption(_Model):
    """How leases are taken back: not before `after_minutes` of running, and with `grace_s` seconds of notice."""

    after_minutes: int = Field(default=0, ge=0)
    grace_s: int = Field(default=30, ge=0, le=3600)


class Leavers(_Model):
    """Users whom the groups of their class name no more: their waiting jobs end, and nothing of theirs begins.
    `running`: what runs finishes, or ends with `grace_s` seconds of notice. Where a directory says who is in a group,
    it has to have said so for `after_minutes`."""

    running: Literal["finish", "end"] = "finish"
    grace_s: int = Field(default=300, ge=0, le=86400)
    after_minutes: int = Field(default=10, ge=0, le=1440)


class StaticInstance(_Model):
    """Part of a GPU server that one client holds without a scheduler: GPUs by index, all of `fraction`."""

    name: Name
    node: str = Field(min_length=1)
    gpus: tuple[Annotated[int, Field(ge=0)], ...] = Field(strict=False, min_length=1)
    fraction: Gpus = Fraction(1)
    client: str = Field(min_length=1)
    user: Login

    @model_validator(mode="after")
    def _at_most_one(self) -> StaticInstance:
        if self.fraction > 1:
            raise ValueError(f"fraction {self.fraction} is above 1; list more GPUs in gpus")
        if len(set(self.gpus)) < len(self.gpus):
            raise ValueError("duplicate GPU in gpus")
        return self


class Join(_Model):
    """A Slurm of the site's own that the pool joins, and never changes. `cluster` and `controllers`: its ClusterName
    and the hosts of its slurmctld, by which nodes of another cluster are refused. `partition`: the one to which leases
    go, of exactly the inventory's GPU servers."""

    cluster: Annotated[str, Field(pattern=_IN_SLURM)]
    controllers: tuple[Annotated[str, Field(pattern=_HOST)], ...] = Field(strict=False, min_length=1)
    partition: Annotated[str, Field(pattern=_IN_SLURM)]


class Pool(_Model):
    """All policies. `users` empty: whoever may log in may use everything, in the order of asking. `join`: the Slurm is
    somebody else's, whose administrator decides who uses what; None: the pool's own.

    `native_jobs`: classes of users whose jobs may run on the GPU servers themselves with GPUs or parts of them; "none":
    nobody's; None: everybody's, with whole GPUs. `default_image`: of programs that a server cannot run without one.
    """

    scheduler: Literal["slurm", "none"] = "slurm"
    join: Join | None = None
    classes: dict[Name, GpuClass] = {}
    users: dict[Name, UserClass] = {}
    native_jobs: Literal["none"] | Annotated[tuple[Name, ...], Field(strict=False, min_length=1)] | None = None
    default_image: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$")
    reservations: dict[Name, Reservation] = {}
    preemption: Preemption = Preemption()
    leavers: Leavers = Leavers()
    static: tuple[StaticInstance, ...] = Field(default=(), strict=False)


class PoolFile(BaseModel):
    """The file, which has no other key."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    slurm_pool: Pool


#: Place of a fault below `slurm_pool`, and what it is.
Fault = tuple[tuple[str | int, ...], str]


def _unknown(name: str, names: Mapping[str, object], what: str) -> str:
    if name in names:
        return ""
    return (
        f"unknown {what} {name}; {or_nearest(name, sorted(names), '' if names else 'there are: none', numbered=True)}"
    )


def _user_faults(pool: Pool) -> Iterator[Fault]:
    for name in RESERVED:
        if name in pool.users:
            yield ("users", name), "Slurm reserves this name; choose another"
    for name, users in pool.users.items():
        for gpu_class in users.classes or () if pool.classes else ():
            yield ("users", name, "classes"), _unknown(gpu_class, pool.classes, "class of GPU")
        for other in users.preempts:
            yield ("users", name, "preempts"), _unknown(other, pool.users, "class of users")
            if other == name or (other in pool.users and name in pool.users[other].preempts):
                yield ("users", name, "preempts"), f"{other} preempts {name} too: no lease would last; remove one"


def _native_faults(pool: Pool) -> Iterator[Fault]:
    for name in pool.native_jobs if isinstance(pool.native_jobs, tuple) else ():
        yield ("native_jobs",), _unknown(name, pool.users, "class of users")


def _reservation_faults(pool: Pool) -> Iterator[Fault]:
    for name, kept in pool.reservations.items():
        if pool.classes:
            yield ("reservations", name, "class"), _unknown(kept.gpu_class, pool.classes, "class of GPU")
        limited = pool.classes.get(kept.gpu_class, GpuClass()).max_hours is not None
        for user, users in pool.users.items():
            if not limited and users.max_hours is None and kept.gpu_class in (users.classes or (kept.gpu_class,)):
                words = f"leases of {user} have no max_hours; one without an end never starts before a reservation"
                yield ("reservations", name), words
        for user in kept.for_:
            yield ("reservations", name, "for"), _unknown(user, pool.users, "class of users")
            if user in pool.users and kept.gpu_class not in (pool.users[user].classes or (kept.gpu_class,)):
                words = f"{user} may not use {kept.gpu_class}: nobody could use what is kept; give it the class"
                yield ("reservations", name, "for"), words


def _static_faults(pool: Pool) -> Iterator[Fault]:
    if pool.scheduler == "slurm":
        if pool.static:
            yield ("static",), "instances are for scheduler: none; with Slurm, GPUs would be granted twice"
        return
    for key in ("users", "native_jobs", "reservations"):
        if getattr(pool, key):
            yield (key,), "without a scheduler nothing would enforce this; use static, or scheduler: slurm"
    given: dict[int, Fraction] = {}
    names: list[str] = []
    for number, instance in enumerate(pool.static):
        if instance.name in names:
            yield ("static", number, "name"), f"duplicate name: {instance.name}"
        if instance.node != pool.static[0].node:
            yield ("static", number, "node"), f"is not {pool.static[0].node}: several GPU servers need a scheduler"
        names.append(instance.name)
        for gpu in instance.gpus:
            given[gpu] = given.get(gpu, Fraction(0)) + instance.fraction
            if given[gpu] > 1:
                words = f"GPU {gpu} is granted {given[gpu]} times; the fractions of a GPU add up to 1 at most"
                yield ("static", number), words


def _join_faults(pool: Pool) -> Iterator[Fault]:
    """What is a setting of the whole cluster, or of its accounting: nobody but its administrator changes that."""
    if pool.join is None:
        return
    theirs = "with join it is decided by the cluster's administrator; leave it out"
    if pool.scheduler != "slurm":
        yield ("join",), "there is nothing to join with scheduler: none; leave one of them out"
    for key in ("reservations", "preemption", "leavers"):
        if key in pool.model_fields_set:
            yield (key,), theirs
    for name, gpu_class in pool.classes.items():
        if "max_hours" in gpu_class.model_fields_set:
            yield ("classes", name, "max_hours"), theirs
    for name, users in pool.users.items():
        for key in ("classes", "preempts"):
            if key in users.model_fields_set:
                yield ("users", name, key), theirs


def faults(pool: Pool, shards_per_gpu: int = SHARDS_PER_GPU) -> list[Fault]:
    """Everything that does not fit together, in the order of the file."""
    found = [*_user_faults(pool), *_native_faults(pool), *_reservation_faults(pool), *_static_faults(pool)]
    found += _join_faults(pool)
    for name, users in pool.users.items():
        for key in ("max_gpus", "max_gpus_per_user"):
            try:
                shards(getattr(users, key) or Fraction(1), shards_per_gpu)
            except ValueError as error:
                found.append((("users", name, key), str(error)))
    return [(path, words) for path, words in found if words]


def check_pool(data: object, shards_per_gpu: int = SHARDS_PER_GPU) -> Pool:
    """Policies that are at hand as data, as Ansible has them. ConfigError with one line: `slurm_pool.key: words`."""
    try:
        pool = Pool.model_validate(data)
    except ValidationError as error:
        location, words = explain(error)
        raise ConfigError(": ".join([".".join(["slurm_pool", *map(str, location)]), words])) from None
    for path, words in faults(pool, shards_per_gpu):
        raise ConfigError(": ".join([".".join(["slurm_pool", *map(str, path)]), words]))
    return pool


def read_policy(file: Path, shards_per_gpu: int = SHARDS_PER_GPU) -> Pool:
    """The policies of one file that has the form of pool.yml, wherever it is. ConfigError with file and line."""
    source = read_source(file)
    pool = load_yaml(source, PoolFile).slurm_pool
    for path, words in faults(pool, shards_per_gpu):
        line = line_of(source, "slurm_pool", *path)
        raise ConfigError(f"{file}:{line}: {'.'.join(map(str, path))}: {words}")
    return pool


def load_pool(inventory: Path, shards_per_gpu: int = SHARDS_PER_GPU) -> Pool | None:
    """The policies of an inventory (its folder or its hosts file); None where it has none.

    ConfigError with file, line and what to do.
    """
    folder = inventory if inventory.is_dir() else inventory.parent
    if not (folder / POOL_FILE).exists():
        return None
    pool = load_yaml(folder / POOL_FILE, PoolFile).slurm_pool
    for path, words in faults(pool, shards_per_gpu):
        where = locate(folder, None, ("slurm_pool", *path)) or folder / POOL_FILE
        raise ConfigError(f"{where}: {'.'.join(map(str, path))}: {words}")
    return pool
