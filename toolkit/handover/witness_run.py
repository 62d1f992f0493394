"""The run that a witnessed list belongs to: the one that was broken off, one that was named, or a new one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from toolkit import rundir
from toolkit.errors import UsageFault
from toolkit.handover.senses import Senses
from toolkit.handover.witness_list import tests_of
from toolkit.handover.witness_state import FOLDER, STATE
from toolkit.handover.witnessing import Watching
from toolkit.inventory import read_site
from toolkit.validate.measuring import measured
from toolkit.validate.planned import plan_run
from toolkit.validate.request import NewRuns, Output, Terms
from validation.measures.witness.witnessed import Line
from validation.model import Node
from validation.probes.controller import INVENTORY, host_variable
from validation.rules.fabric import read_fabric
from validation.run.catalogue import read_criteria

SUITES = ("preflight", "witness")


def run_of(runs_dir: Path, run: str | None, inventory: Path, fabric: str | None) -> Path:
    """Its directory; a new run looks at the nodes first. UsageFault for one that has no such tests."""
    if run is not None:
        found = rundir.find(runs_dir, run)
        if not tests_of(rundir.asked(found)[2]):
            raise UsageFault(
                f"{found}: has no witnessed tests; leave RUN out for a run that has, or give validate --suite witness"
            )
        return found
    broken = _broken_off(runs_dir, inventory)
    return broken or _new(runs_dir, inventory, fabric)


def _broken_off(runs_dir: Path, inventory: Path) -> Path | None:
    """The newest run of this inventory whose list has begun and not ended."""
    for path in reversed(rundir.runs(runs_dir)):
        if (path / FOLDER / STATE).is_file() and Path(rundir.asked(path)[0].inventory).resolve() == inventory.resolve():
            return path
    return None


def _new(runs_dir: Path, inventory: Path, fabric: str | None) -> Path:
    asked = NewRuns(
        fabric=fabric, inventory=inventory, suites=SUITES, terms=Terms(), branding=None, baseline=None, without=(),
        options={}, job=None, dry_run=False, summary=False, runs_dir=runs_dir, output=Output(()),
    )  # fmt: skip
    chosen = read_fabric(fabric) if fabric else None
    return measured(plan_run(asked, chosen, read_site(inventory), read_criteria(), 1), runs_dir)


def watching(run_dir: Path) -> Watching:
    """What watches the site of a run."""
    info, topology, _ = rundir.asked(run_dir)
    nodes = list(topology.nodes)
    bmcs = _bmcs(Path(info.inventory), nodes)

    def watch(tell: Callable[[Line], None]) -> Senses:
        return Senses(nodes, bmcs, tell)

    return watch


def _bmcs(inventory: Path, nodes: list[Node]) -> Mapping[str, object]:
    """What the inventory declares of those that have one, passwords included: it stays in this process."""
    names = {node.name for node in nodes if node.bmc is not None}
    if not names:
        return {}
    before = os.environ.get(INVENTORY)
    os.environ[INVENTORY] = str(inventory)
    try:
        return {name: given for name, given in host_variable("bmc").items() if name in names}
    except ValueError as fault:
        raise UsageFault(f"{inventory}: the BMCs cannot be asked: {fault}") from None
    finally:
        if before is None:
            del os.environ[INVENTORY]
        else:
            os.environ[INVENTORY] = before
