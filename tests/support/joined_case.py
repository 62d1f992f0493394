"""A Slurm of the site's own for tests: the answers of its commands, as text, and what leases need of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.lease_texts import node_text
from toolkit.joined.cluster import QUESTIONS, Answer, Cluster, read_cluster
from toolkit.joined.missing import Wanted

JOIN: dict[str, Any] = {"cluster": "prod", "controllers": ["ctl01"], "partition": "lease"}
HOOKS = {
    "Prolog": ("/usr/lib/elastic-ai/lease-server/bin/prolog",),
    "Epilog": ("/usr/lib/elastic-ai/lease-server/bin/epilog",),
}
CONFIG: dict[str, str] = {
    "AccountingStorageEnforce": "associations,limits,qos",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "BatchStartTimeout": "10 sec",
    "ClusterName": "prod",
    "Epilog": "/etc/slurm/epilog.sh",
    "GresTypes": "gpu,shard",
    "PluginDir": "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "PrivateData": "none",
    "Prolog": "/etc/slurm/prolog.sh",
    "PrologEpilogTimeout": "65534",
    "PrologFlags": "Alloc,Contain",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_VERSION": "22.05.8",
    "SelectType": "select/cons_tres",
    "SlurmctldHost[0]": "ctl01(192.0.2.7)",
}
PARTITIONS = (
    "PartitionName=cpu AllowGroups=ALL AllowQos=ALL OverSubscribe=NO Nodes=cpu[1-3] State=UP MaxTime=UNLIMITED\n"
    "PartitionName=lease AllowGroups=ALL AllowQos=ALL OverSubscribe=NO Nodes=gpu[1-2] State=UP MaxTime=08:00:00\n"
)
NODES = "\n".join(node_text(name, "IDLE", "gpu:v100:4,shard:v100:20160") for name in ("gpu1", "gpu2")) + "\n"
SCRIPT = "#!/bin/sh\n[ ! -x {0} ] || {0}\n"
SCRIPTS: Mapping[str, Mapping[str, str]] = {
    name: {
        "/etc/slurm/prolog.sh": SCRIPT.format(HOOKS["Prolog"][0]),
        "/etc/slurm/epilog.sh": SCRIPT.format(HOOKS["Epilog"][0]),
    }
    for name in ("gpu1", "gpu2")
}


def config_text(**changed: str | None) -> str:
    """`scontrol show config`, with some lines changed or, by None, left out."""
    lines = {**CONFIG, **changed}
    return "Configuration data as of 2026-11-27T15:00:00\n" + "".join(
        f"{key:<23} = {value}\n" for key, value in lines.items() if value is not None
    )


def answers(**given: Any) -> dict[str, Answer]:
    """To all questions: text or Answer by name; `config` as a mapping of lines that are changed."""
    config = given.pop("config", {})
    texts = {
        "config": config_text(**config), "nodes": NODES, "partitions": PARTITIONS, "accounts": "root\nresearch\n",
        "qos": "normal|0||||\nresearch|100|billing=40320|billing=5040|500|1-00:00:00\n",
    } | given  # fmt: skip
    return {name: one if isinstance(one, Answer) else Answer(one) for name, one in texts.items() if name in QUESTIONS}


def cluster(**given: Any) -> Cluster:
    """The cluster of these answers."""
    return read_cluster(answers(**given))


def wanted(**changed: Any) -> Wanted:
    """What leases need of it: two servers of four GPUs."""
    servers = [
        {
            "name": name, "gpus": 4, "gres": "gpu:v100:4,shard:20160",
            "node_line": f"NodeName={name} NodeAddr=a CPUs=2 Gres=gpu:v100:4,shard:20160 State=UNKNOWN",
        }
        for name in ("gpu1", "gpu2")
    ]  # fmt: skip
    return Wanted.model_validate({"join": JOIN, "shards": 5040, "servers": servers, "hooks": HOOKS, **changed})
