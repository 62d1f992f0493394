"""What `toolkit validate` does for one fabric: a new run, measured; a verdict, reported and said."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from toolkit import acceptance, rundir
from toolkit.accepted import accepted_rates
from toolkit.agreement import Agreement
from toolkit.commands.options import details
from toolkit.deploy.site_state import how_built
from toolkit.ending import print_ending
from toolkit.estimates import expected_s
from toolkit.exits import Exit
from toolkit.inventory_record import InventoryRecord
from toolkit.looking_on import looking_on
from toolkit.loudness import progress, progress_stream
from toolkit.progress import ProgressLines, make_progress
from toolkit.report_branding import take_branding
from toolkit.slurm_job import SlurmJob
from toolkit.working import working
from validation.base.counting import be, number_of
from validation.execute import Launcher
from validation.model import Plan, RunInfo, Scalar, Topology, VerdictDoc
from validation.model.load import Source
from validation.rules.fabric import LoadedFabric
from validation.rules.release import release
from validation.run.runfiles import FABRIC, PROFILE, RunFiles

HERE = "here"
"""Takes the fabric's place in the name of a run of this machine by itself."""


@dataclass(frozen=True)
class Asked:
    """What is to be validated over one fabric: read and found usable before any node is touched.

    `inventory` and what may be kept of it, `record`, are None of this machine by itself. `options` are the plan's.
    `slurm`: the job in which it is measured, None for ssh.
    """

    inventory: Path | None
    topology: Topology
    record: InventoryRecord | None
    loaded: LoadedFabric
    sources: Sequence[Source]
    agreement: Agreement
    branding: Path | None
    plan: Plan
    options: dict[str, Scalar] = field(default_factory=dict)
    slurm: SlurmJob | None = None

    @property
    def make(self) -> Callable[[str], Launcher] | None:
        """What makes the launcher where it is not that over ssh."""
        slurm = self.slurm
        return None if slurm is None else lambda site: slurm.make(site, self.plan.estimated_s)

    @property
    def name(self) -> str:
        """Of the fabric."""
        return self.loaded.fabric.name


def measured(asked: Asked, runs_dir: Path, begun: Callable[[Path], object] = lambda _: None) -> Path:
    """Make a new run and measure it; the process ends where it is interrupted. `begun` is told the run's folder."""
    topology, fabric = asked.topology, asked.loaded.fabric
    built = None if asked.inventory is None else how_built(asked.inventory, topology)
    accepted = accepted_rates(runs_dir, topology, fabric, asked.plan)
    run_dir: Path | None = None

    async def work(launcher: Launcher) -> None:
        nonlocal run_dir
        with working(f"reaching {number_of(len(topology.nodes), 'node')}"):
            await acceptance.reach(launcher, topology.nodes)
        await acceptance.refuse_without_rdma(launcher, topology, fabric, asked.plan.suites)
        run_dir = rundir.create(runs_dir, fabric.name if topology.here is None else HERE)
        with rundir.lock(run_dir):
            named = asked.plan.model_copy(update={"run": run_dir.name})
            info = _info(run_dir, asked, named)
            rundir.begin(
                run_dir, info, topology, named, asked.loaded, asked.sources, asked.record, built,
                asked.agreement.files, accepted,
            )  # fmt: skip
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


def _info(run_dir: Path, asked: Asked, plan: Plan) -> RunInfo:
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
        documents={},
        origins={FABRIC: loaded.origin, **({PROFILE: agreement.origin} if agreement.origin else {})},
    )


async def measure(launcher: Launcher, run_dir: Path, topology: Topology, plan: Plan) -> None:
    """Measure what is missing of the run's plan, with progress on stderr."""
    import validation.report  # noqa: F401  (what the report needs is missed before anything is measured)

    shown = make_progress(progress_stream(), expected_s(plan, topology))
    async with ticking(shown), looking_on(launcher, run_dir, plan, shown.said):
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
        info, _, plan = rundir.read(run_dir)
        done = len(acceptance.finished(run_dir))
        click.echo(
            f"interrupted; {done} of {number_of(len(plan.measurements), 'measurement')} {be(done)} finished and kept",
            err=True,
        )
        click.echo(f"continue with: {info.resume(str(run_dir))}", err=True)
    raise SystemExit(Exit.INTERRUPTED)


def tell(
    run: RunFiles,
    verdict: VerdictDoc,
    formats: tuple[str, ...],
    told: Callable[[dict[str, object]], None] | None,
    last: bool = True,
) -> None:
    """Report and print, or hand what would be printed to `told`. The PDF, which takes long, is written before the last
    line, which is the exit code. `last`: the command ends with this verdict.
    """
    run_dir = run.folder
    rundir.remove_reports(run_dir)  # of an earlier verdict: what is not asked for is not there
    quick = [name for name in formats if name != "pdf"]
    with working("writing the report"):
        written = acceptance.write_report(run, quick) if quick else None
    report = written.paths.get("html") if written else None
    if told is not None:
        where = str(report) if report else None
        told({"run_dir": str(run_dir), "report": where, **verdict.model_dump(mode="json")})
    else:
        print_ending(run, verdict, report, details())
    left_out = list(written.left_out.values()) if written else []
    if "pdf" in formats:
        with working("writing report.pdf"):
            left_out += acceptance.write_report(run, ("pdf",)).left_out.values()
    for why in left_out:
        click.echo(why, err=True)
    if told is None and last:
        click.echo(f"exit code {verdict.exit_code}")
