"""The settings of slurm.conf: what is the same on every site, what follows from the cluster, and what the site adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def slurm_conf(cluster: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Key -> value of slurm.conf, in the order of its lines; without nodes and partitions.

    cluster: what filter slurm_cluster found. wanted: name of the cluster, host and address of the head, shards (parts
    of a GPU, 0 for none), job_submit (whether the head's Slurm has that plugin), prolog and epilog (programs, "" for
    none), started and ended (the controller's own, likewise), policies (conf of filter slurm_policy) and extra (the
    site's own), which win in this order.
    """
    confined = cluster["cgroups"]
    gres = ["gpu", "shard"] if wanted["shards"] else ["gpu"]
    return {
        "ClusterName": wanted["name"],
        "SlurmctldHost": f"{wanted['host']}({wanted['address']})",
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        "MpiDefault": "none",
        "ProctrackType": "proctrack/cgroup" if confined else "proctrack/linuxproc",
        "TaskPlugin": "task/cgroup,task/affinity" if confined else "task/none",
        "JobAcctGatherType": "jobacct_gather/cgroup" if confined else "jobacct_gather/linux",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "DefMemPerCPU": cluster["memory_per_cpu_mib"],
        "GresTypes": ",".join(gres),
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": wanted["address"],
        "AccountingStorageTRES": ",".join(f"gres/{kind}" for kind in gres),
        "ReturnToService": 2,
        "InactiveLimit": 120,
        "SchedulerParameters": "bf_interval=5,bf_continue",
        "SlurmdTimeout": 60,
        "StateSaveLocation": "/var/lib/slurm/slurmctld",
        "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd.pid",
        "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurm/slurmd.log",
        **_programs(confined, wanted),
        **wanted["policies"],
        **wanted["extra"],
    }


def _programs(confined: bool, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What runs when jobs come, begin and end."""
    prolog, epilog = wanted["prolog"], wanted["epilog"]
    flags = (["Alloc"] if prolog else []) + (["Contain"] if confined else [])
    lines: dict[str, Any] = {"PrologFlags": ",".join(flags)} if flags else {}
    lines |= {"JobSubmitPlugins": "lua"} if wanted["job_submit"] else {}
    lines |= {"Prolog": prolog} if prolog else {}
    lines |= {"Epilog": epilog} if epilog else {}
    lines |= {"PrologSlurmctld": wanted["started"]} if wanted.get("started") else {}
    lines |= {"EpilogSlurmctld": wanted["ended"]} if wanted.get("ended") else {}
    return lines | ({"PrologEpilogTimeout": 120, "BatchStartTimeout": 150} if prolog or epilog else {})
