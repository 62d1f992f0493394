"""`toolkit` on machines of the pool: the commands that use GPUs, and nothing that provisions."""

from __future__ import annotations

import sys

import click

from toolkit.commands.gpus import gpus
from toolkit.commands.lease import lease
from toolkit.commands.run import run


@click.group()
def cli() -> None:
    """Use the pool's GPUs from this machine.

    \b
    toolkit gpus                              what there is, and who has it
    toolkit run -n 2 -p 0.5 -- python x.py    two halves for one program
    toolkit lease request -n 4 --hours 2      GPUs for longer
    """


for command in (gpus, run, lease):
    cli.add_command(command)


def main() -> None:
    """Entry point: every known error is one line on stderr."""
    try:
        cli.main(prog_name="toolkit", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as fault:
        fault.show()
        sys.exit(fault.exit_code)
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
