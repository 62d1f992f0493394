"""`toolkit report`: write a run's report again and say where it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit import acceptance, answers, campaigns, rundir, traces
from toolkit.command_class import command
from toolkit.commands.formats import FORMATS, format_option
from toolkit.commands.options import details, details_option, json_option, runs_dir_option
from toolkit.ending import print_ending
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.loudness import progress
from toolkit.report_branding import take_branding
from toolkit.working import working
from validation.base.counting import number_of
from validation.run.names import VERDICT
from validation.run.read import read
from validation.signing import is_signed

if TYPE_CHECKING:
    from validation.report import Written


ALL_JOBS = ""
"""`--trace` without the name of a job."""


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
@runs_dir_option
def report(
    names: tuple[str, ...],
    campaign: bool,
    formats: tuple[str, ...],
    out: Path | None,
    branding: Path | None,
    trace: str | None,
    as_json: bool,
    runs_dir: Path,
) -> None:
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
    if trace is not None:
        _trace(names, trace, campaign or branding is not None or formats != FORMATS, out, as_json, runs_dir)
        return
    if out is not None and out.is_file():
        raise UsageFault(f"--out {out}: is a file; name a folder")
    if campaign:
        if branding is not None:
            raise UsageFault("--branding is of one run, not of a campaign")
        made = _campaign(names, formats, out, runs_dir)
        _tell(made, made.document(), made.text, formats, as_json)
        return
    if len(names) > 1:
        raise UsageFault(
            f"{number_of(len(names), 'run')} are named; one page of them all: toolkit report --campaign RUN RUN ..."
        )
    run_dir = rundir.find(runs_dir, names[0] if names else None)
    if branding is not None:
        rundir.refuse_signed(run_dir)
        with rundir.lock(run_dir):
            take_branding(branding, run_dir)
    run = read(run_dir)
    if (run_dir / VERDICT).exists():
        verdict = acceptance.standing(run)
    elif is_signed(run_dir):
        raise UsageFault(f"{run_dir / VERDICT}: is missing, but the run is signed; restore it from a copy")
    else:
        with rundir.lock(run_dir):
            verdict = acceptance.judge_run(run)
        progress("this run was never judged; judging it now")
    if out is None and is_signed(run_dir):
        written = acceptance.signed_report(run, formats, formats != FORMATS)
    else:
        with working("writing the report"):
            written = acceptance.write_report(run, formats, out)
    if not as_json:
        print_ending(run, verdict, written.paths.get("html"), details(), file=sys.stderr)
    keys = ("run", "fabric", "site", "sign_off", "outcome", "headline")
    paths = {name: str(path) for name, path in written.paths.items()}
    answer = {"report": paths.get("html"), "files": paths, "left_out": written.left_out, "run_dir": str(run_dir)}
    _tell(written, {**answer, **verdict.model_dump(include=set(keys))}, "", formats, as_json)


def _trace(names: tuple[str, ...], job: str, more: bool, out: Path | None, as_json: bool, runs_dir: Path) -> None:
    """The trace of a job, or the jobs that have one. `more`: options were given that are of a report alone."""
    if more or len(names) > 1:
        raise UsageFault("--trace JOB is of one run, and takes no --campaign, --branding or --format")
    run = read(rundir.find(runs_dir, names[0] if names else None))
    if job == ALL_JOBS:
        found = traces.listed(run)
        if as_json:
            answers.say("traces", {"run_dir": str(run.folder), "jobs": found})
        else:
            click.echo("\n".join(found))
        return
    text = traces.text(run, job)
    if out is None:
        click.echo(text, nl=False)
        return
    if out.is_dir():
        raise UsageFault(f"--out {out}: is a folder; name a file for the trace")
    rundir.write_text(out, text)
    if as_json:
        answers.say("trace", {"run_dir": str(run.folder), "job": job, "trace": str(out)})
    else:
        click.echo(str(out))


def _campaign(names: tuple[str, ...], formats: tuple[str, ...], out: Path | None, runs_dir: Path) -> campaigns.Made:
    without = [name for name in formats if name not in campaigns.FORMATS]
    if without and formats != FORMATS:
        raise UsageFault(f"{', '.join(without)}: is of one run; a campaign is {', '.join(campaigns.FORMATS)}")
    runs = [rundir.find(runs_dir, name) for name in names]
    with working("writing the page of all runs"):
        return campaigns.make(runs, formats, out, runs_dir)


def _tell(
    written: Written | campaigns.Made, document: dict[str, object], text: str, formats: tuple[str, ...], as_json: bool
) -> None:
    """What was left out, then the document, or the text and where the files are. Exit.USAGE where something that was
    asked for by its name was left out."""
    for why in written.left_out.values():
        click.echo(why, err=True)
    if as_json:
        answers.say("campaign" if isinstance(written, campaigns.Made) else "report", document)
    else:
        if text:
            click.echo(text, err=True)
        for path in written.paths.values():
            click.echo(str(path))
    if written.left_out and formats != FORMATS:
        raise SystemExit(Exit.USAGE)
