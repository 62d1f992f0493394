"""`toolkit narrow`: a job over many nodes that fails, narrowed down to the nodes at fault."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.lease_shared import Duration
from toolkit.commands.options import json_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.loudness import progress
from validation.base.counting import number_of


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
def narrow(
    nodes: str | None,
    inventory: Path | None,
    group: str,
    limit_s: int,
    at_once: int,
    alone: int,
    out: Path,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
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
    from toolkit.commands.lab_drill import ended_by_term
    from toolkit.narrowing import NODES, Runner

    if not any(place in word for word in command for place in NODES):
        raise UsageFault(f"COMMAND has neither {' nor '.join(NODES)}: each job would run on the same nodes")
    if nodes is not None and inventory is not None:
        raise UsageFault("--nodes names them; omit -i")
    names = [name for name in nodes.split(",") if name] if nodes is not None else _of_group(inventory, group)
    if len(set(names)) != len(names):
        raise UsageFault("a node is named twice")
    if len(names) < max(2, alone):
        raise UsageFault(f"{number_of(len(names), 'node')}: there is nothing to narrow")
    runner = Runner(command, out, at_once, limit_s, progress)
    try:
        with ended_by_term():
            outcome = runner.narrow(names, alone)
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


def _of_group(inventory: Path | None, group: str) -> list[str]:
    """Names of the group's nodes; UsageFault where it has none."""
    from toolkit.inventory import read_inventory

    if inventory is None:
        raise UsageFault("which nodes? --nodes NAME,... or -i INVENTORY")
    found = [node.name for node in read_inventory(inventory).nodes if group in node.groups]
    if not found:
        raise UsageFault(f"{inventory}: no node in group {group}")
    return found
