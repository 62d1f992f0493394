"""What is refused before anything is changed: a node, a pool, an accepted run or peers that cannot be used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolkit import acceptance, rundir
from toolkit.errors import UsageFault
from toolkit.inventory import declared
from toolkit.inventory_lines import locate
from toolkit.lease.jobs.slurm_text import PoolNode, SlurmJob
from toolkit.node.drain import read_drain
from toolkit.node.head import ENGINE_MARKS, Head
from toolkit.pool_policy import POOL_FILE, Pool, check_pool, load_pool
from validation.base.counting import number_of
from validation.model import Node, Topology
from validation.model.load import ConfigError
from validation.plan.suites import DEFAULT
from validation.verdict.addendum import ADDENDUM, SUITES

NEEDED = tuple(suite for suite in DEFAULT if suite in SUITES)
"""Of the suites that sites are accepted by, those that a node shows too."""
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def node_of(topology: Topology, inventory: Path, name: str) -> Node:
    """The GPU server of that name; UsageFault where the inventory has none."""
    found = next((node for node in topology.nodes if node.name == name), None)
    if found is None:
        lab = f" (in a lab: toolkit lab up --add {name})" if topology.lab_link is not None else ""
        raise UsageFault(f"{name} is not in {inventory}; add it to group gpu_servers there first{lab}")
    if "gpu_servers" not in found.groups:
        raise UsageFault(
            f"{name} is no GPU server ({', '.join(found.groups)}), and only those are in the pool; others come by: "
            f"toolkit deploy -i {inventory} --limit {name}; and go by: toolkit teardown -i {inventory} --limit {name}"
        )
    return found


def refuse_head(node: Node, inventory: Path, verb: str) -> None:
    """UsageFault for the head, which may be a GPU server too: accounting, controller and what all others learn from are
    on it, and its machine cannot be taken away or exchanged under them."""
    if "heads" in node.groups:
        raise UsageFault(
            f"{node.name} is the head (group heads), so toolkit node {verb} would take Slurm and its accounting away "
            f"with it; nothing was changed. The whole site is taken back by: toolkit teardown -i {inventory}"
        )


def joinable(pool: Mapping[str, PoolNode], name: str, again: bool) -> None:
    """UsageFault for a node that serves already, or that somebody else has drained. `again`: it goes on, or is to be
    replaced."""
    there = pool.get(short(name))
    if there is None or again:
        return
    if there.serves:
        raise UsageFault(f"{name} is in the pool and serves; nothing to add (replace takes it out first)")
    if read_drain(there.reason) is None:
        raise UsageFault(
            f"{name} is in the pool already, {there.state.lower()}{f': {there.reason}' if there.reason else ''}; look "
            f"into that, or exchange it: toolkit node replace {name}"
        )


def _policy(topology: Topology, inventory: Path) -> Pool | None:
    """The pool's policies as role slurm gets them, wherever they stand in the inventory; None where it has none."""
    data = declared(inventory, topology.nodes[0].name, "slurm_pool")
    try:
        return check_pool(data) if data else None
    except ConfigError as fault:
        load_pool(inventory)  # the same with file and line, where they stand in the file for them
        raise ConfigError(f"{inventory}: {fault}") from None


def refuse_joined(topology: Topology, inventory: Path) -> None:
    """UsageFault for a pool in a Slurm of the site's own: its nodes are its administrator's to drain and to add."""
    policy = declared(inventory, topology.nodes[0].name, "slurm_pool")
    join = policy.get("join") if isinstance(policy, Mapping) else None
    if join:
        cluster = join.get("cluster", "") if isinstance(join, Mapping) else ""
        raise UsageFault(
            f"the pool's nodes are of cluster {cluster}, whose administrator adds, drains and resumes them; with that "
            f"done: toolkit deploy -i {inventory}, or toolkit teardown -i {inventory} --limit NODE "
            "(docs/how-to/join-slurm.md)"
        )


