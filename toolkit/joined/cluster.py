"""The cluster as its own commands describe it. They are asked, and nothing here changes a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from toolkit.errors import UsageFault
from toolkit.lease.jobs.slurm_lists import expand_hosts
from toolkit.lease.jobs.slurm_text import PoolNode, parse_nodes
from toolkit.pool_policy import Join

#: What is asked on the head; a question of accounting may fail, where a site has none or lets nobody read it.
QUESTIONS: dict[str, tuple[str, ...]] = {
    "config": ("scontrol", "show", "config"),
    "nodes": ("scontrol", "show", "node"),
    "partitions": ("scontrol", "--oneliner", "show", "partition"),
    "accounts": ("sacctmgr", "--noheader", "--parsable2", "show", "account", "format=Account"),
    "qos": (
        "sacctmgr", "--noheader", "--parsable2", "show", "qos",
        "format=Name,Priority,GrpTRES,MaxTRESPU,MaxSubmitJobsPU,MaxWall",
    ),
}  # fmt: skip
OF_ACCOUNTING = ("accounts", "qos")
#: Releases that leases work with, by their first two numbers: run by us; those whose own answers are read by tests
#: (Debian 13's; leases ran in a pool of the toolkit's own, in a lab); by Slurm's documents and sources.
RUN, READ, BY_DOCUMENTS = ("22.05",), ("24.11",), ("23.02", "23.11", "24.05", "25.05", "25.11")
_PROGRAM = re.compile(r"(Prolog|Epilog)(\[\d+\])?")
_NONE = ("", "(null)", "N/A")


@dataclass(frozen=True)
class Answer:
    """What a command printed, and why it failed, "" where it did not."""

    text: str
    failed: str = ""


@dataclass(frozen=True)
class Cluster:
    """accounting: QOS with their limits by name, None where they cannot be read (`unread` has the reason)."""

    config: Mapping[str, str]
    nodes: Mapping[str, PoolNode]
    partitions: Mapping[str, Mapping[str, str]]
    accounts: frozenset[str]
    qos: Mapping[str, Mapping[str, str]] | None
    unread: str = ""

    @property
    def name(self) -> str:
        """Its ClusterName."""
        return self.config.get("ClusterName", "")

    @property
    def release(self) -> str:
        """The first two numbers of its version: 22.05."""
        found = re.match(r"\d+\.\d+", self.config.get("SLURM_VERSION", ""))
        return found[0] if found else ""

    @property
    def controllers(self) -> tuple[str, ...]:
        """Names and addresses of the hosts of slurmctld."""
        found = []
        for key, value in self.config.items():
            if re.fullmatch(r"SlurmctldHost(\[\d+\])?", key):
                found += [one for one in re.split(r"[(),\s]+", value) if one]
        return tuple(found)

    def words(self, key: str) -> set[str]:
        """The words of a list such as GresTypes, in small letters."""
        value = self.config.get(key, "")
        return set() if value in _NONE else {word.strip().lower() for word in value.split(",") if word.strip()}

    def programs(self, kind: str) -> tuple[str, ...]:
        """Paths or patterns of its Prolog or Epilog. From 24.05 on there may be several, as Prolog[0]."""
        found = []
        for key, value in self.config.items():
            match = _PROGRAM.fullmatch(key)
            if match and match[1] == kind and value not in _NONE:
                found.append(value)
        return tuple(found)

    @property
    def scripts(self) -> tuple[str, ...]:
        """Where a node has the programs of Prolog and Epilog, patterns among them. slurmd takes a relative name beside
        slurm.conf, or among what the controller gave it."""
        found: list[str] = []
        for one in (*self.programs("Prolog"), *self.programs("Epilog")):
            found += [one] if one.startswith("/") else [f"/etc/slurm/{one}", f"/run/slurm/conf/{one}"]
        return tuple(dict.fromkeys(found))

    @property
    def modules(self) -> tuple[str, ...]:
        """Folders of its plug-ins."""
        return tuple(one for one in self.config.get("PluginDir", "").split(":") if one.startswith("/"))

    def members(self, partition: str) -> tuple[str, ...]:
        """Nodes of one of its partitions."""
        return expand_hosts(self.partitions.get(partition, {}).get("Nodes", ""))


def _config(text: str) -> dict[str, str]:
    found = (re.match(r"(\S+)\s+=\s?(.*)$", line) for line in text.splitlines())
    return {match[1]: match[2].strip() for match in found if match}


def _rows(text: str, columns: str) -> list[dict[str, str]]:
    names = columns.split(",")
    rows = [line.split("|") for line in text.splitlines() if line.strip()]
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def read_cluster(answers: Mapping[str, Answer]) -> Cluster:
    """Of the answers to QUESTIONS. UsageFault where the cluster itself does not answer."""
    for name in ("config", "nodes", "partitions"):
        if answers[name].failed:
            raise UsageFault(f"{' '.join(QUESTIONS[name])}: {answers[name].failed}")
    partitions = [
        dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", line)) for line in answers["partitions"].text.splitlines() if line
    ]
    unread = next((answers[name].failed for name in OF_ACCOUNTING if answers[name].failed), "")
    columns = QUESTIONS["qos"][-1].removeprefix("format=")
    return Cluster(
        config=_config(answers["config"].text),
        nodes={node.name: node for node in parse_nodes(answers["nodes"].text)},
        partitions={one["PartitionName"]: one for one in partitions if "PartitionName" in one},
        accounts=frozenset(row["Account"] for row in _rows(answers["accounts"].text, "Account")),
        qos=None if unread else {row["Name"]: row for row in _rows(answers["qos"].text, columns)},
        unread=unread,
    )


def of_config(answer: Answer) -> Cluster:
    """What its configuration alone says. UsageFault where it does not answer."""
    return read_cluster({**dict.fromkeys(QUESTIONS, Answer("")), "config": answer})


def _host(name: str) -> str:
    """A host's short name, or its whole address."""
    return name if re.fullmatch(r"[\d.]+|.*:.*", name) else name.split(".")[0].lower()


def refusals(cluster: Cluster, join: Join) -> list[str]:
    """Why this cluster is not joined: it is another than was meant, or of a release that leases are not known to work
    with."""
    found = []
    if cluster.name != join.cluster:
        found.append(f"the cluster here is {cluster.name or '(unnamed)'}, slurm_pool.join names {join.cluster}")
    elif not {_host(one) for one in cluster.controllers} & {_host(one) for one in join.controllers}:
        there = ", ".join(dict.fromkeys(cluster.controllers)) or "none"
        found.append(
            f"cluster {cluster.name} has the controllers {there}, slurm_pool.join names {', '.join(join.controllers)}"
        )
    if cluster.release not in (*RUN, *READ, *BY_DOCUMENTS):
        version = cluster.config.get("SLURM_VERSION", "an unknown release")
        found.append(
            f"cluster {cluster.name} runs Slurm {version}; leases are known to work with {', '.join(RUN)} "
            f"(run by us), {', '.join(READ)} (its answers recorded) and, by Slurm's documents, "
            f"{', '.join(BY_DOCUMENTS)}"
        )
    return found
