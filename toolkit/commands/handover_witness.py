"""`toolkit handover witness`: a person is led through the tests that need hands, and what happens is measured."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from toolkit.command_class import command
from toolkit.commands.options import inventory_option, runs_dir_option
from toolkit.exits import Exit, epilogue
from toolkit.working import working
from validation.base.counting import number_of
from validation.base.visible import visible


@command("witness", epilog=epilogue("handover witness"))
@click.argument("run", required=False)
@click.option("--fabric", metavar="NAME", help="Make a new run over this network.  [default: the inventory's]")
@inventory_option
@runs_dir_option
def witness(run: str | None, fabric: str | None, inventory: Path, runs_dir: Path) -> None:
    """Lead a witness through tests that need hands, and measure them.

    It says what to pull or switch off, and watches meanwhile: nodes by ssh, links, BMCs, Slurm. Seconds until it is
    seen, what is lost, and seconds until all is back go into the run, with the witness's name and remark. Broken off,
    it goes on with the step where it was. A site's own tests: witness.yml beside the inventory, docs/how-to/witness.md.

    \b
    toolkit handover witness -i inventories/SITE            a new run
    toolkit handover witness                                goes on, where one was broken off
    toolkit validate --suite preflight --suite witness; toolkit handover witness RUN
    """
    from toolkit import acceptance, rundir
    from toolkit.handover.witness_list import lead_list
    from toolkit.handover.witness_run import run_of, watching
    from toolkit.handover.witnessing import Talk
    from toolkit.interruption import term_as_ctrl_c
    from toolkit.report_request import FORMATS
    from toolkit.validate.finish import finish
    from toolkit.validate.request import Output

    run_dir = run_of(runs_dir, run, inventory, fabric)
    rundir.refuse_signed(run_dir)
    with rundir.lock(run_dir):
        with working("finding what can be watched"):
            senses = watching(run_dir)
        with term_as_ctrl_c():
            listed = lead_list(run_dir, Talk(_say, _ask), senses)
        if listed.broken:
            _say(f"broken off at test {listed.broken}; {number_of(listed.left, 'test')} left")
            _say(f"go on with: toolkit handover witness {run_dir}")
            acceptance.judge_run(run_dir)
            acceptance.write_report(run_dir, ("html", "json"))
            raise SystemExit(Exit.INTERRUPTED)
        finish(run_dir, Output(tuple(FORMATS)))


def _say(words: str) -> None:
    click.echo(visible(words))


def _ask(words: str) -> str:
    """A line of the person at the rack; EOFError where there is none any more."""
    click.echo(visible(words), nl=False)
    line = sys.stdin.readline()
    if not line:
        click.echo()
        raise EOFError
    return line.rstrip("\n")
