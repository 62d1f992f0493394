"""Where a run's `report.yml` comes from: named on the command line, or beside the inventory."""

from __future__ import annotations

from pathlib import Path

from validation.model import Topology
from validation.rules.fabric import Fabric


def find_branding(named: Path | None, inventory: Path, fabric: Fabric, topology: Topology) -> Path | None:
    """The report.yml for a run of `inventory`, tried with all that it names; None where there is none.

    Raises ConfigError, one line with file and line, before anything is measured.
    """
    from validation.report.customer import NAME  # only here: templates are slow to load
    from validation.report.partner import try_templates

    path = named or (inventory if inventory.is_dir() else inventory.parent) / NAME
    if named is None and not path.is_file():
        return None
    try_templates(path, fabric, topology)
    return path


def take_branding(path: Path | None, run_dir: Path) -> None:
    """Copy a report.yml with all that it names into a run that nobody signed; nothing where there is none."""
    if path is None:
        return
    from validation.report.customer import adopt  # only here: templates are slow to load

    adopt(path, run_dir)
