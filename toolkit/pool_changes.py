"""What another policy of the pool changes, and for whom. Pure: two policies, and who is in which class.

Rights are those of pool_policy.Pool: where there are classes of users, a user in none of them gets no GPU; where there
are none, everybody may use everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from toolkit.pool_policy import Pool, Reservation, UserClass
from validation.base.counting import number_of

#: Members by class of users, in the order of the policy's file.
Members = Mapping[str, Sequence[str]]
NO_LIMIT, NOTHING = "no limit", "no GPU"


@dataclass(frozen=True)
class Difference:
    """One right or rule, before and after. what: its key in the policy."""

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class Change:
    """The same differences for these users, or for all (`users` empty) where the rule is not of a class of users.

    before, after: the users' classes, the default one first; () for none.
    """

    users: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Held:
    """A lease that runs or waits now: of whom, and how many GPUs of which class."""

    lease: int
    user: str
    gpus: Fraction
    gpu_class: str
    waits: bool


@dataclass(frozen=True)
class Outside:
    """A lease of now that the new policy would not give its user. why: in words, without a subject."""

    held: Held
    why: str


def _gpus(number: Fraction | None) -> str:
    return NO_LIMIT if number is None else number_of(str(number), "GPU") if number >= 1 else f"{number} GPU"


def _hours(hours: float | None) -> str:
    return NO_LIMIT if hours is None else number_of(float(hours), "hour")


def _minutes(minutes: float | None) -> str:
    return "never" if minutes is None else number_of(float(minutes), "minute")


def _native(pool: Pool, name: str) -> str:
    if pool.native_jobs is None:
        return "whole GPUs"
    return "yes" if name in pool.native_jobs and pool.native_jobs != "none" else "no"


def _rights(pool: Pool, name: str) -> dict[str, str]:
    """What a class of users may, by key of the policy."""
    users = pool.users[name]
    return {
        "classes": ", ".join(users.classes) if users.classes else "all",
        "max_gpus_per_user": _gpus(users.max_gpus_per_user),
        "max_gpus": _gpus(users.max_gpus),
        "max_hours": _hours(users.max_hours),
        "idle_minutes": _minutes(users.idle_minutes),
        "max_submitted": str(users.max_submitted),
        "priority": str(users.priority),
        "preempts": ", ".join(sorted(users.preempts)) or "nobody",
        "preempted by": ", ".join(sorted(n for n, u in pool.users.items() if name in u.preempts)) or "nobody",
        "native_jobs": _native(pool, name),
    }


def _of_nobody(pool: Pool) -> dict[str, str]:
    """The rights of a user in no class."""
    if pool.users:
        return {"classes": NOTHING}
    free = UserClass(users=("x",), max_submitted=1)
    open_to_all = _rights(pool.model_copy(update={"users": {"x": free}}), "x")
    return {**open_to_all, "max_submitted": NO_LIMIT}


def _classes_of(pool: Pool, members: Members) -> dict[str, tuple[str, ...]]:
    """Users' classes, the default one first."""
    found: dict[str, list[str]] = {}
    for name in pool.users:
        for user in members.get(name, ()):
            found.setdefault(user, []).append(name)
    return {user: tuple(names) for user, names in found.items()}


def _compared(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Difference]:
    """Where one side has no GPU at all, that alone is the difference."""
    if NOTHING in (before.get("classes"), after.get("classes")):
        keys = ["classes"] if before.get("classes") != after.get("classes") else []
    else:
        keys = [key for key in after if before.get(key) != after[key]]
    for key in keys:
        yield Difference(key, before.get(key, ""), after.get(key, ""))


def _user_changes(before: Pool, after: Pool, old: Members, new: Members) -> list[Change]:
    was, will = _classes_of(before, old), _classes_of(after, new)
    alike: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[Difference, ...]], list[str]] = {}
    for user in sorted({*was, *will}):
        names = was.get(user, ()), will.get(user, ())
        had = [_rights(before, name) for name in names[0]] or [_of_nobody(before)]
        gets = [_rights(after, name) for name in names[1]] or [_of_nobody(after)]
        found: list[Difference] = []
        for place in range(max(len(had), len(gets))):
            found += _compared(had[min(place, len(had) - 1)], gets[min(place, len(gets) - 1)])
        differences = tuple(dict.fromkeys(found))
        if differences or names[0] != names[1]:
            alike.setdefault((*names, differences), []).append(user)
    return [Change(tuple(users), *key) for key, users in alike.items()]


def _kept(reservation: Reservation | None) -> str:
    if reservation is None:
        return "none"
    nodes = reservation.nodes
    where = number_of(nodes, "server") if isinstance(nodes, int) else ", ".join(sorted(nodes))
    return (
        f"{where} of {reservation.gpu_class} for {', '.join(reservation.for_)}, {reservation.days} from "
        f"{reservation.start}, {number_of(float(reservation.hours), 'hour')}"
    )


def _rules(pool: Pool) -> dict[str, str]:
    """What holds for all users."""
    found: dict[str, str] = {"scheduler": pool.scheduler}
    for name, gpu_class in pool.classes.items():
        found[f"classes.{name}.max_hours"] = _hours(gpu_class.max_hours)
        found[f"classes.{name}.idle_minutes"] = _minutes(gpu_class.idle_minutes)
    for name, kept in pool.reservations.items():
        found[f"reservations.{name}"] = _kept(kept)
    found["preemption.after_minutes"] = str(pool.preemption.after_minutes)
    found["preemption.grace_s"] = str(pool.preemption.grace_s)
    found |= {f"leavers.{key}": str(value) for key, value in pool.leavers.model_dump().items()}
    for one in pool.static:
        found[f"static.{one.name}"] = f"{one.fraction} of {one.node}:{','.join(map(str, one.gpus))} for {one.user}"
    return found


def changes(before: Pool, after: Pool, old: Members, new: Members) -> list[Change]:
    """What differs, for users first, then the rules for all. Nothing where the policies mean the same.

    old, new: who is in the classes of each policy.
    """
    had, gets = _rules(before), _rules(after)
    rules = tuple(
        Difference(key, had.get(key, "none"), gets.get(key, "none"))
        for key in [*had, *(key for key in gets if key not in had)]
        if had.get(key, "none") != gets.get(key, "none")
    )
    return [*_user_changes(before, after, old, new), *([Change((), (), (), rules)] if rules else [])]


def outside(after: Pool, members: Members, leases: Sequence[Held]) -> list[Outside]:
    """Leases of now that their users could not request again. What runs goes on in any case: Slurm does not end it."""
    if not after.users:
        return []
    classes = _classes_of(after, members)
    found: list[Outside] = []
    given: dict[str, Fraction] = {}
    for held in leases:
        names = classes.get(held.user, ())
        entries = [after.users[name] for name in names]
        if not entries:
            if held.user != "root":
                found.append(Outside(held, "is in no class of users"))
            continue
        if not any(one.classes is None or held.gpu_class in one.classes for one in entries):
            found.append(Outside(held, f"may not use {held.gpu_class}"))
            continue
        limits = [one.max_gpus_per_user for one in entries]
        most = None if None in limits else max(limit for limit in limits if limit is not None)
        given[held.user] = given.get(held.user, Fraction(0)) + (0 if held.waits else held.gpus)
        if most is not None and (given[held.user] > most or held.gpus > most):
            found.append(Outside(held, f"may have {_gpus(most)} at a time"))
    return found
