"""`toolkit validate --fabric A,B,...`: one run after the other, then a page with all of them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from toolkit import acceptance, answers, campaigns, rundir
from toolkit.ending import print_campaign
from toolkit.errors import UsageFault
from toolkit.loudness import progress
from toolkit.report_request import FORMATS_OF_SEVERAL
from toolkit.validate.finish import tell
from toolkit.validate.measuring import interrupted, measured
from toolkit.validate.planned import PlannedRun
from toolkit.validate.request import Output
from toolkit.working import working
from validation.execute import Launcher
from validation.model import VerdictDoc
from validation.run.read import read


def measure_each(planned: Sequence[PlannedRun], runs_dir: Path, output: Output) -> None:
    """One run after the other, each judged and reported by itself, then the page of them all; ends with the worst."""
    names = [run.name for run in planned]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise UsageFault(f"two of the profiles in --fabric are called {twice}; give one of them another name")
    _refuse_early(planned)
    documents: list[dict[str, object]] = []
    done: list[tuple[Path, VerdictDoc]] = []
    for number, asked in enumerate(planned, 1):
        progress(f"fabric {asked.name}, {number} of {len(planned)}")
        try:
            run_dir = measured(asked, runs_dir)
            with rundir.lock(run_dir):
                run = read(run_dir)
                with working("judging"):
                    verdict = acceptance.judge_run(run)
                done.append((run_dir, verdict))
                tell(run, verdict, output, documents.append if output.as_json else None, last=False)
        except BaseException:  # whatever ends it: what is there, and what is not, has to be said
            _say_left(done, names[number:])
            raise
    worst = campaigns.worst([verdict.exit_code for _, verdict in done])
    written = [name for name in FORMATS_OF_SEVERAL if name in output.formats]
    with working("writing the page of all fabrics"):
        made = campaigns.make([run for run, _ in done], written, None, runs_dir) if written else None
    for why in made.left_out.values() if made else ():
        click.echo(why, err=True)
    if output.as_json:
        paths = {name: str(path) for name, path in made.paths.items()} if made else {}
        answers.say("validations", {"campaign": paths, "exit_code": int(worst), "runs": documents})
    else:
        print_campaign(done, tuple(made.paths.values()) if made else (), int(worst))
    raise SystemExit(worst)


def _refuse_early(planned: Sequence[PlannedRun]) -> None:
    """Refuse what any of the fabrics would be refused for, before the first of them is measured."""
    topology = planned[0].topology

    async def work(launcher: Launcher) -> None:
        await acceptance.reach(launcher, topology.nodes)
        for asked in planned:
            await acceptance.refuse_without_rdma(launcher, asked.topology, asked.loaded.fabric, asked.plan.suites)

    try:
        acceptance.run_async(acceptance.with_launcher(str(planned[0].inventory), work, make=planned[0].make))
    except acceptance.Interrupted:
        interrupted(None)


def _say_left(done: Sequence[tuple[Path, VerdictDoc]], waiting: Sequence[str]) -> None:
    """What of a campaign is finished and what was not run."""
    for run_dir, verdict in done:
        click.echo(f"finished and kept: {verdict.fabric}, {verdict.sign_off}: {run_dir}", err=True)
    if waiting:
        click.echo(f"not run: {', '.join(waiting)}", err=True)
    click.echo("when all have run: toolkit report --campaign RUN RUN ...", err=True)
