"""A deployment, or what takes it back, from the request to the line of each node: log, record, exit code."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, NoReturn

import click

from toolkit import answers
from toolkit.deploy import outcome, record, running
from toolkit.deploy.progress import make_progress
from toolkit.deploy.rescued import rescued_tasks
from toolkit.deploy.site_state import Estimate, LastRun, SiteState
from toolkit.deploy.stages import read_stages
from toolkit.deploy.watch import DeployWatch
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.inventory_files import refuse_unusable
from toolkit.lab_inventory import lab_inventory, refuse_absent_lab
from toolkit.loudness import progress, progress_stream
from toolkit.progress import duration
from validation.base import project
from validation.base.counting import number_of
from validation.base.project import ROOT
from validation.model.built import Deployment

SITE = "site.yml"
TEARDOWN = "playbooks/teardown.yml"


@dataclass(frozen=True)
class DeployRequest:
    """The options of `toolkit deploy` and `toolkit teardown` as they were given; `inventory` is None for the lab's."""

    inventory: Path | None
    limit: str | None
    check: bool
    ansible_options: tuple[str, ...]

    def deployment(self, skip_unfit: bool = False) -> running.Deployment:
        """Of site.yml. UsageFault for options that cannot be used."""
        refuse_options(self.ansible_options)
        return running.Deployment(
            project.file(SITE, ROOT), project.file("ansible.cfg", ROOT), found_inventory(self.inventory), self.limit,
            self.check, self.ansible_options, skip_unfit,
        )  # fmt: skip

    def teardown(self) -> running.Deployment:
        """Of what takes it back. UsageFault for options that cannot be used."""
        refuse_options(self.ansible_options)
        return running.Deployment(
            project.file(TEARDOWN, ROOT), project.file("ansible.cfg", ROOT), found_inventory(self.inventory),
            self.limit, self.check, self.ansible_options, command="teardown",
        )  # fmt: skip


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


def found_inventory(given: Path | None) -> Path:
    """The inventory; the lab's, when none was given, is also found from another folder."""
    given = given or lab_inventory()
    refuse_unusable(given)
    refuse_absent_lab(given)
    return given.resolve()


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
            handle.write("\n".join(("", *(line.whole for line in end.lines), end.error, "")))
        done = record.deployment(job, watch, end, by is not None, began, record.utc_now(), left_out)
        if not check and watch.nodes:
            _keep(state, done)
    elapsed_s = time.monotonic() - started
    with contextlib.suppress(OSError):  # a terminal that is gone must not change the exit code
        if as_json:
            click.echo(answers.text("deployment", done.model_dump(mode="json")))
        else:
            _show(end.lines)
        _say(job, end, f"{duration(elapsed_s)}; log: {log}", as_json)
    raise SystemExit(end.exit_code)


def _run(
    job: running.Deployment, state: SiteState, handle: IO[str]
) -> tuple[DeployWatch, signal.Signals | None, outcome.Ending]:
    """One run of Ansible: what it did, the signal that stopped it, and its end."""
    watch = DeployWatch(read_stages(job.playbook), rescued_tasks(project.file("roles")))
    estimate = Estimate(state.read_last(job.check, job.command))
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
    lines = (*(line.whole for line in outcome.unfit_table(watch)), f"going on without {', '.join(watch.unfit)}")
    handle.write("\n".join(("", *lines, "")))
    with contextlib.suppress(OSError):  # a terminal that is gone stops nothing
        for line in lines:
            click.echo(line, err=True)


def _keep(state: SiteState, done: Deployment) -> None:
    """Add to the site's record; what was done is done, so a record that cannot be written is said and no failure."""
    try:
        state.write_built(done)
    except OSError as fault:
        click.echo(f"this deployment is missing in the site's record: {fault}", err=True)


def _show(lines: Sequence[outcome.EndLine]) -> None:
    """A line for each node; on a terminal folded to its width."""
    for line in lines:
        parts = line.folded(shutil.get_terminal_size().columns) if sys.stdout.isatty() else [line.whole]
        for part in parts:
            click.echo(part)


def _say(job: running.Deployment, end: outcome.Ending, after: str, as_json: bool) -> None:
    """What the command ends with on stderr. `after`: how long it took, and where the log is."""
    if end.exit_code == Exit.INTERRUPTED:
        click.echo("interrupted; finished tasks are kept, and one may still be running on a node", err=True)
        click.echo(f"continue with: {outcome.again(job)}", err=True)
    if end.error:
        click.echo(f"error: {end.error}", err=True)
    if end.exit_code == Exit.OK and not as_json:
        progress(f"next: {outcome.afterwards(job)}")
    done = "checked" if job.check else "deployed" if job.command == "deploy" else "taken back"
    some = f"{done} without {number_of(len(job.left_out), 'unfit node')}" if job.left_out else f"{done} up to a reboot"
    ends = {Exit.OK: done, Exit.FAILED: "failed", Exit.INCOMPLETE: some, Exit.INTERRUPTED: "stopped"}
    click.echo(f"{ends.get(end.exit_code, 'ended')} after {after}", err=True)
