"""A playbook over some of a site's nodes, as `toolkit deploy` runs the site's: progress, log, record, Ctrl-C."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from toolkit.deploy import outcome, record, running
from toolkit.deploy.progress import make_progress
from toolkit.deploy.rescued import rescued_tasks
from toolkit.deploy.site_state import Estimate, SiteState
from toolkit.deploy.stages import read_stages
from toolkit.deploy.watch import DeployWatch
from toolkit.exits import Exit
from toolkit.loudness import progress, progress_stream
from validation.base import project
from validation.base.errors import ToolkitError

SITE, TEARDOWN, PREFLIGHT = Path("site.yml"), Path("playbooks/teardown.yml"), Path("playbooks/preflight.yml")
LEARN = ("base", "remoting", "pool", "monitoring", "acceptance", "training")
"""Stages by which all others learn of a node that came or went: names, firewall, leases, Slurm, figures, hosts of
training. Their roles that have nothing to do with it are left out (`LEAVE`)."""
LEAVE = ("repos", "kernel", "tuning")


class PlaybookFault(ToolkitError):
    """A playbook that did not go through; its lines were printed."""


def run(playbook: Path, inventory: Path, limit: str | None, arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """Run it to its end; the nodes that wait for a reboot. PlaybookFault where a node failed, was unfit or not
    reached, or one that joins waits for a reboot; Ctrl-C as everywhere."""
    watch, end, log = played(playbook, inventory, limit, arguments)
    for line in end.lines:
        click.echo(line.whole, err=True)
    if end.exit_code == Exit.INTERRUPTED:
        raise KeyboardInterrupt
    waiting = [name for name in watch.waiting if json.dumps([name]) in " ".join(arguments)]
    if waiting and end.exit_code == Exit.INCOMPLETE:
        words = f"{waiting[0]} waits for a reboot: run what its line says, then this command again"
        raise PlaybookFault(words, Exit.INCOMPLETE)
    if end.exit_code not in (Exit.OK, Exit.INCOMPLETE):  # what waits on others was said, and is no matter of this one
        raise PlaybookFault(f"{end.error or f'{playbook.name} failed'}; log: {log}", Exit.FAILED)
    return watch.waiting


def played(
    playbook: Path, inventory: Path, limit: str | None, arguments: Sequence[str] = ()
) -> tuple[DeployWatch, outcome.Ending, Path]:
    """Run it to its end: what it did, how it ended, and the log. A run of site.yml goes into the site's record."""
    path = project.file(str(playbook))
    job = running.Deployment(path, project.ROOT / "ansible.cfg", inventory.resolve(), limit, False, tuple(arguments))
    state = SiteState(job.inventory)
    with state.locked():
        log, began = state.new_log(), record.utc_now()
        progress(f"log: {log}")
        with log.open("x", encoding="utf-8") as handle:
            watch = DeployWatch(read_stages(path), rescued_tasks(project.file("roles")))
            display = make_progress(progress_stream(), watch, Estimate(None))
            try:
                status, by = running.run(job, watch, Estimate(None), display, handle, state.room)
            finally:
                display.close()
            end = outcome.ending(job, watch, status, by is not None)
            handle.write("\n".join(("", *(line.whole for line in end.lines), end.error, "")))
        if watch.nodes and playbook == SITE:
            state.write_built(record.deployment(job, watch, end, by is not None, began, record.utc_now(), {}))
    return watch, end, log


def joining(name: str) -> list[str]:
    """What site.yml is told, so that the node waits drained for its acceptance."""
    return ["-e", json.dumps({"slurm_joining": [name]})]


def learning() -> list[str]:
    """Which parts of site.yml the others need."""
    return ["--tags", ",".join(LEARN), "--skip-tags", ",".join(LEAVE)]
