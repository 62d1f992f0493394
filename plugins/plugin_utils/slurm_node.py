"""What role slurm decides of one node from readings of node_state: what does not apply, what is to do, what goes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.slurm import (
    other_databases,
    slurm_confines,
    slurm_taken_over,
)
from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.stand_ins import stand_ins_of

CGROUP = "/sys/fs/cgroup/cgroup.controllers"
UNCONFINED = "jobs are not confined by cgroups"
#: GPUs of a node that has none, or is none of the cluster's.
NO_GPUS: dict[str, Any] = {"stand_in": False, "files": []}


def _unconfined(node: Mapping[str, Any], os_key: str) -> list[str]:
    """Why jobs are not confined by cgroups on a node; [] where they are."""
    reasons = []
    if node["in_container"]:
        reasons.append(f"{UNCONFINED}: a container does not own its control groups")
    if not slurm_confines(os_key):
        reasons.append(f"{UNCONFINED}: Slurm of {os_key} does not know cgroup v2")
    if not node["in_container"] and CGROUP not in node["files"]:
        reasons.append(f"{UNCONFINED}: this node has no cgroup v2")
    return reasons


def slurm_judged(
    node: Mapping[str, Any],
    kind: str,
    system: Mapping[str, Any],
    *,
    os_key: str,
    gpus: Mapping[str, Any] | None,
    shards: int,
    sysfs_root: str,
    database: str,
    compute: bool | None = None,
) -> dict[str, Any]:
    """What a node of the cluster comes to: unconfined, not_applicable, stand_ins, devices_missing and missing.

    unconfined: why its jobs are not confined by cgroups. devices_missing: of the driver. missing: what the role makes
    and is not there, as paths by pmix, gpus and database.

    kind: head, compute or client; system: the role's table of its operating system; gpus: what filter slurm_gpus found,
    None on nodes that compute nothing; shards: parts of a GPU that the inventory asks for, 0 for none; database: where
    the head has it; compute: whether the node runs jobs, as a head does that is a GPU server too.
    """
    computes = kind == "compute" if compute is None else compute
    gpus = gpus or NO_GPUS
    devices = [] if gpus["stand_in"] else [file for file in gpus["files"] if file not in node["files"]]
    unconfined = _unconfined(node, os_key) if computes else []
    left_out = list(unconfined)
    if kind == "head" and not system["job_submit"]:
        left_out.append(
            "control characters in texts of jobs are not refused when they are submitted: whether Slurm of "
            f"{os_key} has the plugin job_submit/lua is not known"
        )
    if computes and shards and not system["shards"]:
        left_out.append(f"no parts of GPUs: Slurm of {os_key} has no gres/shard")
    if devices:
        left_out.append(f"slurmd waits for the driver: {', '.join(devices)} not there")
    if gpus["stand_in"] and not unconfined:
        left_out.append("GPUs are not fenced off from jobs without them: they are null devices")
    declared = ["GPUs declared in the inventory (null devices)"] if gpus["stand_in"] else []
    return {
        "unconfined": unconfined,
        "not_applicable": left_out,
        "stand_ins": declared + stand_ins_of([], "", "", sysfs_root),
        "devices_missing": devices,
        "missing": _missing(node, kind, gpus, database),
    }


def _missing(node: Mapping[str, Any], kind: str, gpus: Mapping[str, Any], database: str) -> dict[str, list[str]]:
    """Files that the role makes and the node lacks: links to PMIx, stand-ins of GPUs, the head's database."""
    made = {
        "pmix": [path[: -len(".2")] for path in node["files"] if path.endswith("libpmix.so.2")],
        "gpus": gpus["files"] if gpus["stand_in"] else [],
        "database": [database] if kind == "head" else [],
    }
    return {part: [path for path in paths if path not in node["files"]] for part, paths in made.items()}


def slurm_data_left(
    node: Mapping[str, Any], folders: Iterable[str], ledgers: Mapping[str, str], database: str
) -> list[str]:
    """Those of the folders of Slurm and MariaDB that go with the role; none where the role installed nothing.

    MariaDB's go if this role brought it and nobody else has a database. Slurm's stay where one was taken over: the
    originals are back in them. ledgers: paths of the role's own, `packages` and `files`.
    """
    contents = node["contents"]
    if ledgers["packages"] not in contents:
        return []
    brought = [path for path, text in contents.items() if '"mariadb-server"' in text] == [ledgers["packages"]]
    others = other_databases(node["files"], database)
    kept = slurm_taken_over(contents.get(ledgers["files"]) or "")
    there = [folder for folder in node["files"] if folder in set(folders)]
    ours = [path for path in there if (brought and not others) or path.endswith("/slurm")]
    return [path for path in ours if not (kept and path.endswith("/slurm"))]


def slurm_again(record: str, now: Mapping[str, Any]) -> dict[str, Any]:
    """What of a Slurm that was taken over is not as before: files that have come, and units that run otherwise.

    record: text of what was read before the takeover, `units` and `files`; now: the same, read now, its units in the
    order in which they start. units: name, state, and enabled (None: it is as it was). munge has its old key back and
    takes it by a restart.
    """
    if not record.strip():
        return {"files": [], "units": []}
    try:
        before = json.loads(record)
        units, files = before["units"], before["files"]
    except (ValueError, KeyError, TypeError) as fault:
        raise AnsibleFilterError(f"slurm_again: what was there before the takeover cannot be read: {fault}") from None
    acts = []
    for name in (name for name in now["units"] if name in units):
        was, is_ = units[name], now["units"][name]
        rereads = name == "munge.service" and was["active"]
        if rereads or (was["active"], was["enabled"]) != (is_["active"], is_["enabled"]):
            state = "restarted" if rereads else "started" if was["active"] else "stopped"
            enabled = None if was["enabled"] == is_["enabled"] else was["enabled"]
            acts.append({"name": name, "state": state, "enabled": enabled})
    return {"files": [path for path in now["files"] if path not in files], "units": acts}
