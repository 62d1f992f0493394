"""`toolkit report`: write a run's report again and say where it is."""

from __future__ import annotations

import json
from pathlib import Path

import click

from toolkit import acceptance, rundir
from toolkit.commands.formats import FORMATS, format_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.report_branding import take_branding
from validation.load import ConfigError
from validation.model import VerdictDoc
from validation.runfiles import VERDICT
from validation.signing import is_signed


def _standing(run_dir: Path) -> VerdictDoc:
    """verdict.json; ConfigError where the run's files give another verdict."""
    from validation.signing.again import judged_again  # only here: it loads the report's templates

    verdict, fault = judged_again(run_dir)
    if fault:
        raise ConfigError(
            f"{run_dir / fault}; restore it from a copy, or judge again: toolkit validate --rejudge {run_dir}"
        )
    return verdict


@click.command(epilog=epilogue("report"))
@click.argument("run", required=False)
@format_option()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write there.  [default: into the run]",
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
    run: str | None,
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
    """
    run_dir = rundir.find(runs_dir, run)
    if branding is not None:
        rundir.refuse_signed(run_dir)
        with rundir.lock(run_dir):
            take_branding(branding, run_dir)
    if (run_dir / VERDICT).exists():
        verdict = _standing(run_dir)
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
