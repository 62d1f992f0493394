"""Baselines: made of runs, and found for a validation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from toolkit import acceptance
from toolkit.errors import UsageFault
from validation.model import Topology
from validation.model.load import Source, read_source
from validation.rules.criterion import Criterion
from validation.run.baseline import NAME, Made, baseline_of, read_baseline, unfit
from validation.run.names import VERDICT
from validation.run.read import read


def make(folders: Sequence[Path]) -> Made:
    """The baseline of these runs. ConfigError for a run whose verdict does not follow from its files, or that cannot
    become a bound; UsageFault for one that was never judged.
    """
    runs = []
    for folder in folders:
        if not (folder / VERDICT).is_file():
            raise UsageFault(f"{folder}: was not judged, so nobody knows whether it is good; toolkit report judges it")
        runs.append((read(folder), acceptance.standing(folder)))
    return baseline_of(runs)


def with_baseline(
    sources: Sequence[Source], named: Path | None, inventory: Path, topology: Topology, fabric: str
) -> tuple[Source, ...]:
    """The files of criteria, and that of a baseline: the named one, else baseline.yml beside the inventory.

    ConfigError with file and line for one that cannot be read; UsageFault where a named one is of other nodes, another
    fabric or a lab. One that only lies beside the inventory is left out then, and that is said.
    """
    path = named or (inventory if inventory.is_dir() else inventory.parent) / NAME
    if named is None and not path.is_file():
        return tuple(sources)
    source = read_source(path)
    why = unfit(read_baseline(source), topology, fabric)
    if why and named is not None:
        raise UsageFault(f"{path}: {why}; make one of runs that are: toolkit baseline RUN RUN --out FILE")
    if why:
        click.echo(f"{path}: left out: {why}", err=True)
        return tuple(sources)
    return (*sources, Source(Path(NAME), source.text))


def measured_by(criteria: Sequence[Criterion]) -> tuple[Criterion, ...]:
    """The criteria that measurements are planned for: a baseline's rest on what the others measure."""
    return tuple(c for c in criteria if c.bound.since is None)
