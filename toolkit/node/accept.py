"""A node's acceptance: a run of it and its peers, judged by today's criteria, held against the site's accepted run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import click

from toolkit import acceptance, prepare_signing, rundir
from toolkit.agreement import Agreement
from toolkit.inventory import Site
from toolkit.loudness import progress
from toolkit.validate.measuring import interrupted, measure, measured
from toolkit.validate.planned import PlannedRun
from validation.model import Node, Topology, VerdictDoc
from validation.model.load import load_json, read_source
from validation.plan.suites import make_plan
from validation.rules.fabric import LoadedFabric
from validation.run.catalogue import load_criteria, read_criteria
from validation.run.names import FABRIC
from validation.run.read import read
from validation.signing import MANIFEST, is_signed
from validation.verdict.addendum import ADDENDUM, SUITES, Addendum, facts_of, faults_of, figures_of, site_alone


def plan_for(
    site: Site, inventory: Path, accepted: Path, node: Node, peers: Sequence[Node], possible: Sequence[str] = SUITES
) -> PlannedRun:
    """What is measured: of the suites that are possible those of the accepted run, over the same fabric, with its
    options. Refuses what cannot be planned, before anything is changed."""
    run = read(accepted)
    names = {node.name, *(peer.name for peer in peers)}
    nodes = tuple(one for one in site.topology.nodes if one.name in names)
    topology = site.topology.model_copy(update={"nodes": nodes})
    record = site.record.model_copy(update={"hosts": tuple(h for h in site.record.hosts if h.name in names)})
    sources = read_criteria()
    criteria = load_criteria(sources)
    loaded = LoadedFabric(run.fabric, run.source(FABRIC), run.info.origins.get(FABRIC, "site"))
    suites = [suite for suite in possible if suite in run.info.suites]
    options = {key: value for key, value in run.info.options.items() if key in ("seconds", "latency_seconds", "quick")}
    plan = make_plan("plan", topology, loaded.fabric, criteria, suites or possible[:1], options)
    agreement = Agreement(None, "", (), {})
    return PlannedRun(inventory, topology, record, loaded, sources, agreement, None, plan, options, apart=True)


def measure_node(planned: PlannedRun, runs_dir: Path, earlier: Path | None, begun: Callable[[Path], object]) -> Path:
    """The judged run; one that was interrupted goes on. Ctrl-C ends the process, and what was measured is kept."""
    if earlier is None:
        run_dir = measured(planned, runs_dir, begun)
    else:
        run_dir = earlier
        if is_signed(run_dir):
            return run_dir
        with rundir.lock(run_dir):
            try:
                acceptance.go_on(run_dir, measure)
            except acceptance.Interrupted:
                interrupted(run_dir)
    with rundir.lock(run_dir):
        verdict = acceptance.judge_run(run_dir)
    click.echo(verdict.line, err=True)
    return run_dir


def conclude(
    verb: Literal["add", "replace"], run_dir: Path, accepted: Path, node: Node, peers: Sequence[Node]
) -> Addendum:
    """Hold the node's run against the accepted one and write the addendum into it; that of a signed run stands."""
    if is_signed(run_dir):
        return load_json(read_source(run_dir / ADDENDUM), Addendum)
    from validation.report.documents import read_run  # only here: statistics and templates are slow to load
    from validation.report.system import fact_texts

    old, new = read_run(accepted), read_run(run_dir)
    before, now = acceptance.standing(accepted), acceptance.standing(run_dir)
    group = _group(old.topology, node)
    faults = faults_of(before, now, new.catalogue, new.info.suites)
    manifest = accepted / MANIFEST
    found = Addendum(
        verb=verb,
        node=node.name,
        peers=tuple(peer.name for peer in peers),
        site=new.info.site,
        fabric=new.info.fabric,
        accepted_run=old.info.run,
        accepted_sign_off=before.sign_off,
        accepted_verdict_sha256=_sha256(accepted / "verdict.json"),
        accepted_manifest_sha256=_sha256(manifest) if manifest.exists() else None,
        run=new.info.run,
        suites=new.info.suites,
        not_repeated=_not_repeated(old.info.suites, new.info.suites, now),
        accepted=not faults,
        faults=faults,
        figures=figures_of(node.name, before, now, new.catalogue),
        facts=facts_of(node.name, group, fact_texts(old), fact_texts(new)),
    )
    rundir.write_document(run_dir / ADDENDUM, found)
    return found


def _not_repeated(before: Sequence[str], now: Sequence[str], verdict: VerdictDoc) -> tuple[str, ...]:
    return (*(f"suite {suite}" for suite in before if suite not in now), *sorted(site_alone(verdict)))


def _group(topology: Topology, node: Node) -> list[str]:
    return [one.name for one in topology.nodes if set(one.groups) & set(node.groups) and one.name != node.name]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def signed(run_dir: Path, key: Path, who: str) -> str:
    """Sign the node's run with its addendum; who signed, in words."""
    from validation.signing.sign import sign_run
    from validation.signing.statement import signer

    name, company = signer(who)
    with rundir.lock(run_dir):
        prepare_signing.complete(run_dir, progress)
        statement = sign_run(run_dir, key, name, company).statement
    return f"signed by {statement.name}, {statement.company}, {statement.time}, key {statement.key}"


def told(found: Addendum) -> list[str]:
    """The addendum in lines."""
    lines = [found.headline, *(f"  {fault}" for fault in found.faults)]
    for one in found.figures:
        if one.beyond:
            lines.append(
                f"  {one.criterion}: {one.value:g} {one.unit} ({one.subject}) is worse than any of the "
                f"{one.accepted_count} of {found.accepted_run} ({one.accepted_low:g} to {one.accepted_high:g}); its "
                "bound holds"
            )
    lines += [f"  {one.fact}: {one.now or 'not there'}, was {one.accepted or 'not there'}" for one in found.facts]
    if found.not_repeated:
        lines.append(f"  of the site as a whole, not repeated: {', '.join(found.not_repeated)}")
    return lines
