"""`toolkit report`: write a run's report again and say where it is."""

from __future__ import annotations

import json
from pathlib import Path

import click

from toolkit import acceptance, campaigns, rundir
from toolkit.commands.formats import FORMATS, format_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.report_branding import take_branding
from validation.runfiles import VERDICT
from validation.signing import is_signed


@click.command(epilog=epilogue("report"))
@click.argument("names", nargs=-1, metavar="[RUN]...")
@click.option("--campaign", is_flag=True, help="One page of several runs of a site, each over its own fabric.")
@format_option()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write there.  [default: into the run; a campaign: a folder beside the runs]",
)
@click.option(
    "--branding",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="report.yml (customer, logo, language), copied into the run first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.option(
    "--runs-dir", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Folder of the runs."
)
def report(
    names: tuple[str, ...],
    campaign: bool,
    formats: tuple[str, ...],
    out: Path | None,
    branding: Path | None,
    as_json: bool,
    runs_dir: Path,
) -> None:
    """Write the report of a run (default: the newest) and print where it is.

    report.html is one file that needs no network, report.pdf the same for paper, report.json all of it for programs,
    junit.xml for continuous integration, metrics.prom for Prometheus. A run that was interrupted is judged as it
    stands, which makes it INCOMPLETE. Nothing is written into a signed run; give --out there.

    \b
    toolkit report
    toolkit report runs/2026-11-21T10-15-00Z-tcp10
    toolkit report --format html,pdf --out /tmp/handover
    toolkit report --branding customer/report.yml
    toolkit report --json | jq -r .report
    toolkit report --campaign RUN_TCP10 RUN_ROCE10 RUN_ROCE40    several fabrics side by side, as HTML, PDF and JSON
    """
    if campaign:
        _campaign(names, formats, out, branding, as_json, runs_dir)
        return
    if len(names) > 1:
        raise UsageFault(f"{len(names)} runs are named; one page of them all: toolkit report --campaign RUN RUN ...")
    run_dir = rundir.find(runs_dir, names[0] if names else None)
    if branding is not None:
        rundir.refuse_signed(run_dir)
        with rundir.lock(run_dir):
            take_branding(branding, run_dir)
    if (run_dir / VERDICT).exists():
        verdict = acceptance.standing(run_dir)
    elif is_signed(run_dir):
        raise UsageFault(f"{run_dir / VERDICT}: is missing, but the run is signed; restore it from a copy")
    else:
        with rundir.lock(run_dir):
            verdict = acceptance.judge_run(run_dir)
        click.echo("this run was never judged; judging it now", err=True)
    written = acceptance.write_report(run_dir, formats, out)
    for why in written.left_out.values():
        click.echo(why, err=True)
    if as_json:
        keys = ("run", "fabric", "site", "sign_off", "outcome", "headline")
        paths = {name: str(path) for name, path in written.paths.items()}
        answer = {"report": paths.get("html"), "files": paths, "left_out": written.left_out, "run_dir": str(run_dir)}
        click.echo(json.dumps({**answer, **verdict.model_dump(include=set(keys))}))
    else:
        click.echo(verdict.line, err=True)
        for path in written.paths.values():
            click.echo(str(path))
    if written.left_out and formats != FORMATS:
        raise SystemExit(Exit.USAGE)


def _campaign(
    names: tuple[str, ...],
    formats: tuple[str, ...],
    out: Path | None,
    branding: Path | None,
    as_json: bool,
    runs_dir: Path,
) -> None:
    if branding is not None:
        raise UsageFault("--branding is of one run, not of a campaign")
    without = [name for name in formats if name not in campaigns.FORMATS]
    if without and formats != FORMATS:
        raise UsageFault(f"{', '.join(without)}: is of one run; a campaign is {', '.join(campaigns.FORMATS)}")
    made = campaigns.make([rundir.find(runs_dir, name) for name in names], formats, out, runs_dir)
    for why in made.left_out.values():
        click.echo(why, err=True)
    if as_json:
        click.echo(json.dumps(made.document()))
    else:
        click.echo(made.text, err=True)
        for path in made.paths.values():
            click.echo(str(path))
    if made.left_out and formats != FORMATS:
        raise SystemExit(Exit.USAGE)
