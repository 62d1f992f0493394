"""`toolkit report`: write a run's report again and say where it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkit import answers, rundir
from toolkit.command_class import command
from toolkit.commands.formats import format_option
from toolkit.commands.options import details, details_option, json_option, kept_runs_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.loudness import progress
from toolkit.report_request import ALL_JOBS, CampaignOf, ReportOf, ReportRequest, TraceOf, by_name
from toolkit.working import working
from validation.run.names import VERDICT
from validation.signing import is_signed

if TYPE_CHECKING:  # loaded when a report is written, not for --help
    from toolkit import campaigns
    from validation.model import VerdictDoc
    from validation.report import Written
    from validation.run.read import Run


FRONT = ("--campaign", "--format", "--out", "--branding", "--details", "--json")
"""What --help shows; --help-all shows all options."""


@command(epilog=epilogue("report"), front=FRONT)
@click.argument("names", nargs=-1, metavar="[RUN]...")
@click.option("--campaign", is_flag=True, help="Write one page of several runs of a site, each over its own fabric.")
@format_option()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Write into this folder; with --trace, into this file.  [default: the run; of a campaign, a folder "
    "beside the runs]",
)
@click.option(
    "--branding",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Copy this report.yml (customer, logo, language) into the run first.",
)
@click.option(
    "--trace",
    metavar="[JOB]",
    is_flag=False,
    flag_value=ALL_JOBS,
    help="Print the trace of a training job, for chrome://tracing; without JOB, list the jobs that have one.",
)
@details_option
@json_option
@kept_runs_option
def report(as_json: bool, **given: Any) -> None:
    """Write the report of a run.

    Without RUN it is the newest. Prints where the files are: report.html is one file that needs no network, report.pdf
    the same for paper, report.json all of it for programs, junit.xml for continuous integration, metrics.prom for
    Prometheus. A run that was interrupted is judged as it stands, which makes it INCOMPLETE. Nothing is written into a
    signed run: its report is named as it stands, and --out writes a new one elsewhere.

    \b
    toolkit report
    toolkit report runs/2026-11-21T10-15-00Z-tcp10
    toolkit report --format html,pdf --out /tmp/handover
    toolkit report --branding customer/report.yml
    toolkit report --details                             every criterion, and why
    toolkit report --json | jq -r .report
    toolkit report --campaign RUN_TCP10 RUN_ROCE10 RUN_ROCE40    several fabrics side by side, as HTML, PDF and JSON
    \f

    \b
    toolkit report --trace                     training jobs that left a trace of a few steps
    toolkit report RUN --trace training-short.resnet50-b128-fp16.inter --out trace.json
    """
    asked = ReportRequest(**given).checked()
    if isinstance(asked, TraceOf):
        _trace(asked, as_json)
    elif isinstance(asked, CampaignOf):
        _campaign(asked, as_json)
    else:
        _report(asked, as_json)


def _report(asked: ReportOf, as_json: bool) -> None:
    from toolkit import acceptance
    from toolkit.ending import print_ending
    from toolkit.report_branding import take_branding
    from validation.run.read import read

    run_dir = rundir.find(asked.runs_dir, asked.run)
    if asked.branding is not None:
        rundir.refuse_signed(run_dir)
        with rundir.lock(run_dir):
            take_branding(asked.branding, run_dir)
    run = read(run_dir)
    verdict = _verdict(run)
    if asked.out is None and is_signed(run_dir):
        written = acceptance.signed_report(run, asked.formats, by_name(asked.formats))
    else:
        with working("writing the report"):
            written = acceptance.write_report(run, asked.formats, asked.out)
    if not as_json:
        print_ending(run, verdict, written.paths.get("html"), details(), file=sys.stderr)
    keys = ("run", "fabric", "site", "sign_off", "outcome", "headline")
    paths = {name: str(path) for name, path in written.paths.items()}
    answer = {"report": paths.get("html"), "files": paths, "left_out": written.left_out, "run_dir": str(run_dir)}
    _show_left_out(written)
    if as_json:
        answers.say("report", {**answer, **verdict.model_dump(include=set(keys))})
    _show_files(written, asked.formats, as_json)


def _verdict(run: Run) -> VerdictDoc:
    """The run's own; one that was interrupted is judged as it stands."""
    from toolkit import acceptance

    if (run.folder / VERDICT).exists():
        return acceptance.standing(run)
    if is_signed(run.folder):
        raise UsageFault(f"{run.folder / VERDICT}: is missing, but the run is signed; restore it from a copy")
    with rundir.lock(run.folder):
        verdict = acceptance.judge_run(run)
    progress("this run was never judged; judging it now")
    return verdict


def _trace(asked: TraceOf, as_json: bool) -> None:
    from toolkit import traces
    from validation.run.read import read

    run = read(rundir.find(asked.runs_dir, asked.run))
    if asked.job == ALL_JOBS:
        found = traces.listed(run)
        if as_json:
            answers.say("traces", {"run_dir": str(run.folder), "jobs": found})
        else:
            click.echo("\n".join(found))
        return
    text = traces.text(run, asked.job)
    if asked.out is None:
        click.echo(text, nl=False)
        return
    if asked.out.is_dir():
        raise UsageFault(f"--out {asked.out}: is a folder; name a file for the trace")
    rundir.write_text(asked.out, text)
    if as_json:
        answers.say("trace", {"run_dir": str(run.folder), "job": asked.job, "trace": str(asked.out)})
    else:
        click.echo(str(asked.out))


def _campaign(asked: CampaignOf, as_json: bool) -> None:
    from toolkit import campaigns

    runs = [rundir.find(asked.runs_dir, name) for name in asked.runs]
    with working("writing the page of all runs"):
        made = campaigns.make(runs, asked.formats, asked.out, asked.runs_dir)
    _show_left_out(made)
    if as_json:
        answers.say("campaign", made.document())
    elif made.text:
        click.echo(made.text, err=True)
    _show_files(made, asked.formats, as_json)


def _show_left_out(written: Written | campaigns.Made) -> None:
    for why in written.left_out.values():
        click.echo(why, err=True)


def _show_files(written: Written | campaigns.Made, formats: Sequence[str], as_json: bool) -> None:
    """Where the files are. Exit.USAGE where something that was asked for by its name was left out."""
    for path in () if as_json else written.paths.values():
        click.echo(str(path))
    if written.left_out and by_name(formats):
        raise SystemExit(Exit.USAGE)
