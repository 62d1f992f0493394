"""`toolkit validate --dry-run --summary`: rounds and minutes of each kind, from an inventory alone."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from toolkit import answers
from toolkit.fabric_choice import choose_fabric, trains_over_tcp, without_rdma
from toolkit.inventory import read_site
from toolkit.progress import duration, make_console
from toolkit.validate.planned import PlannedRun, agreed, suites_of
from toolkit.validate.request import NewRuns
from toolkit.validate.units import of_unit
from toolkit.verdict_text import print_outline
from validation.plan.outline import Outline, outline, planned
from validation.plan.suites import plan_rounds
from validation.rules.fabric import LoadedFabric
from validation.run.catalogue import load_criteria


def outlines(asked: NewRuns, fabrics: Sequence[LoadedFabric | None]) -> list[Outline]:
    """Of each fabric, None for the inventory's."""
    site, criteria, found = of_unit(read_site(asked.inventory), asked.unit), load_criteria(), []
    for one in fabrics:
        fabric = choose_fabric(one, asked.inventory, site.fabric).fabric
        suites = suites_of(asked, agreed(asked, site, criteria))
        topology = without_rdma(site.topology) if trains_over_tcp(site.topology, fabric, suites) else site.topology
        rounds = plan_rounds(topology, fabric, criteria, suites, asked.options)
        found.append(outline(fabric.name, topology, rounds, _cores()))
    return found


def outline_here(planned_run: PlannedRun) -> Outline:
    """Of this machine by itself."""
    return outline(planned_run.plan.fabric, planned_run.topology, planned(planned_run.plan), _cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def print_outlines(found: Sequence[Outline], as_json: bool) -> None:
    """One after the other."""
    if as_json:
        told = [{**one.model_dump(mode="json"), "predicted_s": round(one.predicted_s, 1)} for one in found]
        answers.say("outlines", {"outlines": told})
        return
    for one in found:
        if len(found) > 1:
            click.echo(f"\nfabric {one.fabric}")
        print_outline(make_console(), one, duration)
