"""`toolkit runs`: the runs of this folder, with outcome and signatures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.options import json_option, kept_runs_option
from toolkit.exits import epilogue
from validation.base.visible import visible

if TYPE_CHECKING:  # loaded when runs are listed, not for --help
    from toolkit import runs as listing


@command(epilog=epilogue("runs"))
@json_option
@kept_runs_option
def runs(as_json: bool, runs_dir: Path) -> None:
    """List runs with their outcome and signatures.

    The newest comes first, with its time, fabric, outcome and signers. The names are those in the run's signatures,
    which are not checked here; toolkit verify checks them. A run that was interrupted is "not judged": toolkit validate
    --resume RUN goes on with it, toolkit report RUN judges it.

    \b
    toolkit runs
    toolkit runs --runs-dir /srv/acceptance
    toolkit runs --json | jq -r '.runs[] | select(.outcome == "failed") | .run'
    """
    from toolkit import runs as listing
    from toolkit import tables

    found = listing.rows(runs_dir)
    if as_json:
        answers.say("runs", {"runs": [_document(row) for row in found]})
        return
    if not found:
        click.echo(f"{runs_dir}: no run yet; toolkit validate makes one")
        return
    rows = []
    for row in found:
        when = (row.created or "")[:16].replace("T", " ")
        signed = ", ".join(row.signed) or "no"
        rows.append((row.run, when, row.fabric or "", row.said, "" if row.fault else signed))
    tables.show(("run", "when (UTC)", "fabric", "outcome", "signed"), rows)
    for row in found:
        if row.fault:
            click.echo(f"{visible(row.run)}: {visible(row.fault)}", err=True)


def _document(row: listing.Row) -> dict[str, object]:
    return {
        "run": row.run,
        "path": str(row.folder),
        "created": row.created,
        "site": row.site,
        "fabric": row.fabric,
        "sign_off": row.sign_off,
        "outcome": row.outcome,
        "failed": list(row.failed),
        "signed_by": list(row.signed),
        "fault": row.fault,
    }
