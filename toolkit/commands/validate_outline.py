"""`toolkit validate --dry-run --summary`: rounds and minutes of each kind, from an inventory alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from toolkit import answers, campaigns
from toolkit.agreement import find_agreement
from toolkit.commands.validate_shared import Asked
from toolkit.fabric_choice import choose_fabric, trains_over_tcp, without_rdma
from toolkit.inventory import read_site
from toolkit.progress import duration, make_console
from toolkit.verdict_text import print_outline
from validation.model import Scalar
from validation.plan.outline import Outline, outline, planned
from validation.plan.suites import DEFAULT, plan_rounds
from validation.rules.catalogue import load_criteria
from validation.rules.fabric import read_fabric


def outlines(
    fabric_name: str | None,
    inventory: Path,
    suites: tuple[str, ...],
    agreed: tuple[str | None, Path | None],
    options: dict[str, Scalar],
) -> list[Outline]:
    """Of each fabric that is asked for. `agreed`: profile and waivers."""
    named = [read_fabric(name) if name else None for name in campaigns.fabrics_asked(fabric_name)]
    topology, record, declared = read_site(inventory)
    criteria, found = load_criteria(), []
    for one in named:
        fabric = choose_fabric(one, inventory, declared).fabric
        agreement = find_agreement(*agreed, criteria, inventory, record.acceptance_profile)
        chosen = suites or (agreement.profile.suites if agreement.profile else DEFAULT)
        site = without_rdma(topology) if trains_over_tcp(topology, fabric, chosen) else topology
        what = plan_rounds(site, fabric, criteria, chosen, options)
        found.append(outline(fabric.name, site, what, _cores()))
    return found


def outline_here(asked: Asked) -> Outline:
    """Of this machine by itself."""
    return outline(asked.plan.fabric, asked.topology, planned(asked.plan), _cores())


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
