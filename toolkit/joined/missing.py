"""What leases need of a cluster that is joined and it does not have: for its administrator, who alone changes it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from toolkit.joined.cluster import Cluster
from toolkit.lease.jobs.slurm_lists import duration_s, tres
from toolkit.pool_policy import Join
from validation.base.counting import number_of

#: Files that the administrator copies beside slurm.conf; role slurm writes them to FOLDER on the head.
FOLDER = "/etc/elastic-ai/slurm/join"
PARTITIONS, GPUS, SHARDS = "elastic-ai-partitions.conf", "elastic-ai-gpus.conf", "elastic-ai-shards.conf"
PROGRAMS = {"Prolog": "elastic-ai-prolog", "Epilog": "elastic-ai-epilog"}
#: How long a lease's Prolog may take, as in a pool of our own (plugin_utils/slurm_conf.py).
PROLOG_S = 120
_CANNOT_START = "until then no lease starts"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Server(_Model):
    """A GPU server as it was found. node_line: of slurm.conf, where the cluster does not have it; gres: its resources
    as a NodeName line has them."""

    name: str
    gpus: int
    node_line: str
    gres: str


class Wanted(_Model):
    """What role slurm found and the inventory wants. shards: parts of a GPU, 0 for none. classes: limits of classes of
    users by sacctmgr's names. hooks: programs that a Prolog or Epilog has to run, by its kind. stand_ins: GPUs that the
    inventory declares."""

    join: Join
    shards: int
    servers: tuple[Server, ...]
    classes: dict[str, dict[str, str]] = {}
    hooks: dict[str, tuple[str, ...]]


#: Texts of the programs of Prolog and Epilog that are on a server, by server and path.
Scripts = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Missing:
    """One thing. needed: without it leases do not work, or not rightly; else something less works. todo: what its
    administrator does."""

    needed: bool
    what: str
    todo: str

    @property
    def words(self) -> str:
        """As a sentence."""
        return f"{self.what}: {self.todo}"


def _servers(cluster: Cluster, wanted: Wanted) -> Iterator[Missing]:
    for server in wanted.servers:
        node = cluster.nodes.get(server.name)
        if node is None:
            yield Missing(True, f"{server.name} is no node of it", f"add to slurm.conf: {server.node_line}")
            continue
        add = f"its NodeName line in slurm.conf gets Gres={server.gres}"
        if node.gpus != server.gpus:
            yield Missing(
                True, f"{server.name} has {number_of(server.gpus, 'GPU')}, and {node.gpus} there",
                f"{add}, and gres.conf the line Include {GPUS}",
            )  # fmt: skip
            continue
        per_gpu = node.shards // node.gpus if node.gpus else 0
        if wanted.shards and not per_gpu:
            yield Missing(
                False, f"{server.name} has no parts of GPUs, so that whole ones alone are leased",
                f"{add}, and gres.conf the line Include {SHARDS}",
            )  # fmt: skip
        elif per_gpu != wanted.shards:
            yield Missing(
                True, f"a GPU of {server.name} is counted in {number_of(per_gpu, 'part')} there, and in "
                f"{wanted.shards} here",
                f"set slurm_shards_per_gpu: {per_gpu} in the inventory, or {add}",
            )  # fmt: skip


def _resources(cluster: Cluster, wanted: Wanted) -> Iterator[Missing]:
    types = cluster.words("GresTypes")
    lacking = [one for one in ("gpu", *(["shard"] if wanted.shards else [])) if one not in types]
    if lacking:
        value = ",".join([*sorted(types), *lacking])
        yield Missing("gpu" in lacking, f"GresTypes has no {' and no '.join(lacking)}", f"GresTypes={value}")
    select = cluster.config.get("SelectType", "")
    if select != "select/cons_tres":
        yield Missing(True, f"SelectType is {select or 'not known'}, which has no GPUs", "SelectType=select/cons_tres")


def _partition(cluster: Cluster, wanted: Wanted) -> Iterator[Missing]:
    name = wanted.join.partition
    there = cluster.partitions.get(name)
    if there is None:
        yield Missing(
            True, f"it has no partition {name}, to which leases go", f"slurm.conf gets the line Include {PARTITIONS}"
        )
        return
    members, servers = set(cluster.members(name)), {server.name for server in wanted.servers}
    if servers - members:
        yield Missing(
            True, f"partition {name} lacks {', '.join(sorted(servers - members))}", f"take over the new {PARTITIONS}"
        )
    if members - servers:
        yield Missing(
            True, f"partition {name} has nodes that are not the pool's ({', '.join(sorted(members - servers))})",
            f"give leases a partition of their own: a new name in slurm_pool.join.partition, and Include {PARTITIONS}",
        )  # fmt: skip
    shared = there.get("OverSubscribe", "NO")
    if shared.startswith("EXCLUSIVE"):
        yield Missing(True, f"partition {name} gives whole nodes", f"OverSubscribe as in {PARTITIONS}")
    elif shared.startswith("FORCE"):
        yield Missing(
            True, f"partition {name} forces jobs to share cores, and Slurm puts such jobs on no node with others",
            f"OverSubscribe as in {PARTITIONS}",
        )  # fmt: skip
    if there.get("State", "UP") != "UP":
        yield Missing(
            False, f"partition {name} is {there['State'].lower()}", f"scontrol update PartitionName={name} State=UP"
        )


def _seconds(value: str) -> int | None:
    """Seconds of `120 sec`; None of 65534, which is no limit, and of anything else."""
    found = re.match(r"(\d+)", value)
    return int(found[1]) if found and int(found[1]) < 65534 else None


def _matching(programs: tuple[str, ...], texts: Mapping[str, str]) -> list[str]:
    """Texts of the programs that a server has; a relative name is beside slurm.conf, wherever that is."""
    return [
        text
        for path, text in texts.items()
        if any(fnmatch.fnmatch(path, one if one.startswith("/") else f"*/{one}") for one in programs)
    ]


def _programs(cluster: Cluster, wanted: Wanted, scripts: Scripts) -> Iterator[Missing]:
    flags = cluster.words("PrologFlags")
    if not flags & {"alloc", "contain", "x11"}:
        value = ",".join([*sorted(one.capitalize() for one in flags), "Alloc"])
        yield Missing(True, "its Prolog does not run when a job gets its nodes", f"PrologFlags={value}")
    for kind, hooks in wanted.hooks.items():
        programs, file = cluster.programs(kind), PROGRAMS[kind]
        if not hooks:
            continue
        if not programs:
            yield Missing(
                True, f"it has no {kind}; {_CANNOT_START}",
                f"copy {file} to the same place on all nodes of the cluster, and set {kind} to it",
            )  # fmt: skip
            continue
        without = [
            server.name
            for server in wanted.servers
            if not any(hook in text for hook in hooks for text in _matching(programs, scripts.get(server.name, {})))
        ]
        if without:
            yield Missing(
                True, f"its {kind} ({', '.join(programs)}) does not run ours on {', '.join(without)}; {_CANNOT_START}",
                f"let it run {file}, as docs/how-to/join-slurm.md shows",
            )  # fmt: skip
    limit = _seconds(cluster.config.get("PrologEpilogTimeout", ""))
    if limit is not None and limit < PROLOG_S:
        yield Missing(
            False, f"PrologEpilogTimeout is {limit} s: a lease whose engine starts more slowly drains its server",
            f"PrologEpilogTimeout={PROLOG_S} or more",
        )  # fmt: skip


def _alike(key: str, value: str, shown: str) -> bool:
    if key == "MaxWall":
        return duration_s(value) == duration_s(shown)
    if key in ("GrpTRES", "MaxTRESPU"):
        return tres(value, "billing") == tres(shown, "billing")
    return value == shown


def _accounting(cluster: Cluster, wanted: Wanted) -> Iterator[Missing]:
    """Limits are the cluster's own. What is not there is not held by anybody, and leases work all the same."""
    if not wanted.classes:
        return
    names = ", ".join(wanted.classes)
    if "slurmdbd" not in cluster.config.get("AccountingStorageType", ""):
        yield Missing(
            False, f"it has no accounting (slurmdbd), so that nobody holds the limits of {names}",
            "leave users out of slurm_pool, or set accounting up there",
        )  # fmt: skip
        return
    if cluster.qos is None:
        yield Missing(
            False, f"its accounting cannot be read ({cluster.unread}), so that nobody knows whether it holds the "
            f"limits of {names}",
            "let root of the head read it (sacctmgr show qos)",
        )  # fmt: skip
        return
    enforced = cluster.words("AccountingStorageEnforce")
    if "all" not in enforced and not {"limits", "qos"} <= enforced | ({"limits"} if "safe" in enforced else set()):
        yield Missing(
            False, f"it enforces {', '.join(sorted(enforced)) or 'nothing'} of its accounting, so that nobody holds "
            f"the limits of {names}",
            "AccountingStorageEnforce=associations,limits,qos, which concerns all its users",
        )  # fmt: skip
    for name, limits in wanted.classes.items():
        if name not in cluster.accounts:
            yield Missing(
                False, f"it has no account {name}", f"sacctmgr add account {name}, and its users by sacctmgr add user"
            )
        shown = cluster.qos.get(name, {})
        wrong = [f"{_set(key)}={value}" for key, value in limits.items() if not _alike(key, value, shown.get(key, ""))]
        if not shown:
            yield Missing(
                False, f"it has no QOS {name}, so that nobody holds the limits of that class",
                " ".join(["sacctmgr add qos", name, *(["set", *wrong] if wrong else [])])
                + f", then sacctmgr modify account {name} set QOS+={name} DefaultQOS={name}",
            )  # fmt: skip
        elif wrong:
            yield Missing(
                False, f"its QOS {name} has other limits than the class {name}",
                f"sacctmgr modify qos {name} set {' '.join(wrong)}, or the inventory's class as they are",
            )  # fmt: skip


def _set(key: str) -> str:
    """What sacctmgr shows as MaxTRESPU is set as MaxTRESPerUser."""
    return {"MaxTRESPU": "MaxTRESPerUser", "MaxSubmitJobsPU": "MaxSubmitJobsPerUser"}.get(key, key)


def _private(cluster: Cluster) -> Iterator[Missing]:
    hidden = cluster.words("PrivateData") & {"jobs", "nodes", "partitions"}
    if hidden:
        yield Missing(
            False, f"users do not see {', '.join(sorted(hidden))} of others (PrivateData), so that toolkit gpus shows "
            "GPUs of others as free, and a lease may wait for them",
            "nothing, where that is meant; else PrivateData without them",
        )  # fmt: skip


def missing(cluster: Cluster, wanted: Wanted, scripts: Scripts) -> list[Missing]:
    """Everything that is missing, what is needed first."""
    found = [
        *_servers(cluster, wanted), *_resources(cluster, wanted), *_partition(cluster, wanted),
        *_programs(cluster, wanted, scripts), *_accounting(cluster, wanted), *_private(cluster),
    ]  # fmt: skip
    return sorted(found, key=lambda one: not one.needed)
