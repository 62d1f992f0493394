"""What a cluster that the pool joins lacks, asked by ssh on the head and the GPU servers: `toolkit pool check`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from toolkit.errors import UsageFault
from toolkit.inventory import declared, read_inventory
from toolkit.joined.cluster import QUESTIONS, Answer, Cluster, read_cluster, refusals
from toolkit.joined.missing import FOLDER, Missing, Wanted, missing
from toolkit.node.head import Head, last_words, run_on
from validation.model import Node, Topology
from validation.model.base import explain

#: Where role slurm writes what leases need of the cluster.
WANTED = f"{FOLDER}/join.json"
#: How it is written: by the playbook of that page.
_WRITE = "section 2 of docs/how-to/join-slurm.md"
#: Texts of the files that match the patterns it is given, as JSON: what a node has of Prolog and Epilog.
_READ = (
    "import glob, json, sys; "
    "print(json.dumps({p: open(p, errors='replace').read() for one in sys.argv[1:] for p in glob.glob(one)}))"
)


@dataclass(frozen=True)
class Joined:
    """The cluster as it is, and what it lacks, what leases cannot do without first."""

    inventory: Path
    head: str
    cluster: str
    release: str
    missing: tuple[Missing, ...]


def joins(inventory: Path, topology: Topology) -> bool:
    """Whether the inventory's pool joins a Slurm of the site's own."""
    policy = declared(inventory, topology.nodes[0].name, "slurm_pool")
    return isinstance(policy, dict) and bool(policy.get("join"))


def refuse_lacking(inventory: Path, topology: Topology) -> None:
    """UsageFault where the pool joins a cluster in which leases cannot work yet, with what is to be added there."""
    if not joins(inventory, topology):
        return
    found = check_joined(inventory)
    needed = [one.words for one in found.missing if one.needed]
    if needed:
        raise UsageFault(
            f"leases cannot work in cluster {found.cluster} yet, for whose administrator: {'; '.join(needed)} "
            "(toolkit pool check, docs/how-to/join-slurm.md)"
        )


def _wanted(head: Head) -> Wanted:
    done = head.run(["cat", WANTED])
    if done.returncode != 0:
        raise UsageFault(
            f"{head.node.name} has no {WANTED} yet, by which the cluster is judged; it changes nothing of that cluster "
            f"to write it, as {_WRITE} shows"
        )
    try:
        return Wanted.model_validate_json(done.stdout)
    except ValidationError as fault:
        raise UsageFault(
            f"{head.node.name}: {WANTED}: {explain(fault)[1]}; write it again, as {_WRITE} shows"
        ) from None


def _answer(head: Head, words: tuple[str, ...]) -> Answer:
    done = head.run(words)
    if done.returncode != 0:
        return Answer("", last_words(done.stderr))
    return Answer(done.stdout.decode("utf-8", "backslashreplace"))


def _scripts(node: Node, cluster: Cluster) -> dict[str, str]:
    done = run_on(node, ["python3", "-I", "-c", _READ, *cluster.scripts])
    try:
        found = json.loads(done.stdout)
    except ValueError:
        raise UsageFault(f"{node.name}: its Prolog cannot be read: {last_words(done.stderr)}") from None
    return {str(path): str(text) for path, text in found.items()}


def check_joined(inventory: Path) -> Joined:
    """What the cluster lacks now. UsageFault where the pool joins none, another answers, or it is of a release that
    leases are not known to work with."""
    topology = read_inventory(inventory)
    if not joins(inventory, topology):
        raise UsageFault(
            "name a file of policies to compare; without one, a cluster is checked that slurm_pool.join names"
        )
    head = Head(topology)
    wanted = _wanted(head)
    cluster = read_cluster({name: _answer(head, words) for name, words in QUESTIONS.items()})
    if refused := refusals(cluster, wanted.join):
        raise UsageFault(f"{head.node.name}: {'; '.join(refused)}")
    names = {server.name for server in wanted.servers}
    servers = [node for node in topology.nodes if node.name.partition(".")[0] in names]
    scripts = {node.name.partition(".")[0]: _scripts(node, cluster) for node in servers}
    lacks = tuple(missing(cluster, wanted, scripts))
    return Joined(inventory, head.node.name, cluster.name, cluster.release, lacks)
