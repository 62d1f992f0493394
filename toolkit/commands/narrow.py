"""`toolkit narrow`: a job over many nodes that fails, narrowed down to the nodes at fault."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.lease_shared import Duration
from toolkit.commands.options import json_option
from toolkit.exits import Exit, epilogue
from toolkit.interruption import term_as_ctrl_c
from toolkit.loudness import progress


@command(epilog=epilogue("narrow"), context_settings={"allow_interspersed_args": False})
@click.option("--nodes", metavar="NAME,...", help="Name the nodes of the job that failed.  [default: the group's]")
@click.option(
    "-i", "--inventory", type=click.Path(path_type=Path), help="Read the group from this inventory, without --nodes."
)
@click.option(
    "--group", default="gpu_servers", show_default=True, help="Take the nodes of this group of the inventory."
)
@click.option("--time", "limit_s", type=Duration(bare=True), default="10m", show_default=True, metavar="TIME",
              help="Take a job that runs longer for failed, as 90s or 10m; a number alone is seconds.")  # fmt: skip
@click.option(
    "--at-once", type=click.IntRange(1), default=16, show_default=True, help="Run at most this many jobs at a time."
)
@click.option(
    "--alone", type=click.IntRange(1), default=2, show_default=True, help="Give each job at least this many nodes."
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("narrow"), show_default=True,
              help="Keep what each job prints in this folder.")  # fmt: skip
@json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def narrow(as_json: bool, **given: Any) -> None:
    """Find the nodes at fault in a job that fails.

    Runs as few smaller jobs as possible.

    Group testing: groups of about the square root of all nodes first, those that fail are halved, and nobody is named
    before it failed with two different nodes that are known to be good. Jobs of a round have no node in common and run
    at the same time. Of 232 nodes with 5 at fault it takes 55 jobs at most, where all pairs are 26,796.

    COMMAND is run for each, with {nodes} (names with commas between them), {count} and {hostfile} (a file with a name
    on each line) replaced; it works where it ends with 0. What waits for a dead node waits as long as --time.

    \b
    toolkit narrow -i inventories/site -- srun -N {count} -w {nodes} all_reduce_perf -b 1G -e 1G
    toolkit narrow --nodes n1,n2,n3,n4 -- mpirun --hostfile {hostfile} ./job
    """
    from toolkit.narrowing import NarrowRequest  # here, for an inventory's reader is slow to load

    try:
        with term_as_ctrl_c():
            outcome = NarrowRequest(**given).narrow(progress)
    except KeyboardInterrupt:
        click.echo("interrupted; what was running has ended", err=True)
        sys.exit(Exit.INTERRUPTED)
    if as_json:
        answers.say("narrowed", {**asdict(outcome), "words": outcome.words})
    else:
        click.echo(outcome.words)
    if outcome.bad or outcome.nobody_good:
        sys.exit(Exit.FAILED)
    if outcome.unsettled:
        sys.exit(Exit.INCOMPLETE)
