"""`toolkit deploy`: provision a site, and say what became of each node."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, NoReturn

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.deploy import outcome, record, running
from toolkit.deploy.progress import make_progress
from toolkit.deploy.site_state import Estimate, LastRun, SiteState
from toolkit.deploy.stages import read_stages
from toolkit.deploy.watch import DeployWatch
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.lab.spec import LAB
from toolkit.lab_inventory import lab_inventory, others, refuse_absent_lab
from toolkit.loudness import progress, progress_stream
from toolkit.progress import duration
from validation.base import project
from validation.base.counting import number_of
from validation.base.project import ROOT
from validation.model.built import Deployment


@command(epilog=epilogue("deploy"))
@click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path),
    help=f"Read this Ansible inventory, a folder or a file.  [default: {LAB}]",
)
@click.option(
    "--limit", metavar="NODES", help="Provision only these nodes, as ansible-playbook takes them: gpu3,head or '!gpu2'."
)
@click.option(
    "--check",
    "--dry-run",
    "check",
    is_flag=True,
    help="Show what would change, by Ansible's check mode; change nothing.",
)
@click.option("--skip-unfit", is_flag=True, help="Go on without nodes that preflight refuses, and end with 3.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout: what was done to each node.")
@click.argument("ansible_options", nargs=-1, type=click.UNPROCESSED)
def deploy(
    inventory: Path | None,
    limit: str | None,
    check: bool,
    skip_unfit: bool,
    as_json: bool,
    ansible_options: tuple[str, ...],
) -> None:
    """Provision the nodes of an inventory.

    Runs site.yml by ansible-runner. Shows stage, role, nodes and the time that is left (from this site's last run),
    keeps the whole log in a file, and ends with one line for each node. Safe to run again at any time: what is done is
    not done twice. Ctrl-C stops Ansible; the same command goes on. What follows -- goes to ansible-playbook. Who
    deployed which commit when and what it changed goes into this machine's record of the site, and from there into each
    validation.

    \b
    toolkit deploy                                      the virtual lab
    toolkit deploy -i inventories/site --check          what it would change; right on fresh nodes too
    toolkit deploy -i inventories/site
    toolkit deploy -i inventories/site --limit gpu3,head            a new node
    toolkit deploy -i inventories/site --skip-unfit                 one broken node of fifty stops nobody
    toolkit deploy -i inventories/site -- -e reboot=if_needed       may reboot, once, in batches
    toolkit deploy -i inventories/site -- --vault-password-file ~/.vault
    """
    refuse_options(ansible_options)
    site = project.file("site.yml", ROOT)
    # Made absolute, so that the command that is offered for going on works from any folder.
    options = (check, ansible_options, skip_unfit)
    job = running.Deployment(site, ROOT / "ansible.cfg", found_inventory(inventory), limit, *options)
    carry_out(job, as_json)


def refuse_options(ansible_options: Sequence[str]) -> None:
    """UsageFault for what Ansible would ask at a terminal that it does not have, and for a second inventory: consent
    and record are those of the first.
    """
    option = running.second_inventory(ansible_options)
    if option:
        raise UsageFault(f"{option}: give the inventory before the --, as -i INVENTORY; nothing was changed")
    option = running.asks(ansible_options)
    if option:
        raise UsageFault(f"{option}: Ansible cannot ask for a password here; give it in a file")


def carry_out(job: running.Deployment, as_json: bool) -> NoReturn:
    """Run it, keep log and record, print a line for each node; ends with its exit code."""
    check = job.check
    state = SiteState(job.inventory)
    left_out: dict[str, tuple[str, ...]] = {}
    with state.locked():
        log, began, started = state.new_log(), record.utc_now(), time.monotonic()
        progress(f"log: {log}")
        with log.open("x", encoding="utf-8") as handle:
            while True:
                job = replace(job, left_out=tuple(sorted(left_out)))
                watch, by, end = _run(job, state, handle)
                if by is not None or not outcome.may_go_on(job, watch):
                    break
                left_out |= {host: watch.nodes[host].unfit for host in watch.unfit}
                _go_on(watch, handle)
            end = outcome.without(end, left_out)
            handle.write("\n".join(("", *end.lines, end.error, "")))
        done = record.deployment(job, watch, end, by is not None, began, record.utc_now(), left_out)
        if not check and watch.nodes:
            _keep(state, done)
    elapsed_s = time.monotonic() - started
    _say(
        job,
        end if not as_json else replace(end, lines=(answers.text("deployment", done.model_dump(mode="json")),)),
        elapsed_s,
        log,
        as_json,
    )
    raise SystemExit(end.exit_code)


def _run(
    job: running.Deployment, state: SiteState, handle: IO[str]
) -> tuple[DeployWatch, signal.Signals | None, outcome.Ending]:
    """One run of Ansible: what it did, the signal that stopped it, and its end."""
    watch, estimate = DeployWatch(read_stages(job.playbook)), Estimate(state.read_last(job.check, job.command))
    display = make_progress(progress_stream(), watch, estimate)
    try:
        status, by = running.run(job, watch, estimate, display, handle, state.room)
    finally:
        display.close()
    end = outcome.ending(job, watch, status, by is not None)
    if end.exit_code in (Exit.OK, Exit.INCOMPLETE) and not job.nodes:
        last = LastRun(total_s=round(display.elapsed_s, 2), steps=tuple(estimate.steps))
        state.write_last(job.check, last, job.command)
    return watch, by, end


def _go_on(watch: DeployWatch, handle: IO[str]) -> None:
    """Say which nodes are left out from here on."""
    lines = (*outcome.unfit_table(watch), f"going on without {', '.join(watch.unfit)}")
    handle.write("\n".join(("", *lines, "")))
    with contextlib.suppress(OSError):  # a terminal that is gone stops nothing
        for line in lines:
            click.echo(line, err=True)


def found_inventory(given: Path | None) -> Path:
    """The inventory; the lab's, when none was given, is also found from another folder."""
    given = given or lab_inventory()
    if not given.exists():
        raise UsageFault(f"{given}: no such file or folder; {others(given)}")
    refuse_absent_lab(given)
    return given.resolve()


def _keep(state: SiteState, done: Deployment) -> None:
    """Add to the site's record; what was done is done, so a record that cannot be written is said and no failure."""
    try:
        state.write_built(done)
    except OSError as fault:
        click.echo(f"this deployment is missing in the site's record: {fault}", err=True)


def _say(job: running.Deployment, end: outcome.Ending, elapsed_s: float, log: Path, as_json: bool) -> None:
    """Print the end. A terminal that is gone must not change the exit code."""
    try:
        for line in end.lines:
            wide = shutil.get_terminal_size().columns if sys.stdout.isatty() and not as_json else len(line)
            for part in outcome.shown(line, wide):
                click.echo(part)
        if end.exit_code == Exit.INTERRUPTED:
            click.echo("interrupted; finished tasks are kept, and one may still be running on a node", err=True)
            click.echo(f"continue with: {outcome.again(job)}", err=True)
        if end.error:
            click.echo(f"error: {end.error}", err=True)
        if end.exit_code == Exit.OK and not as_json:
            progress(f"next: {outcome.afterwards(job)}")
        done = "checked" if job.check else "deployed" if job.command == "deploy" else "taken back"
        some = (
            f"{done} without {number_of(len(job.left_out), 'unfit node')}" if job.left_out else f"{done} up to a reboot"
        )
        words = {Exit.OK: done, Exit.FAILED: "failed", Exit.INCOMPLETE: some, Exit.INTERRUPTED: "stopped"}
        word = words.get(end.exit_code, "ended")
        click.echo(f"{word} after {duration(elapsed_s)}; log: {log}", err=True)
    except OSError:
        return
