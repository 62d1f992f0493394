"""`toolkit report`: write a run's report again and say where it is."""

from __future__ import annotations

import json
from pathlib import Path

import click

from toolkit import acceptance, rundir
from validation.load import load_json
from validation.model import VerdictDoc


@click.command()
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.option(
    "--runs-dir", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Where runs are kept."
)
def report(run: str | None, as_json: bool, runs_dir: Path) -> None:
    """Write the report of a run (default: the newest) and print where it is.

    The report is one HTML file that needs no network. A run that was interrupted is judged as it stands, which makes
    it INCOMPLETE. Exit code 0 means that the report was written, whatever its verdict is.

    \b
    toolkit report
    toolkit report runs/2026-11-21T10-15-00Z-tcp10
    toolkit report --json | jq -r .report
    """
    run_dir = rundir.find(runs_dir, run)
    with acceptance.clear_faults():
        if (run_dir / rundir.VERDICT).exists():
            verdict = load_json(run_dir / rundir.VERDICT, VerdictDoc)
        else:
            with rundir.lock(run_dir):
                verdict = acceptance.judge_run(run_dir)
            click.echo("this run was never judged; judged as it stands", err=True)
        path = acceptance.write_report(run_dir)
    if as_json:
        keys = ("run", "fabric", "site", "sign_off", "outcome", "headline")
        click.echo(json.dumps({"report": str(path), "run_dir": str(run_dir), **verdict.model_dump(include=set(keys))}))
        return
    click.echo(verdict.headline, err=True)
    click.echo(str(path))
