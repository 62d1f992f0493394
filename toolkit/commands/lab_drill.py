"""`toolkit lab drill`: faults planted, several at once, and what a validation said of each."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.options import json_option
from toolkit.exits import Exit, epilogue
from toolkit.interruption import term_as_ctrl_c
from toolkit.lab.faults import FAULTS
from toolkit.lab.spec import DEFAULT_NAME
from toolkit.loudness import progress


@command(epilog=epilogue("lab drill"), front=("--fault", "--all", "--except", "--clean", "--out", "--json"))
@click.option(
    "--name", default=DEFAULT_NAME, show_default=True, help="Use the lab of this name, which is provisioned already."
)
@click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path, exists=True),
    help="Use another inventory of that lab.  [default: the lab's own]",
)
@click.option(
    "--fault",
    "kinds",
    multiple=True,
    metavar="KIND",
    type=click.Choice(list(FAULTS)),
    help="Plant only this fault; repeatable.",
)
@click.option("--all", "every", is_flag=True, help="Plant every fault that a node of this lab can have.")
@click.option(
    "--except",
    "without",
    multiple=True,
    metavar="KIND",
    type=click.Choice(list(FAULTS)),
    help="Leave out this fault; repeatable.",
)
@click.option(
    "--clean",
    type=click.IntRange(0),
    help="Validate so often without a fault first; without --fault and --all do only that.  [default: 1]",
)
@click.option("--alone", is_flag=True, help="Plant one fault at a time; else several on different nodes.")
@click.option(
    "--narrow", is_flag=True, help="Measure only what finds the faults of each run (clean runs: any fault); quicker."
)
@click.option(
    "--fabric", default="tcp10", show_default=True, help="Validate over this network, as toolkit validate does."
)
@click.option(
    "--suite",
    "suites",
    multiple=True,
    metavar="NAME",
    help="Measure this suite, as toolkit validate does.  [default: what each fault needs]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("drill"),
    show_default=True,
    help="Keep the runs, drill.json and drill.md in this folder; what is in drill.json is not planted again.",
)
@click.option("--anew", is_flag=True, help="Forget what is in drill.json.")
@json_option
def drill(as_json: bool, **given: Any) -> None:
    """Plant faults, validate, clear them; count what was found, localised, named, and blamed falsely.

    Ten faults by default, several at once on different nodes that cannot hide each other. A line for each as it is
    done, the counts at the end, a table in drill.md. Ctrl-C clears what is planted; the same command goes on.

    \b
    toolkit lab up; toolkit deploy; toolkit lab drill
    toolkit lab drill --fault slow-link --fault ecc --clean 0
    toolkit lab drill --all --except noisy-neighbour
    toolkit lab drill --clean 20
    """
    from toolkit.lab.drill import passed, summary  # here, for `toolkit lab ssh` need not wait for the judge
    from toolkit.lab.drill_request import DrillRequest, carry_out

    request = DrillRequest(**given)
    with term_as_ctrl_c():
        try:
            done = carry_out(request, progress)
        except KeyboardInterrupt:
            click.echo("interrupted; what was planted is cleared. The same command goes on with the rest", err=True)
            sys.exit(Exit.INTERRUPTED)
    if as_json:
        answers.say("lab-drill", {"lab": request.name, "drilled": [asdict(d) for d in done], "summary": summary(done)})
    else:
        click.echo(summary(done))
    if not passed(done):
        sys.exit(Exit.FAILED)
