"""One run is measured: a new one from its first document on, or what an old one lacks."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import click

from toolkit import acceptance, rundir
from toolkit.accepted import accepted_rates
from toolkit.deploy.site_state import how_built
from toolkit.estimates import expected_s
from toolkit.exits import Exit
from toolkit.loudness import progress, progress_stream
from toolkit.progress import ProgressLines, make_progress
from toolkit.report_branding import take_branding
from toolkit.training_progress import telling_of_training
from toolkit.validate.planned import PlannedRun
from toolkit.working import working
from validation.base.counting import be, number_of
from validation.execute import Launcher
from validation.model import Plan, RunInfo, Topology
from validation.rules.release import release
from validation.run.names import FABRIC, PROFILE

HERE = "here"
"""Takes the fabric's place in the name of a run of this machine by itself."""


def measured(asked: PlannedRun, runs_dir: Path, begun: Callable[[Path], object] = lambda _: None) -> Path:
    """Make a new run and measure it; the process ends where it is interrupted. `begun` is told the run's folder."""
    topology, fabric = asked.topology, asked.loaded.fabric
    built = None if asked.inventory is None else how_built(asked.inventory, topology)
    accepted = accepted_rates(runs_dir, topology, fabric, asked.plan)
    run_dir: Path | None = None

    async def work(launcher: Launcher) -> None:
        nonlocal run_dir
        with working(f"reaching {number_of(len(topology.nodes), 'node')}"):
            await acceptance.reach(launcher, topology.nodes)
        await acceptance.refuse_without_rdma(launcher, topology, fabric, asked.plan.suites, asked.apart)
        run_dir = rundir.create(runs_dir, fabric.name if topology.here is None else HERE)
        with rundir.lock(run_dir):
            named = asked.plan.model_copy(update={"run": run_dir.name})
            info = _info(run_dir, asked, named)
            new = rundir.NewRun(
                info=info,
                topology=topology,
                plan=named,
                fabric=asked.loaded,
                criteria=asked.sources,
                inventory=asked.record,
                built=built,
                agreed=asked.agreement.files,
                accepted=accepted,
            )
            rundir.begin(run_dir, new)
            take_branding(asked.branding, run_dir)
            begun(run_dir)
            progress(f"run: {run_dir}")
            await measure(launcher, run_dir, topology, named)

    try:
        acceptance.run_async(
            acceptance.with_launcher(_where(asked.inventory), work, topology.here is not None, asked.make)
        )
    except acceptance.Interrupted:
        interrupted(run_dir)
    assert run_dir is not None
    return run_dir


def _where(inventory: Path | None) -> str:
    return "" if inventory is None else str(inventory)


def _info(run_dir: Path, asked: PlannedRun, plan: Plan) -> RunInfo:
    loaded, agreement = asked.loaded, asked.agreement
    return RunInfo(
        run=run_dir.name,
        created=acceptance.utc_now(),
        toolkit_version=release(),
        site=asked.topology.site,
        inventory=_where(asked.inventory),
        fabric=loaded.fabric.name,
        suites=plan.suites,
        command=("toolkit", *sys.argv[1:]),
        profile=agreement.profile.name if agreement.profile else None,
        options=asked.options,
        unit=asked.unit,
        part=asked.part,
        documents={},
        origins={FABRIC: loaded.origin, **({PROFILE: agreement.origin} if agreement.origin else {})},
    )


async def measure(launcher: Launcher, run_dir: Path, topology: Topology, plan: Plan) -> None:
    """Measure what is missing of the run's plan, with progress on stderr."""
    import validation.report  # noqa: F401  (what the report needs is missed before anything is measured)

    shown = make_progress(progress_stream(), expected_s(plan, topology))
    async with ticking(shown), telling_of_training(launcher, run_dir, plan, shown.said):
        await acceptance.measure(launcher, run_dir, topology, plan, shown, acceptance.finished(run_dir))


@contextlib.asynccontextmanager
async def ticking(progress: ProgressLines) -> AsyncIterator[None]:
    """While it lasts, the progress is asked every second whether it has something to say."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            progress.tick()

    task = asyncio.ensure_future(tick())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def interrupted(run_dir: Path | None) -> None:
    """Say what is kept, and how to go on."""
    if run_dir is None:
        click.echo("interrupted before the run began; nothing was measured", err=True)
    else:
        info, _, plan = rundir.asked(run_dir)
        done = len(acceptance.finished(run_dir))
        click.echo(
            f"interrupted; {done} of {number_of(len(plan.measurements), 'measurement')} {be(done)} finished and kept",
            err=True,
        )
        click.echo(f"continue with: {info.resume(str(run_dir))}", err=True)
    raise SystemExit(Exit.INTERRUPTED)
