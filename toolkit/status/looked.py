"""Everything that `toolkit status` knows of a site: what its nodes say, all asked at once, and what is kept here."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolkit import rundir, runs
from toolkit.deploy.site_state import how_built
from toolkit.handover import punch_file
from toolkit.incident import state as incident_state
from toolkit.incident.state import Incident
from toolkit.lease.jobs.slurm_json import parse_jobs
from toolkit.lease.jobs.slurm_text import PoolNode, SlurmJob, parse_nodes
from toolkit.lease.pool import is_lease
from toolkit.node import sent
from toolkit.node.head import last_words, run_on
from toolkit.status import there
from toolkit.upgrade import state as upgrade_state
from validation.base import noise
from validation.base.counting import number_of
from validation.base.errors import ToolkitError
from validation.model import Node, Topology
from validation.model.built import Deployment
from validation.rules.punch import Point
from validation.run.catalogue import load_criteria
from validation.signing.record import signed_as
from validation.signing.statement import Statement

AT_ONCE = 64
NODE_S = 30.0
"""For one node's answer; a node that hangs costs no more. Project default."""
_ABSENT = 127
"""How a shell and env end where there is no such command."""
Say = Callable[[str], None]
T = TypeVar("T")
_Text = Annotated[str, Field(max_length=1000)]


class _Said(BaseModel):
    """Of a node, which may say anything: what is not of this form is not taken."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Kept(_Said):
    """Things that were deployed, and those of them that are others now. `read`: whether the node could tell."""

    of: int = Field(ge=0)
    read: bool = True
    odd: tuple[_Text, ...] = ()
    more: int = Field(default=0, ge=0)

    @property
    def count(self) -> int:
        """How many are others."""
        return len(self.odd) + self.more


class Alert(_Said):
    """One that fires in Prometheus."""

    name: _Text
    severity: _Text
    where: _Text
    words: _Text


class Notifications(_Said):
    """Whom alerts are told. site: Alertmanagers of the site; told, follow, silenced: of the alerts that the head's
    Alertmanager has, None where it has none of its own; fault: why it does not answer."""

    receivers: int = Field(ge=0)
    site: tuple[_Text, ...] = ()
    told: int | None = Field(default=None, ge=0)
    follow: int = Field(default=0, ge=0)
    silenced: int = Field(default=0, ge=0)
    fault: _Text = ""


class NodeSaid(_Said):
    """What a node says of itself; the last five are the head's alone."""

    recorded: bool
    release: _Text
    packages: Kept
    files: Kept
    waits: tuple[_Text, ...] = ()
    failed_units: tuple[_Text, ...] | None = None
    free: float = Field(ge=0, le=1)
    certificates: dict[str, float | None] = {}
    rotations: tuple[_Text, ...] = ()
    backup: dict[str, float] | None = None
    alerts: tuple[Alert, ...] | _Text | None = None
    notifications: Notifications | None = None


@dataclass(frozen=True)
class PoolSaid:
    """What the controller has."""

    nodes: tuple[PoolNode, ...]
    jobs: tuple[SlurmJob, ...]

    @property
    def leases(self) -> int:
        """Those that run; an array's parts are one."""
        live = (job for job in self.jobs if is_lease(job) and not job.ended and job.state != "PENDING")
        return len({job.lease for job in live})

    @property
    def waiting(self) -> int:
        """Leases and jobs that wait."""
        return len({job.lease if is_lease(job) else job.id for job in self.jobs if job.state == "PENDING"})


@dataclass(frozen=True)
class KeptHere:
    """What this machine has of the site. Text instead of a value: why it cannot be read."""

    deployed: Deployment | None = None
    run: runs.Row | None = None
    paper: Statement | None = None
    points: tuple[Point, ...] | str = ()
    upgrade: str = ""
    incidents: tuple[Incident, ...] | str = ()


@dataclass(frozen=True)
class Looked:
    """All of it. A node's text: why it says nothing. pool: None where the site has no scheduler of ours; text: why it
    says nothing."""

    site: str
    when: datetime
    nodes: dict[str, NodeSaid | str]
    head: str = ""
    servers: tuple[str, ...] = ()
    wanted: dict[str, str] = field(default_factory=dict)
    pool: PoolSaid | str | None = None
    here: KeptHere = KeptHere()

    @property
    def on_head(self) -> NodeSaid | str | None:
        """What the head says; None where the site has none."""
        return self.nodes.get(self.head)


