"""The short validation of a batch: what each of its nodes shows by itself, held against the site's accepted run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from toolkit import acceptance
from toolkit.inventory import Site
from toolkit.node import accept
from toolkit.validate.planned import PlannedRun
from validation.model import Topology, VerdictDoc
from validation.rules.criterion import Criterion
from validation.verdict.addendum import faults_of

SUITES = ("preflight",)
"""Minutes at most, and of each node alone: nothing of other nodes is disturbed."""


def planned(site: Site, inventory: Path, accepted: Path, names: Sequence[str], release: str) -> PlannedRun:
    """What is measured of the batch; its nodes are to have that release, whatever the inventory still says."""
    nodes = tuple(
        node.model_copy(update={"stack": {**node.stack, "stack_release": release}}) if node.name in names else node
        for node in site.topology.nodes
    )
    site = site._replace(topology=site.topology.model_copy(update={"nodes": nodes}))
    first, *others = (node for node in nodes if node.name in names)
    return accept.plan_for(site, inventory, accepted, first, others, SUITES)


def held(
    asked: PlannedRun, accepted: Path, runs_dir: Path, earlier: Path | None, begun: Callable[[Path], object]
) -> tuple[Path, tuple[str, ...]]:
    """The run, and why it does not hold what the site was accepted with; one that was interrupted goes on."""
    run_dir = accept.measure_node(asked, runs_dir, earlier, begun)
    from validation.report.documents import read_run  # only here: statistics and templates are slow to load

    before = acceptance.standing(accepted)
    catalogue = shown(read_run(run_dir).catalogue, asked.topology, before)
    return run_dir, faults_of(before, acceptance.standing(run_dir), catalogue, SUITES)


def shown(catalogue: Mapping[str, Criterion], topology: Topology, accepted: VerdictDoc) -> dict[str, Criterion]:
    """The criteria that these nodes can show: those of pairs, groups and the site need a second node with a port, and
    what the accepted run judged of other nodes alone, as GPUs beside a head without one, is not theirs."""
    several = sum(bool(node.ports) for node in topology.nodes) > 1
    names = {node.name for node in topology.nodes}
    about = {c.id: [{end.node for end in j.about.ends} for j in c.judgements] for c in accepted.criteria}
    others = {key for key, judged in about.items() if judged and not any(not ends or ends & names for ends in judged)}
    return {
        key: one for key, one in catalogue.items() if (several or one.scope in ("node", "port")) and key not in others
    }
