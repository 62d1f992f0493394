"""Makes the plan: role preflight compares each node's record with the wanted release, Slurm says what runs there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from toolkit.deploy.site_state import SiteState
from toolkit.deploy.watch import DeployWatch
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.inventory import declared
from toolkit.lease.pool import is_lease
from toolkit.node import playbooks
from toolkit.node.checks import short
from toolkit.node.drain import drained_by_upgrade
from toolkit.node.head import Head
from toolkit.upgrade.plan import (
    NodePlan,
    Observed,
    Plan,
    Verb,
    batched,
    known_release,
    refuse_what_stays,
)  # fmt: skip
from toolkit.upgrade.state import Kept, State
from validation.model import Topology

BATCH = "25%"
"""`reboot_batch` where the inventory has none (playbooks/reboot.yml)."""


def wanted(nodes: Sequence[NodePlan], back: bool = False) -> list[str]:
    """What site.yml and preflight get: the release of each node by name, and the versions that it goes back to."""
    data: dict[str, Any] = {"stack_releases": {one.node: one.release if back else one.to for one in nodes}}
    if back:
        data["stack_pins"] = {one.node: one.pins for one in nodes if one.pins}
    return ["-e", json.dumps(data)]


def plan_upgrade(
    inventory: Path, topology: Topology, to: str, limit: str | None, head: Head, also: Sequence[str] = ()
) -> Plan:
    """The plan of an upgrade. `also`: nodes that are deployed whatever their record says, since what a rollback that
    was cut off did there is not in it. UsageFault for a node that is unfit for the release, or that has no record."""
    known_release(to)
    watch = _preflight(inventory, limit, ["-e", json.dumps({"stack_release": to})])
    nodes = _asked(_observed(watch), topology, inventory, head)
    moving = [one for one in nodes if one.moves or one.node in also]
    if any(one.node != head.node.name for one in moving) and head.node.name not in {one.node for one in nodes}:
        raise UsageFault(
            f"--limit leaves out {head.node.name}, whose release nobody looked at: the head is upgraded first, since "
            f"Slurm's controller must not be older than its nodes; add it: --limit {head.node.name},..."
        )
    return _plan("upgrade", to, nodes, moving, inventory, head, {})


def plan_rollback(inventory: Path, topology: Topology, state: State, limit: str | None, head: Head) -> Plan:
    """The plan of a rollback of what `state` has changed. UsageFault for what cannot go back."""
    before = [state.of(name) for name in dict.fromkeys(state.touched)]
    if not before:
        raise UsageFault(f"the {state.verb} to {state.to} has changed no node yet; nothing to take back")
    for release in {one.release for one in before}:
        known_release(release)
    watch = _preflight(inventory, limit or ",".join(one.node for one in before), wanted(before, back=True))
    found = {name: seen for name, seen in _observed(watch).items() if name in {one.node for one in before}}
    chosen = [one for one in before if one.node in found]
    if not chosen:
        raise UsageFault(f"--limit {limit}: no node that the upgrade to {state.to} has changed")
    refuse_what_stays(chosen, {one.node: one.changes for one in chosen})
    nodes = _asked(found, topology, inventory, head)
    # All of them: a deployment that was cut off has changed packages and not the record.
    return _plan(
        "rollback", chosen[0].release, nodes, nodes, inventory, head, {one.node: one.release for one in before}
    )


def _plan(
    verb: Verb,
    to: str,
    nodes: Sequence[NodePlan],
    moving: Sequence[NodePlan],
    inventory: Path,
    head: Head,
    earlier: Mapping[str, str],
) -> Plan:
    spec = declared(inventory, head.node.name, "reboot_batch")
    names, most = [one.node for one in moving], BATCH if spec in (None, "") else spec
    batches = batched(names, head.node.name, most, verb, lambda name: earlier.get(name, to))
    batch_s, source = expected_s(inventory)
    return Plan(verb=verb, to=to, nodes=tuple(nodes), batches=batches, batch_s=batch_s, estimated_from=source)


def expected_s(inventory: Path) -> tuple[float | None, str]:
    """How long a batch takes, and from which run that is known."""
    last = Kept(inventory).read_last()
    took = [batch.took_s for batch in last.batches if batch.took_s] if last is not None else []
    if last is not None and took:
        return sum(took) / len(took), f"the mean of {len(took)} batches of the upgrade of {last.began[:10]}"
    run = SiteState(inventory).read_last(check=False)
    if run is not None:
        return run.total_s, "this site's last deployment; reboot and validation come on top"
    return None, ""


def _preflight(inventory: Path, limit: str | None, arguments: Sequence[str]) -> DeployWatch:
    """The checks of preflight as in the run: with consent to a reboot, and without that for running jobs, which are
    waited for before anything is changed."""
    known = [*arguments, "-e", json.dumps({"preflight_change_under_jobs": True, "reboot": "if_needed"})]
    watch, end, log = playbooks.played(playbooks.PREFLIGHT, inventory, limit, known)
    if end.exit_code == Exit.INTERRUPTED:
        raise KeyboardInterrupt
    if end.exit_code != Exit.OK:
        for name in watch.unfit:
            for reason in watch.nodes[name].unfit:
                click.echo(f"{name}  UNFIT: {reason}", err=True)
        for line in () if watch.unfit else end.lines:
            click.echo(line.whole, err=True)
        names = ", ".join(watch.unfit)
        unfit = f"{names} cannot be provisioned with that release; correct that, or leave it out by --limit"
        raise UsageFault(
            f"{end.error or (unfit if names else 'the nodes could not be read')}; nothing was changed; log: {log}"
        )
    return watch


def _observed(watch: DeployWatch) -> dict[str, Observed]:
    found = {}
    for name, node in sorted(watch.nodes.items()):
        try:
            found[name] = Observed.model_validate(node.versions)
        except ValidationError as fault:
            raise UsageFault(
                f"{name}: role preflight said nothing of its versions: {fault.errors()[0]['msg']}"
            ) from None
        if not found[name].release or not found[name].recorded:
            raise UsageFault(
                f"{name} has no record of the versions that it was provisioned with; deploy it first: toolkit deploy "
                f"--limit {name}, or leave it out by --limit"
            )
    return found


def _asked(found: Mapping[str, Observed], topology: Topology, inventory: Path, head: Head) -> list[NodePlan]:
    """With what Slurm knows of each node; a site without a scheduler has nothing to drain."""
    policy = declared(inventory, head.node.name, "slurm_pool")
    without = isinstance(policy, Mapping) and policy.get("scheduler", "slurm") != "slurm"
    pool = {} if without else head.nodes()
    nodes = []
    for name, seen in found.items():
        there = pool.get(short(name))
        kept = there.reason if there is not None and not there.serves and not drained_by_upgrade(there.reason) else ""
        if there is not None and not there.serves and not there.reason:
            kept = there.state.lower()
        jobs = [] if there is None else head.jobs_on(short(name))
        words = tuple(f"{'lease' if is_lease(job) else 'job'} {job.lease} of {job.user}" for job in jobs)
        nodes.append(
            NodePlan(
                node=name, release=seen.release, to=seen.to, changes=seen.changes, jobs=words, pool=there is not None,
                kept=kept, waits=seen.waits,
            )
        )  # fmt: skip
    return nodes