def ask_node(node: Node, head: bool) -> NodeSaid | str:
    """What a node says, or why it does not."""
    try:
        said = sent.ask(node, there.__file__, {"head": head}, NODE_S)
        return said if isinstance(said, str) else NodeSaid.model_validate(said)
    except ValidationError as fault:
        first = fault.errors()[0]
        return f"its answer cannot be used: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (ToolkitError, OSError) as fault:
        return noise.printable(str(fault))


def ask_pool(head: Node) -> PoolSaid | str | None:
    """What Slurm's controller says; None where the head has no Slurm."""
    try:
        nodes = run_on(head, ["scontrol", "show", "node"], NODE_S)
        if nodes.returncode == _ABSENT:
            return None
        jobs = run_on(head, ["squeue", "--json", "--all", "--states=all"], NODE_S)
        for done in (nodes, jobs):
            if done.returncode != 0:
                return f"the scheduler does not answer: {last_words(done.stderr)}"
        return PoolSaid(tuple(parse_nodes(nodes.stdout.decode())), tuple(parse_jobs(jobs.stdout)))
    except (ToolkitError, ValueError, OSError, RecursionError) as fault:
        return noise.printable(str(fault))


def kept_here(inventory: Path, topology: Topology, runs_dir: Path) -> KeptHere:
    """Deployments, runs, papers, punch list, and what was begun and not finished."""
    built = [one for one in how_built(inventory, topology).deployments if not one.check]
    row, paper = _newest(runs_dir, topology.site)
    return KeptHere(
        deployed=built[-1] if built else None,
        run=row,
        paper=paper,
        points=_or_why(lambda: _points(inventory)),
        upgrade=_or_why(lambda: _upgrade(inventory)),
        incidents=_or_why(lambda: _incidents(inventory, topology)),
    )


def _or_why(read: Callable[[], T]) -> T | str:
    try:
        return read()
    except (ToolkitError, OSError) as fault:
        return f"cannot be read: {' '.join(str(fault).split())}"


def _points(inventory: Path) -> tuple[Point, ...]:
    path = punch_file.beside(inventory)
    if not os.path.lexists(path):
        return ()  # most sites have none, and all criteria are long to read
    return punch_file.points_of(path, [one.id for one in load_criteria()], punch_file.latest_day())


def _upgrade(inventory: Path) -> str:
    """Where an upgrade is that was begun and not finished; "" without one."""
    found = upgrade_state.Kept(inventory).read_open()
    return f"{found.verb} to {found.to}: {found.where()}" if found is not None else ""


def _incidents(inventory: Path, topology: Topology) -> tuple[Incident, ...]:
    kept = incident_state.Kept(inventory)
    found = (kept.read(node.name) for node in topology.nodes)
    return tuple(one for one in found if one is not None and one.step != "done")


def _newest(runs_dir: Path, site: str) -> tuple[runs.Row | None, Statement | None]:
    """The newest judged run of a site, and the statement of its newest signed one; signatures are not checked here."""
    judged: runs.Row | None = None
    for folder in reversed(rundir.runs(runs_dir)):
        row = runs.row(folder)
        if row.site != site or row.fault is not None:
            continue
        judged = judged or (row if row.sign_off is not None else None)
        if row.signed and (statements := signed_as(folder)):
            return judged, max(statements, key=lambda one: one.time)
    return judged, None


def look(inventory: Path, topology: Topology, runs_dir: Path, say: Say) -> Looked:
    """All nodes at once, the controller beside them, and what is kept here."""
    now = datetime.now(timezone.utc)
    head = next((node for node in topology.nodes if "heads" in node.groups), None)
    nodes: Sequence[Node] = topology.nodes
    with ThreadPoolExecutor(max(1, min(AT_ONCE, len(nodes) + 1))) as workers:
        pool = workers.submit(ask_pool, head) if head is not None else None
        asked = {workers.submit(ask_node, node, node is head): node.name for node in nodes}
        answers: dict[str, NodeSaid | str] = {}
        try:
            here = kept_here(inventory, topology, runs_dir)
            for done in as_completed(asked):
                answers[asked[done]] = done.result()
                say(f"reading the site, {len(answers)} of {number_of(len(nodes), 'node')} done")
            said = pool.result() if pool is not None else None
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)  # nobody waits for nodes that were not asked yet
            raise
    return Looked(
        site=topology.site,
        when=now,
        nodes={node.name: answers[node.name] for node in nodes},
        head=head.name if head is not None else "",
        servers=tuple(node.name for node in nodes if "gpu_servers" in node.groups),
        wanted={node.name: node.stack["stack_release"] for node in nodes if "stack_release" in node.stack},
        pool=said,
        here=here,
    )
