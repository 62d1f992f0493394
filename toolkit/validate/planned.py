"""What is to be validated over one fabric: read and found usable before any node is touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from toolkit import answers
from toolkit.agreement import Agreement, find_agreement, up_front
from toolkit.baselines import measured_by, with_baseline
from toolkit.errors import UsageFault, or_nearest
from toolkit.estimates import expected_s, total_s
from toolkit.fabric_choice import OVER_TCP, choose_fabric, trains_over_tcp, without_rdma
from toolkit.inventory import Site
from toolkit.inventory_record import InventoryRecord
from toolkit.progress import duration, make_console
from toolkit.report_branding import find_branding
from toolkit.slurm_job import SlurmJob
from toolkit.validate.request import NewRuns
from toolkit.verdict_text import print_plan
from validation.execute import Launcher
from validation.model import Plan, Scalar, Topology, UnitPart
from validation.model.load import Source
from validation.plan.suites import DEFAULT, WITHOUT, make_plan
from validation.rules.criterion import Criterion
from validation.rules.fabric import LoadedFabric
from validation.run.catalogue import load_criteria


@dataclass(frozen=True)
class PlannedRun:
    """One run that is to be made.

    `inventory` and what may be kept of it, `record`, are None of this machine by itself. `options` are the plan's.
    `slurm`: the job in which it is measured, None for ssh. `unit`: the group whose nodes alone are measured, and
    `part` what it is of its site. `apart`: the nodes are some of a site that was accepted, and are held against it.
    """

    inventory: Path | None
    topology: Topology
    record: InventoryRecord | None
    loaded: LoadedFabric
    sources: Sequence[Source]
    agreement: Agreement
    branding: Path | None
    plan: Plan
    options: dict[str, Scalar] = field(default_factory=dict)
    slurm: SlurmJob | None = None
    unit: str | None = None
    part: UnitPart | None = None
    apart: bool = False

    @property
    def make(self) -> Callable[[str], Launcher] | None:
        """What makes the launcher where it is not that over ssh."""
        slurm = self.slurm
        return None if slurm is None else lambda site: slurm.make(site, self.plan.estimated_s)

    @property
    def name(self) -> str:
        """Of the fabric."""
        return self.loaded.fabric.name


def plan_run(asked: NewRuns, fabric: LoadedFabric | None, site: Site, packaged: Sequence[Source], one_of: int
             ) -> PlannedRun:  # fmt: skip
    """The run over a fabric, None for the inventory's; `packaged`: this release's criteria. Says on stderr what has to
    be known up front, with the fabric's name where it is `one_of` several.
    """
    loaded = choose_fabric(fabric, asked.inventory, site.fabric)
    sources = with_baseline(packaged, asked.baseline, asked.inventory, site.topology, loaded.fabric.name)
    criteria = load_criteria(sources)
    agreement = agreed(asked, site, criteria)
    suites = suites_of(asked, agreement)
    over_tcp = trains_over_tcp(site.topology, loaded.fabric, suites)
    topology = without_rdma(site.topology) if over_tcp else site.topology
    branding = find_branding(asked.branding, asked.inventory, loaded.fabric, topology)
    options = {**asked.options, **_left_out(asked.without, criteria)}
    plan = make_plan("plan", topology, loaded.fabric, measured_by(criteria), suites, options)
    known = up_front(agreement, criteria, loaded.fabric, plan.suites, topology.virtual)
    for line in (*((OVER_TCP,) if over_tcp else ()), *known):
        click.echo(f"{loaded.fabric.name}: {line}" if one_of > 1 else line, err=True)
    found = PlannedRun(asked.inventory, topology, site.record, loaded, sources, agreement, branding, plan, options)
    return replace(found, unit=asked.unit, part=site.part)


def agreed(asked: NewRuns, site: Site, criteria: Sequence[Criterion]) -> Agreement:
    """The acceptance profile and the waivers, by the command or the inventory."""
    terms = asked.terms
    return find_agreement(terms.profile, terms.waivers, criteria, asked.inventory, site.record.acceptance_profile)


def suites_of(asked: NewRuns, agreement: Agreement) -> tuple[str, ...]:
    """Those that were asked for, else the profile's."""
    return asked.suites or (agreement.profile.suites if agreement.profile else DEFAULT)


def _left_out(without: Sequence[str], criteria: Sequence[Criterion]) -> dict[str, Scalar]:
    """The plan's option by which it leaves criteria out. UsageFault for one that there is not."""
    unknown = sorted(set(without) - {c.id for c in criteria})
    if unknown:
        there = or_nearest(unknown[0], [c.id for c in criteria], "toolkit criteria lists them")
        raise UsageFault(f"--without {unknown[0]}: there is no such criterion; {there}")
    return {WITHOUT: ",".join(without)} if without else {}


def print_plans(planned: Sequence[PlannedRun], as_json: bool) -> None:
    """The plan of each fabric."""
    if as_json:
        answers.say("plans", {"plans": [run.plan.model_dump(mode="json") for run in planned]})
        return
    for run in planned:
        if len(planned) > 1:
            click.echo(f"\nfabric {run.plan.fabric}")
        print_plan(make_console(), run.plan, duration(total_s(run.plan, expected_s(run.plan, run.topology))))
