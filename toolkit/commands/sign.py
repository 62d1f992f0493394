"""`toolkit sign`: sign a run with an OpenSSH key."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

from toolkit import answers, rundir
from toolkit.command_class import command
from toolkit.commands.options import json_option, kept_runs_option
from toolkit.exits import epilogue
from toolkit.loudness import progress
from toolkit.working import working


@command(epilog=epilogue("sign"))
@click.argument("run", required=False)
@click.option(
    "--key", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Sign with this OpenSSH key."
)
@click.option("--as", "who", required=True, metavar='"NAME, COMPANY"', help="Name who signs.")
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DAY",
    help="Give the paper this last day, as 2027-06-30.  [default: 365 days after the run]",
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="FILE",
    help="Sign although this file of the run may contain a secret; the statement names it. Repeatable.",
)
@json_option
@kept_runs_option
def sign(run: str | None, key: Path, who: str, as_json: bool, runs_dir: Path, **given: Any) -> None:
    """Sign a run with an SSH key.

    It is signed as what it was judged to be. Without RUN it is the newest. The first signer's report is written again,
    every file of the run is listed with its hash in MANIFEST.sha256, and a statement about that is signed. Who signs
    later signs the same manifest; where a file changed, nobody can any more. A rehearsal can be signed as a rehearsal
    only, an incomplete run as incomplete. From the first signature on nothing is written into the run.

    FILE is a private key (its passphrase is asked for on the terminal), or a public key whose private half is in
    ssh-agent or on a security key.

    \b
    toolkit sign --key ~/.ssh/id_ed25519 --as "A. Example, Integrator"
    toolkit sign runs/2026-11-21T10-15-00Z-tcp10 --key ~/.ssh/id_ed25519.pub --as "C. Customer, Example Bank"
    """
    from toolkit import prepare_signing
    from validation.signing import ssh
    from validation.signing.sign import sign_run
    from validation.signing.statement import signer

    run_dir = rundir.find(runs_dir, run)
    name, company = signer(who)
    found = ssh.read_key(key.expanduser())
    with rundir.lock(run_dir):
        with working("writing the report again") as shown:
            prepare_signing.complete(run_dir, shown.say)
        if found.on_token:
            click.echo("touch the security key when it blinks", err=True)
        signed = sign_run(run_dir, key.expanduser(), name, company, given["allowed"], until=_day(given["until"]))
    statement = signed.statement
    for note in signed.notes:
        click.echo(f"note: {note}", err=True)
    if as_json:
        certificate = None if signed.certificate is None else str(signed.certificate)
        said = {**asdict(statement), "certificate": certificate}
        answers.say("signature", {"run_dir": str(run_dir), "signed": str(signed.path), **said})
        return
    click.echo(statement.headline)
    click.echo(f"signed by {statement.name}, {statement.company}, {statement.time}, key {statement.key}")
    click.echo(f"rules: {statement.rules}")
    click.echo(f"holds until {statement.last_day}")
    for file in statement.allowed:
        click.echo(f"kept although it may contain a secret: {file}")
    click.echo(str(signed.path))
    if signed.certificate is not None:
        click.echo(f"certificate: {signed.certificate}")
    progress(f"next: toolkit bundle {shlex.quote(str(run_dir))}")


def _day(until: datetime | None) -> date | None:
    return None if until is None else until.date()
