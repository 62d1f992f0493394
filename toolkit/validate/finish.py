"""A measured run is judged, reported and told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from toolkit import acceptance, answers, rundir
from toolkit.ending import print_ending
from toolkit.exits import Exit
from toolkit.validate.request import Output
from toolkit.working import working
from validation.model import VerdictDoc
from validation.run.read import Run, read


def finish(run_dir: Path, output: Output) -> None:
    """Judge, report, print, and end with the verdict's exit code."""
    run = read(run_dir)
    with working("judging"):
        verdict = acceptance.judge_run(run)
    tell(run, verdict, output, (lambda document: answers.say("verdict", document)) if output.as_json else None)
    raise SystemExit(Exit(verdict.exit_code))


def tell(
    run: Run,
    verdict: VerdictDoc,
    output: Output,
    take: Callable[[dict[str, object]], None] | None,
    last: bool = True,
) -> None:
    """Report and print, or hand what would be printed to `take`. The PDF, which takes long, is written before the last
    line, which is the exit code. `last`: the command ends with this verdict.
    """
    run_dir = run.folder
    rundir.remove_reports(run_dir)  # of an earlier verdict: what is not asked for is not there
    quick = [name for name in output.formats if name != "pdf"]
    with working("writing the report"):
        written = acceptance.write_report(run, quick) if quick else None
    report = written.paths.get("html") if written else None
    if take is not None:
        where = str(report) if report else None
        take({"run_dir": str(run_dir), "report": where, **verdict.model_dump(mode="json")})
    else:
        print_ending(run, verdict, report, output.details)
    left_out = list(written.left_out.values()) if written else []
    if "pdf" in output.formats:
        with working("writing report.pdf"):
            left_out += acceptance.write_report(run, ("pdf",)).left_out.values()
    for why in left_out:
        click.echo(why, err=True)
    if take is None and last:
        click.echo(f"exit code {verdict.exit_code}")
