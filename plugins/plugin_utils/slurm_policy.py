"""The pool's policies as Slurm's own: options of partitions, lines of slurm.conf, and what accounting is to hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

#: Root's, and that of whoever is in no class: it stays allowed everywhere, and only root has an association with it.
ROOT_QOS = "normal"
#: Weights of slurm.conf: any difference of priority outweighs all waiting, and waiting decides between equals.
WEIGHTS = {"PriorityWeightQOS": 100000, "PriorityWeightAge": 50}
DAY_FLAGS = {"daily": "DAILY", "weekdays": "WEEKDAY", "weekends": "WEEKEND"}


def checked(data: Mapping[str, Any], shards: int | None, inventory: str) -> Any:
    """The policies, validated; the fault with file and line where they stand in the inventory's file. shards None: the
    default."""
    try:
        from toolkit.lease import SHARDS_PER_GPU
        from toolkit.pool_policy import check_pool, load_pool
        from validation.model.load import ConfigError
    except ImportError as fault:
        raise AnsibleFilterError(
            f"slurm_pool: install the package elastic-ai-toolkit beside Ansible ({fault})"
        ) from None

    shards = SHARDS_PER_GPU if shards is None else shards
    plain = json.loads(json.dumps(data))  # Ansible's own kinds of text and mappings are not those that are checked
    try:
        return check_pool(plain, shards)
    except ConfigError as fault:
        try:
            load_pool(Path(inventory), shards)
        except ConfigError as located:
            raise AnsibleFilterError(str(located)) from None
        raise AnsibleFilterError(str(fault)) from None


def _minutes(hours: float) -> int:
    return max(round(hours * 60), 1)


def _clock(minutes: int) -> str:
    """Minutes as Slurm writes them: days-hours:minutes:seconds."""
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"


def _partition_lines(pool: Any, lines: Mapping[str, str], shards: int) -> list[str]:
    # Beside a reservation a lease without an end would never start: it gets an hour, or what every limit allows.
    limits = [part.max_hours for part in (*pool.users.values(), *pool.classes.values()) if part.max_hours]
    default = f"DefaultTime={_clock(min([60, *map(_minutes, limits)]))}"
    written = []
    for name, line in lines.items():
        allowed = [
            user_class
            for user_class, users in pool.users.items()
            if users.classes is None
            or name in users.classes
            or (name == "all" and set(pool.classes) == {*users.classes})
        ]
        gpu_class = pool.classes.get(name)
        if gpu_class is not None and gpu_class.max_hours is not None:
            line = line.replace("MaxTime=INFINITE", f"MaxTime={_clock(_minutes(gpu_class.max_hours))}")
        words = [line, default] if pool.reservations else [line]
        if pool.users:
            words.append(f"AllowQos={','.join([ROOT_QOS, *allowed])}")
        # A whole GPU counts as many parts as it has, so that one limit holds for wholes and parts together.
        words.append(f"TRESBillingWeights=gres/gpu={shards},gres/shard=1")
        written.append(" ".join(words))
    return written


def _qos(pool: Any, name: str, shards: int) -> dict[str, str]:
    """A QOS as sacctmgr takes it; -1 takes a limit away."""
    users = pool.users[name]
    return {
        "Priority": str(users.priority),
        "GrpTRES": f"billing={int(users.max_gpus * shards) if users.max_gpus else -1}",
        "MaxTRESPerUser": f"billing={int(users.max_gpus_per_user * shards) if users.max_gpus_per_user else -1}",
        "MaxSubmitJobsPerUser": str(users.max_submitted),
        "MaxWall": _clock(_minutes(users.max_hours)) if users.max_hours else "-1",
        "GraceTime": str(pool.preemption.grace_s),
        "Preempt": ",".join(users.preempts),
        "Flags": "DenyOnLimit",
    }


#: Keys of a class of users -> the limit of its QOS, as sacctmgr shows it.
LIMITS = {
    "priority": "Priority", "max_gpus": "GrpTRES", "max_gpus_per_user": "MaxTRESPerUser",
    "max_submitted": "MaxSubmitJobsPerUser", "max_hours": "MaxWall",
}  # fmt: skip
SHOWN = {"MaxTRESPerUser": "MaxTRESPU", "MaxSubmitJobsPerUser": "MaxSubmitJobsPU"}


def qos_limits(pool: Any, name: str, shards: int) -> dict[str, str]:
    """Those limits of a class of users that the policy states, by the names that sacctmgr shows."""
    every, stated = _qos(pool, name, shards), pool.users[name].model_fields_set
    return {SHOWN.get(limit, limit): every[limit] for key, limit in LIMITS.items() if key in stated}


def _reservation(kept: Any) -> dict[str, Any]:
    return {
        "accounts": sorted(kept.for_),
        "partition": kept.gpu_class,
        "nodes": kept.nodes if isinstance(kept.nodes, int) else sorted(kept.nodes),
        "from": kept.start,
        "minutes": _minutes(kept.hours),
        "flags": [DAY_FLAGS[kept.days], "MAGNETIC"],
    }


def _conf(pool: Any) -> dict[str, Any]:
    conf: dict[str, Any] = {}
    if pool.users:
        conf = {
            "AccountingStorageEnforce": "associations,limits,qos",
            # without it what a partition does not allow would wait for ever instead of being refused
            "EnforcePartLimits": "ANY",
            "PriorityType": "priority/multifactor",
            **WEIGHTS,
        }
    if any(users.preempts for users in pool.users.values()):
        conf |= {"PreemptType": "preempt/qos", "PreemptMode": "CANCEL"}
        if pool.preemption.after_minutes:
            conf["PreemptExemptTime"] = _clock(pool.preemption.after_minutes)
    return conf


def slurm_policy(data: Mapping[str, Any], cluster: Mapping[str, Any], shards: int, inventory: str) -> dict[str, Any]:
    """partition_lines and conf of slurm.conf, sync: what the head's accounting and reservations are to hold, and
    native: classes of users whose native jobs may have GPUs (None: everybody's may).

    data: the variable slurm_pool; cluster: what filter slurm_cluster found; shards: parts of a GPU (0 = no parts, then
    limits count in whole GPUs); inventory: its folder, to name file and line of a mistake.
    """
    empty = {"classes": {}, "reservations": {}, "policy": {}}
    if not data:
        return {"partition_lines": list(cluster["partitions"].values()), "conf": {}, "sync": empty, "native": None}
    per_gpu = shards or 1
    pool = checked(data, per_gpu, inventory)
    found = {*cluster["partitions"]} - {"all"}
    named = {*pool.classes, *(c for users in pool.users.values() for c in users.classes or ())}
    named |= {kept.gpu_class for kept in pool.reservations.values()}
    if named - found and not cluster["unknown"]:
        raise AnsibleFilterError(
            f"slurm_pool: no node has GPUs of class {', '.join(sorted(named - found))}; "
            f"the nodes have: {', '.join(sorted(found)) or 'none'}"
        )
    nodes = {node["name"] for node in cluster["nodes"]}
    for name, kept in pool.reservations.items():
        strange = sorted(set() if isinstance(kept.nodes, int) else set(kept.nodes) - nodes)
        if strange and not cluster["unknown"]:
            raise AnsibleFilterError(
                f"slurm_pool.reservations.{name}.nodes: {', '.join(strange)} is no GPU server; "
                f"there are: {', '.join(sorted(nodes))}"
            )
    classes = {
        name: {"groups": list(users.groups), "users": list(users.users), "qos": _qos(pool, name, per_gpu)}
        for name, users in pool.users.items()
    }
    kept_for = {
        name: _reservation(kept) for name, kept in pool.reservations.items() if kept.gpu_class in found
    }  # those of nodes that no run has reached yet follow with that run
    return {
        "partition_lines": _partition_lines(pool, cluster["partitions"], per_gpu),
        "conf": _conf(pool),
        # as it is written, so that `toolkit pool check` can compare another one with it
        "sync": {
            "classes": classes,
            "reservations": kept_for,
            "leavers": {
                "running": pool.leavers.running,
                "grace_s": pool.leavers.grace_s,
                "after_s": pool.leavers.after_minutes * 60,
            },
            "policy": json.loads(json.dumps(data)),
        },
        "native": [] if pool.native_jobs == "none" else pool.native_jobs and list(pool.native_jobs),
    }


def slurm_pool_faults(data: Mapping[str, Any], shards: int | str | None, inventory: str) -> list[str]:
    """What is wrong with the policies by themselves, before any node is known: one sentence, or none. shards: parts of
    a GPU, None for the default."""
    try:
        checked(data, None if shards is None else int(shards) or 1, inventory)
    except AnsibleFilterError as fault:
        return [str(fault)]
    return []