def removable(topology: Topology, inventory: Path, pool: Mapping[str, PoolNode], name: str) -> None:
    """UsageFault for a node without which the pool would be none, or that the pool's policy needs."""
    others = [node.name for node in topology.nodes if "gpu_servers" in node.groups and node.name != name]
    if not others:
        raise UsageFault(f"{name} is the last GPU server; there is no pool without it: toolkit teardown -i {inventory}")
    policy = _policy(topology, inventory)
    if policy is None:
        return
    left = [pool[short(other)] for other in others if short(other) in pool]
    mine = pool.get(short(name))
    for title, kept in policy.reservations.items():
        words = ""
        same = [node for node in left if node.gpu_class == kept.gpu_class]
        if not isinstance(kept.nodes, int) and name in kept.nodes:
            words = f"names {name}"
        elif isinstance(kept.nodes, int) and mine is not None and mine.gpu_class == kept.gpu_class:
            words = (
                f"wants {number_of(kept.nodes, 'server')} of class {kept.gpu_class}" if len(same) < kept.nodes else ""
            )
        if words:
            where = locate(inventory, None, ("slurm_pool", "reservations", title)) or str(POOL_FILE)
            raise UsageFault(f"{where}: reservation {title} {words}; change the policy first, then remove {name}")
    classes = {*policy.classes, *(c for users in policy.users.values() for c in users.classes or ())}
    if mine is not None and mine.gpu_class in classes and not any(n.gpu_class == mine.gpu_class for n in left):
        where = locate(inventory, None, ("slurm_pool",)) or str(POOL_FILE)
        raise UsageFault(
            f"{where}: class {mine.gpu_class} has no server but {name}; take the class out of the policy first"
        )


def engine_stays(inventory: Path, head: Head) -> None:
    """UsageFault where the inventory names another engine than the site has, and leases run: all others would get it
    as they learn of a node, and programs whose engine is exchanged lose their leases."""
    for variable in ENGINE_MARKS:
        wanted, there = declared(inventory, head.node.name, variable), head.engine(variable)
        if not isinstance(wanted, str) or not _SHA256.fullmatch(wanted) or not there or wanted.lower() == there:
            continue
        if leases := head.leases():
            where = locate(inventory, None, (variable,)) or str(inventory)
            raise UsageFault(
                f"{where}: {variable} is {wanted[:12]}…, and the site has the engine {there[:12]}…; to "
                f"exchange it would end {leases} lease{'' if leases == 1 else 's'}. Run toolkit deploy when no lease "
                "runs, or name the engine that is there"
            )


def short(name: str) -> str:
    """The name by which Slurm knows a host."""
    return name.split(".", 1)[0]


def accepted_run(runs_dir: Path, named: str | None, topology: Topology, node: str) -> Path:
    """The site's accepted run: the one that was named, else the newest of this site whose criteria all passed, and
    that measured what every node is accepted by (NEEDED): one of a single suite would let a node in unmeasured.

    UsageFault where there is none; ConfigError where its verdict does not follow from its files.
    """
    fitting = (run for run in reversed(rundir.runs(runs_dir)) if _fits(run, topology))
    found = next(fitting, None) if named is None else rundir.find(runs_dir, named)
    if found is None:
        raise UsageFault(
            f"{runs_dir}: no accepted run of site {topology.site}, which {node} could be held against, with suites "
            f"{' and '.join(NEEDED)}; name one by --accepted, or make one: toolkit validate"
        )
    verdict = acceptance.standing(found)
    if verdict.exit_code != 0:
        raise UsageFault(f"{found}: {verdict.line}; a node is held against a run that was accepted")
    _, before, _ = rundir.asked(found)
    if (before.lab_link is None) != (topology.lab_link is None):
        raise UsageFault(f"{found}: is a {'rehearsal' if before.lab_link else 'run on hardware'}, and this site is not")
    return found


def _fits(run: Path, topology: Topology) -> bool:
    try:
        info, _, _ = rundir.asked(run)
        fits = info.site == topology.site and set(NEEDED) <= set(info.suites) and not (run / ADDENDUM).exists()
        return fits and acceptance.standing(run).exit_code == 0
    except (ConfigError, UsageFault):
        return False


def peers_of(topology: Topology, name: str, asked: Sequence[str], jobs: Mapping[str, Sequence[SlurmJob]]) -> list[Node]:
    """The nodes that a node is measured with: those asked for, else up to two with fabric ports that are no GPU
    servers, else one GPU server where nothing runs. `jobs`: what runs on each GPU server.

    UsageFault where there are none: measuring would disturb who works there.
    """
    by_name = {node.name: node for node in topology.nodes if node.ports}
    if asked:
        for peer in asked:
            if peer == name or peer not in by_name:
                raise UsageFault(f"--peers {peer}: not another node of this inventory with a fabric port")
            if jobs.get(peer):
                raise UsageFault(
                    f"--peers {peer}: {number_of(len(jobs[peer]), 'lease')} or jobs run there; measuring disturbs them"
                )
        return [by_name[peer] for peer in asked]
    plain = [node for node in by_name.values() if "gpu_servers" not in node.groups]
    if plain:
        return plain[:2]
    idle = [node for node in by_name.values() if node.name != name and not jobs.get(node.name)]
    if not idle:
        raise UsageFault(
            f"no peer for {name}: leases run on every other GPU server, and no other node has a fabric port; try again "
            "when one is free, or name one by --peers"
        )
    return idle[:1]
