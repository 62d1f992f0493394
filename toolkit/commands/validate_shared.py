"""What `toolkit validate` does for one fabric: a new run, measured; a verdict, reported and said."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import click

from toolkit import acceptance, rundir
from toolkit.agreement import Agreement
from toolkit.deploy.site_state import how_built
from toolkit.exits import Exit
from toolkit.inventory import Site
from toolkit.progress import make_console, make_progress
from toolkit.report_branding import take_branding
from toolkit.verdict_text import print_verdict, resume_command
from validation.execute import Launcher
from validation.fabric import LoadedFabric
from validation.load import Source
from validation.model import Plan, RunInfo, Topology, VerdictDoc
from validation.runfiles import FABRIC, PROFILE


@dataclass(frozen=True)
class Asked:
    """What is to be validated over one fabric: read and found usable before any node is touched."""

    inventory: Path
    site: Site
    loaded: LoadedFabric
    sources: Sequence[Source]
    agreement: Agreement
    branding: Path | None
    plan: Plan

    @property
    def name(self) -> str:
        """Of the fabric."""
        return self.loaded.fabric.name


def measured(asked: Asked, runs_dir: Path) -> Path:
    """Make a new run and measure it; the process ends where it is interrupted."""
    topology, fabric = asked.site.topology, asked.loaded.fabric
    built = how_built(asked.inventory, topology)
    run_dir: Path | None = None

    async def work(launcher: Launcher) -> None:
        nonlocal run_dir
        await acceptance.reach(launcher, topology.nodes)
        await acceptance.refuse_without_rdma(launcher, topology, fabric)
        run_dir = rundir.create(runs_dir, fabric.name)
        with rundir.lock(run_dir):
            named = asked.plan.model_copy(update={"run": run_dir.name})
            info = _info(run_dir, topology, asked.inventory, asked.loaded, named, asked.agreement)
            rundir.begin(
                run_dir, info, topology, named, asked.loaded, asked.sources, asked.site.record, built,
                asked.agreement.files,
            )  # fmt: skip
            take_branding(asked.branding, run_dir)
            click.echo(f"run: {run_dir}", err=True)
            await measure(launcher, run_dir, topology, named)

    try:
        acceptance.run_async(acceptance.with_launcher(str(asked.inventory), work))
    except acceptance.Interrupted:
        interrupted(run_dir)
    assert run_dir is not None
    return run_dir


def _info(
    run_dir: Path, topology: Topology, inventory: Path, loaded: LoadedFabric, plan: Plan, agreement: Agreement
) -> RunInfo:
    return RunInfo(
        run=run_dir.name,
        created=acceptance.utc_now(),
        toolkit_version=version("elastic-ai-toolkit"),
        site=topology.site,
        inventory=str(inventory),
        fabric=loaded.fabric.name,
        suites=plan.suites,
        command=("toolkit", *sys.argv[1:]),
        profile=agreement.profile.name if agreement.profile else None,
        documents={},
        origins={FABRIC: loaded.origin, **({PROFILE: agreement.origin} if agreement.origin else {})},
    )


async def measure(launcher: Launcher, run_dir: Path, topology: Topology, plan: Plan) -> None:
    """Measure what is missing of the run's plan, with progress on stderr."""
    progress = make_progress(sys.stderr)
    await acceptance.measure(launcher, run_dir, topology, plan, progress, acceptance.finished(run_dir))


def interrupted(run_dir: Path | None) -> None:
    """Say what is kept, and how to go on."""
    if run_dir is None:
        click.echo("interrupted before the run began; nothing was measured", err=True)
    else:
        _, _, plan = rundir.read(run_dir)
        done = len(acceptance.finished(run_dir))
        click.echo(f"interrupted; {done} of {len(plan.measurements)} measurements are finished and kept", err=True)
        click.echo(f"continue with: {resume_command(run_dir)}", err=True)
    raise SystemExit(Exit.INTERRUPTED)


def tell(
    run_dir: Path, verdict: VerdictDoc, formats: tuple[str, ...], told: Callable[[dict[str, object]], None] | None
) -> None:
    """Report and print, or hand what would be printed to `told`. The PDF, which takes long, comes when all is said."""
    info, _, _ = rundir.read(run_dir)
    rundir.remove_reports(run_dir)  # of an earlier verdict: what is not asked for is not there
    quick = [name for name in formats if name != "pdf"]
    report = acceptance.write_report(run_dir, quick).paths.get("html") if quick else None
    if told is not None:
        where = str(report) if report else None
        told({"run_dir": str(run_dir), "report": where, **verdict.model_dump(mode="json")})
    else:
        print_verdict(make_console(), info, verdict, run_dir, report)
    if "pdf" in formats:
        for why in acceptance.write_report(run_dir, ("pdf",)).left_out.values():
            click.echo(why, err=True)
