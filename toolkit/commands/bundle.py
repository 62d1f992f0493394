"""`toolkit bundle`: one file for the customer."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from toolkit import answers, rundir
from toolkit.command_class import command
from toolkit.commands.options import json_option, kept_runs_option
from toolkit.exits import epilogue
from toolkit.loudness import progress
from toolkit.working import working


@command(epilog=epilogue("bundle"))
@click.argument("run", required=False)
@click.option(
    "-o",
    "--out",
    "--output",
    "output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write into this file.  [default: RUN.zip]",
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="FILE",
    help="Continue although this file of the run may contain a secret. Repeatable.",
)
@json_option
@kept_runs_option
def bundle(run: str | None, output: Path | None, allowed: tuple[str, ...], as_json: bool, runs_dir: Path) -> None:
    """Pack a run into one file for the customer.

    The ZIP file has report, data, logs, inventory without secrets, and signatures. Without RUN it is the newest. It
    opens anywhere; README.txt in it says how to check it without this toolkit. Any change of any byte is found by
    toolkit verify. Sign first: a bundle of a run that nobody signed proves nothing.

    \b
    toolkit bundle
    toolkit bundle runs/2026-11-21T10-15-00Z-tcp10 -o handover.zip
    toolkit bundle --json | jq -r .bundle
    """
    from toolkit import prepare_signing
    from validation.signing.pack import bundle_run

    run_dir = rundir.find(runs_dir, run)
    with rundir.lock(run_dir), working("packing") as shown:
        prepare_signing.complete(run_dir, shown.say)
        made = bundle_run(run_dir, output, allowed)
    if not made.signatures:
        click.echo("note: nobody has signed this run; see: toolkit sign --help", err=True)
    for file in made.allowed:
        click.echo(f"note: it contains a file that may hold a secret: {file}", err=True)
    if as_json:
        document = {"bundle": str(made.path), "run_dir": str(run_dir), "size_bytes": made.size_bytes}
        answers.say("bundle", {**document, "files": made.files, "signatures": made.signatures})
        return
    click.echo(str(made.path))
    progress(f"next: toolkit verify {shlex.quote(str(made.path))} --allowed-signers FILE")
