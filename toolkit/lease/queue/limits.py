"""What the pool's policy allows a user: classes of users with their limits, from Slurm's accounting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from toolkit.lease import Exit, LeaseError
from toolkit.lease.jobs.slurm import NO_ANSWER, said
from toolkit.lease.jobs.slurm_lists import duration_s, tres
from toolkit.lease.jobs.slurm_text import PoolNode, SlurmError, SlurmJob
from toolkit.lease.machine.host import Host
from toolkit.lease.pool import servers_of, shards_per_gpu
from toolkit.lease.pool_file import read_pool

_QOS = ("Name", "Priority", "GrpTRES", "MaxTRESPU", "MaxSubmitJobsPU", "MaxWall", "Preempt")
_NAME = re.compile(r"[\w.@+-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class GpuClass:
    """A class of GPU that may be used; longest_s: of any lease there, None without a limit."""

    name: str
    longest_s: int | None


@dataclass(frozen=True)
class Limits:
    """What a class of users may have. Numbers of GPUs count wholes and parts together; None: no limit. used: what this
    user has by this class now; used_together: what all its members have."""

    name: str
    default: bool
    gpus: Fraction | None
    used: Fraction
    together: Fraction | None
    used_together: Fraction
    longest_s: int | None
    jobs: int | None
    jobs_now: int
    priority: int
    preempts: tuple[str, ...]
    classes: tuple[GpuClass, ...]


def _rows(host: Host, kind: str, columns: Sequence[str], *more: str) -> list[dict[str, str]]:
    words = ["sacctmgr", "--noheader", "--parsable2", "show", kind, *more, f"format={','.join(columns)}"]
    done = host.slurm.run(words)
    if done.returncode != 0:
        raise SlurmError(said(done), Exit.RETRY, before=NO_ANSWER)
    rows = [line.split("|") for line in done.stdout.splitlines() if line.strip()]
    if not all(len(row) == len(columns) for row in rows):
        raise LeaseError(f"the answer of sacctmgr show {kind} cannot be used")
    return [dict(zip(columns, row)) for row in rows]


def _partitions(host: Host) -> list[dict[str, str]]:
    done = host.slurm.run(["scontrol", "--oneliner", "show", "partition"])
    if done.returncode != 0:
        raise SlurmError(said(done), Exit.RETRY, before=NO_ANSWER)
    return [dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", line)) for line in done.stdout.splitlines() if line.strip()]


def _gpu_classes(partitions: Iterable[Mapping[str, str]], qos: str) -> tuple[GpuClass, ...]:
    """Partitions that admit a QOS; the one of all nodes is no class."""
    found = []
    for one in partitions:
        allowed = one.get("AllowQos", "ALL")
        if one.get("PartitionName", "all") != "all" and (allowed == "ALL" or qos in allowed.split(",")):
            found.append(GpuClass(one["PartitionName"], duration_s(one.get("MaxTime", "UNLIMITED"))))
    return tuple(found)


def _joined_classes(
    partitions: Iterable[Mapping[str, str]], nodes: Iterable[PoolNode], name: str
) -> tuple[GpuClass, ...]:
    """Classes of GPU of the pool's nodes in a cluster of the site's own, where one partition has all of them."""
    longest = next((one.get("MaxTime", "UNLIMITED") for one in partitions if one.get("PartitionName") == name), "")
    return tuple(GpuClass(one, duration_s(longest)) for one in sorted({n.gpu_class for n in nodes if n.gpu_class}))


def _billing(text: str, per_gpu: int) -> Fraction | None:
    """GPUs of a limit in billing units, or, as clusters of a site's own have it, in GPUs; None where there is none."""
    if "billing=" in text:
        return Fraction(tres(text, "billing"), per_gpu)
    return Fraction(tres(text, "gres/gpu")) if "gres/gpu=" in text else None


def _used(jobs: Iterable[SlurmJob], sizes: Mapping[str, int]) -> Fraction:
    parts = Fraction(0)
    for held in (held for job in jobs if not job.ended for held in job.held):
        size = sizes.get(held.node, 1) or 1
        parts += Fraction(held.parts(size), size)
    return parts


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def limits(host: Host, user: str, nodes: Sequence[PoolNode], jobs: Sequence[SlurmJob]) -> list[Limits]:
    """The user's classes, the default one first; [] in a pool without classes of users, or where the user is in none
    (see `classes_there`)."""
    if not _NAME.fullmatch(user):
        raise LeaseError(f"user {user!r}: not a name that Slurm takes")
    default = next((row["DefaultAccount"] for row in _rows(host, "user", ("User", "DefaultAccount"), user)), "")
    own = [row for row in _rows(host, "assoc", ("Account", "User", "QOS"), f"user={user}") if row["User"] == user]
    by_name = {row["Name"]: row for row in _rows(host, "qos", _QOS)}
    partitions, sizes = _partitions(host), {node.name: shards_per_gpu(node) or 1 for node in nodes}
    per_gpu = max(sizes.values(), default=1)
    pool_file = read_pool(host.pool_conf)
    joined = pool_file.joined
    found = []
    for row in sorted(own, key=lambda row: row["Account"] != default):
        named = (row["QOS"] or row["Account"]).split(",")  # the pool's own are one each
        qos = next((by_name[one] for one in named if one in by_name), None)
        if qos is None or row["Account"] == "root":
            continue
        name = row["Account"]
        members = [job for job in jobs if job.account == name]
        mine = [job for job in members if job.user == user]
        found.append(
            Limits(
                name=name,
                default=name == default,
                gpus=_billing(qos["MaxTRESPU"], per_gpu),
                used=_used(mine, sizes),
                together=_billing(qos["GrpTRES"], per_gpu),
                used_together=_used(members, sizes),
                longest_s=duration_s(qos["MaxWall"]),
                jobs=_number(qos["MaxSubmitJobsPU"]),
                jobs_now=len([job for job in mine if not job.ended]),
                priority=_number(qos["Priority"]) or 0,
                preempts=tuple(filter(None, qos["Preempt"].split(","))),
                classes=(
                    _joined_classes(partitions, servers_of(nodes, pool_file), joined)
                    if joined
                    else _gpu_classes(partitions, qos["Name"])
                ),
            )
        )
    return found


def enforced(host: Host) -> bool:
    """Whether the pool has classes of users: without an association nobody gets anything."""
    done = host.slurm.run(["scontrol", "show", "config"])
    if done.returncode != 0:
        raise SlurmError(said(done), Exit.RETRY, before=NO_ANSWER)
    match = re.search(r"^AccountingStorageEnforce\s*=\s*(\S+)", done.stdout, re.MULTILINE)
    return bool(match) and "associations" in (match[1] if match else "")
