"""What to run after a verdict, as commands. Words in capitals are for the user to fill in; the rest the run knows."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from toolkit.lab.spec import DEFAULT_NAME, lab_dir, state_root
from toolkit.lab_inventory import listed_lab
from validation.base.errors import ToolkitError
from validation.model import RunInfo, Topology, VerdictDoc
from validation.rules.criterion import Criterion
from validation.verdict.glance import Glance
from validation.verdict.unmeasured import Why

SIGN = 'toolkit sign {run} --key ~/.ssh/id_ed25519 --as "NAME, COMPANY"'


def next_commands(
    run_dir: Path, info: RunInfo, topology: Topology, verdict: VerdictDoc, suites: Sequence[str], signed: bool
) -> tuple[str, ...]:
    """The commands, in their order. `suites`: those that owed criteria want and the run did not select."""
    run = shlex.quote(str(run_dir))
    if verdict.missing and not signed:
        return (info.resume(str(run_dir)),)
    if verdict.outcome == "passed":
        if signed and topology.lab_link is not None:
            return _trial(info, topology)
        if signed:
            return (f"toolkit bundle {run}",)
        if topology.here is not None:  # nobody has said what it is to be, so there is nothing to sign off
            return ("toolkit inventory init inventories/SITE ADDRESS --user USER",)
        return SIGN.format(run=run), f"toolkit bundle {run}"
    return (*_repairs(info, topology), again(info, suites if verdict.outcome == "incomplete" else ()))


def unselected(seen: Glance, criteria: Sequence[Criterion]) -> tuple[str, ...]:
    """Suites that were not selected and that what is owed wants."""
    wanted = {id_ for one in seen.owed if one.why is Why.SUITE for id_ in one.criteria}
    return tuple(dict.fromkeys(criterion.suite for criterion in criteria if criterion.id in wanted))


def again(info: RunInfo, suites: Sequence[str] = ()) -> str:
    """The command that measures the same once more, and these suites, too."""
    if not suites:
        return shlex.join(info.command)
    words, given = [], iter(info.command)
    for word in given:
        if word == "--suite":
            next(given, None)
        elif not word.startswith("--suite="):
            words.append(word)
    return shlex.join([*words, *(f"--suite={suite}" for suite in dict.fromkeys((*info.suites, *suites)))])


def lab_of(inventory: Path) -> str | None:
    """Name of the lab whose nodes an inventory lists, by itself or as the lab's own folder; None of a site's."""
    labs = state_root() / "labs"
    if inventory.resolve().is_relative_to(labs.resolve()):
        return inventory.resolve().relative_to(labs.resolve()).parts[0]
    try:
        return listed_lab(inventory)
    except ToolkitError:
        return None


def _trial(info: RunInfo, topology: Topology) -> tuple[str, ...]:
    """In a lab: a fault, which the next validation has to find."""
    name = lab_of(Path(info.inventory))
    servers = [node.name for node in topology.nodes if "gpu_servers" in node.groups]
    if name is None or not servers:
        return ()
    option = [] if name == DEFAULT_NAME else ["--name", name]
    return shlex.join(["toolkit", "lab", "fault", "set", servers[-1], "slow-link", *option]), again(info)


def _repairs(info: RunInfo, topology: Topology) -> tuple[str, ...]:
    """In a lab: the planted faults of the nodes, taken back."""
    if topology.lab_link is None or not info.inventory:
        return ()
    name = lab_of(Path(info.inventory))
    if name is None:
        return ()
    option = [] if name == DEFAULT_NAME else ["--name", name]
    nodes = {node.name for node in topology.nodes}
    try:
        faults = json.loads((lab_dir(name) / "faults.json").read_text())
    except (OSError, ValueError):
        return ()
    return tuple(shlex.join(["toolkit", "lab", "fault", "clear", node, *option]) for node in faults if node in nodes)
