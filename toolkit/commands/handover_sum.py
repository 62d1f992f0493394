"""`toolkit handover sum` and `check-sum`: several signed runs of units on one signed page."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.options import json_option, kept_runs_option
from toolkit.exits import Exit, epilogue
from toolkit.working import working
from validation.base.counting import number_of
from validation.base.visible import visible


@command("sum", epilog=epilogue("handover sum"))
@click.argument("runs", nargs=-1, required=True, metavar="RUN|BUNDLE...")
@click.option("--key", required=True, type=click.Path(path_type=Path), metavar="FILE",
              help="Sign with this OpenSSH key.")  # fmt: skip
@click.option("--as", "who", required=True, metavar='"NAME, COMPANY"', help="Name who signs.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FOLDER",
              help="Write page, data and signature into this new folder.")  # fmt: skip
@click.option("-i", "--inventory", type=click.Path(path_type=Path),
              help="Name the nodes of this inventory that are in no unit.")  # fmt: skip
@json_option
@kept_runs_option
def sum_(runs: tuple[str, ...], key: Path, who: str, out: Path, as_json: bool, **given: Any) -> None:
    """Put the signed runs of several units on one signed page.

    A unit is a run of its own nodes: of an inventory's group, by toolkit validate --unit GROUP. Each run is verified.
    Refused are units that share a node or server, runs of other sites, fabrics, releases, profiles or criteria, and
    runs that are unsigned, changed, expired, or did not pass. The page lists what no unit covers.

    \b
    toolkit validate --unit rack1 -i inventories/SITE; toolkit sign --key KEY --as "A. Example, Integrator"
    toolkit handover sum RUN1 RUN2.zip --key KEY --as "A. Example, Integrator" --out sum -i inventories/SITE
    """
    from toolkit.handover.summing import summed
    from validation.signing import ssh
    from validation.signing.statement import signer
    from validation.signing.sum_paper import write_sum

    name, company = signer(who)
    found = ssh.read_key(key.expanduser())
    with working("verifying the units") as shown:
        document = summed(given["runs_dir"], runs, given["inventory"], shown.now)
    if found.on_token:
        click.echo("touch the security key when it blinks", err=True)
    signed = write_sum(out, document, found, name, company, datetime.now(timezone.utc))
    if as_json:
        answers.say("sum", {"folder": str(out), "sum": document.model_dump(mode="json")})
        return
    click.echo(f"{document.sign_off}: {number_of(len(document.units), 'unit')}, {number_of(document.nodes, 'node')}, "
               f"holds until {document.last_day}")  # fmt: skip
    for words in document.not_covered:
        click.echo(visible(f"not covered: {words}"))
    click.echo(str(signed))


@command("check-sum", epilog=epilogue("handover check-sum"))
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("runs", nargs=-1, metavar="[RUN|BUNDLE...]")
@click.option("-i", "--inventory", type=click.Path(path_type=Path),
              help="Use this inventory, where the sum was made with one.")  # fmt: skip
@json_option
@kept_runs_option
def check_sum(folder: Path, runs: tuple[str, ...], inventory: Path | None, as_json: bool, runs_dir: Path) -> None:
    """Check the signed page of a sum, and with its runs the sum itself.

    \b
    toolkit handover check-sum sum RUN1.zip RUN2.zip -i inventories/SITE
    """
    from toolkit.handover.summing import summed_again
    from validation.signing.last_day import expired
    from validation.signing.sum_paper import check_sum as check

    found = check(folder)
    faults, again, unchecked = list(found.faults), False, tuple[str, ...]()
    if runs and found.document is not None and not faults:
        with working("verifying the units") as shown:
            made = summed_again(runs_dir, runs, inventory, shown.now, found.document)
        again, unchecked = not made.open, made.open
        if made.fault:
            faults.append("sum.json: is not what these runs come to")
    old = found.document is not None and expired(found.document.last_day, datetime.now(timezone.utc).date())
    answer = "not-intact" if faults else "expired" if old else "intact" if again else "not-checked"
    if as_json:
        answers.say("sum-checked", {"answer": answer, "faults": faults, "signer": found.signer, "unchecked": unchecked,
                                    "last_day": found.document.last_day if found.document else None})  # fmt: skip
    else:
        for words in faults:
            click.echo(visible(f"  {words}"))
        click.echo(visible(f"signed by {found.signer}: {found.why}"))
        if unchecked:
            click.echo("checked: units, nodes, figures, signers and last day are those of these runs")
        for words in unchecked:
            click.echo(visible(f"  not checked: {words}"))
        click.echo({
            "not-intact": "NOT INTACT: it is not as it was signed, or not the sum of these runs",
            "expired": "EXPIRED: as it was signed; its last day has passed",
            "not-checked": "NOT ALL CHECKED: the page is as it was signed; "
            + ("-i with the inventory that it was made with, and that machine, show the rest" if unchecked
               else "name its runs to add them up again"),
            "intact": "INTACT: as it was signed, and the sum of these runs",
        }[answer])  # fmt: skip
    codes = {"not-intact": Exit.FAILED, "expired": Exit.INCOMPLETE, "not-checked": Exit.INCOMPLETE}
    raise SystemExit(codes.get(answer, Exit.OK))
