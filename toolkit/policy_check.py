"""A file of policies, compared with what a pool's head has: what `toolkit pool check` does, outside of click."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.inventory import read_inventory
from toolkit.lease import SHARDS_PER_GPU
from toolkit.lease.client.manage import Lease
from toolkit.node.head import Head
from toolkit.pool_changes import Change, Held, Outside, changes, outside
from toolkit.pool_policy import Pool, check_pool, read_policy
from validation.model.load import ConfigError

#: Where role slurm writes what the head's accounting is to hold, and the policy that it comes from (key `policy`).
APPLIED = "/etc/elastic-ai/slurm/pool.json"
#: Also by role slurm: who is in a group, as accounting counts it.
SYNC = "/usr/local/sbin/elastic-ai-pool-sync"
#: Names that are printed of a change; the others are counted.
NAMED = 4


@dataclass(frozen=True)
class Checked:
    """What the file would change. unknown_groups: those that the head does not know."""

    inventory: Path
    head: str
    changes: tuple[Change, ...]
    outside: tuple[Outside, ...]
    unknown_groups: tuple[str, ...]


def named(change: Change) -> str:
    """For whom a change is: alice, bob and 32 more (teaching)."""
    if not change.users:
        return "For all users:"
    who = ", ".join(change.users[:NAMED])
    if len(change.users) > NAMED:
        who += f" and {len(change.users) - NAMED} more"
    before, after = (", ".join(names) or "no class of users" for names in (change.before, change.after))
    return f"{who} ({after if before == after else f'{before} -> {after}'}):"


def _applied(head: Head) -> Pool:
    done = head.run(["cat", APPLIED])
    if done.returncode != 0:
        raise UsageFault(f"{head.node.name} has no policy of a pool ({APPLIED}); apply one first: toolkit deploy")
    try:
        policy = json.loads(done.stdout)["policy"]
    except (ValueError, KeyError, TypeError):
        raise UsageFault(
            f"{head.node.name}: {APPLIED} was written by an older release and does not hold the policy; run "
            "toolkit deploy once with the file that is in force"
        ) from None
    try:
        return check_pool(policy)
    except ConfigError as fault:
        raise UsageFault(f"{head.node.name}: {APPLIED}: {fault}") from None


def _group_members(head: Head, groups: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Users of the Unix groups that the head knows, counted by the head's own synchronisation."""
    if not groups:
        return {}
    done = head.run([SYNC, "--members", *groups])
    try:
        found = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
        raise UsageFault(
            f"{head.node.name} does not say who is in {', '.join(groups)}: {said[-1] if said else f'no {SYNC}'}; "
            "where an older release is there, run toolkit deploy once with the file that is in force"
        ) from None
    return {group: tuple(names) for group, names in found.items()}


def _members(pool: Pool, of_group: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, users in pool.users.items():
        names = {*users.users, *(user for one in users.groups for user in of_group.get(one, ()))}
        found[name] = tuple(sorted(names - {"root"}))
    return found


def _held(leases: Sequence[Lease]) -> list[Held]:
    """Leases as the policy counts them; of those that wait only the class of GPU and the user are compared."""
    found = []
    for lease in leases:
        if lease.state == "ended":
            continue
        job, waits = lease.jobs[0], lease.state == "waiting"
        shards = [held.parts(SHARDS_PER_GPU) for one in lease.jobs if not one.ended for held in one.held]
        found.append(Held(lease.id, job.user, Fraction(sum(shards), SHARDS_PER_GPU), job.partition, waits))
    return found


def check_file(file: Path, inventory: Path) -> Checked:
    """What the file's policy would change in the pool of this inventory. ConfigError or UsageFault with one line."""
    after = read_policy(file)
    if after.join is not None:
        raise UsageFault(
            f"{file}: the pool joins cluster {after.join.cluster}, whose limits are its administrator's; what that "
            f"cluster lacks is printed without a file: toolkit pool check -i {inventory}"
        )
    head = Head(read_inventory(inventory))
    before = _applied(head)
    groups = sorted({one for pool in (before, after) for users in pool.users.values() for one in users.groups})
    of_group = _group_members(head, groups)
    old, new = _members(before, of_group), _members(after, of_group)
    wanted = {one for users in after.users.values() for one in users.groups}
    return Checked(
        inventory=inventory,
        head=head.node.name,
        changes=tuple(changes(before, after, old, new)),
        outside=tuple(outside(after, new, _held(head.all_leases()))),
        unknown_groups=tuple(sorted(wanted - set(of_group))),
    )
