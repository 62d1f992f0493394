"""`toolkit logs`: what a program that goes on alone prints."""

from __future__ import annotations

import sys
from functools import partial

import click

from toolkit.command_class import command
from toolkit.commands.kept_output import Output, leave
from toolkit.exits import epilogue
from toolkit.lease.kept import reading
from toolkit.lease.machine.host import this_host


@command(epilog=epilogue("logs"))
@click.argument("number", type=click.IntRange(min=1), metavar="LEASE")
@click.option("-f", "--follow", is_flag=True, help="Go on until the program ends, and end with its exit code.")
def logs(number: int, follow: bool) -> None:
    """Print the output of a detached program.

    Such a program was started by toolkit run --detach. Its output stays in your home on the machine where it was
    started, also after its end: the newest 16 to 32 MiB of each of your 50 newest programs.

    \b
    toolkit logs 49
    toolkit logs -f 49             until it ends
    toolkit logs 49 > output.txt   byte for byte
    """
    host = this_host()
    kept = reading.find(host, number)
    missing = reading.beginning(kept)
    if missing:
        click.echo(missing, err=True)
    output = Output()
    try:
        end = reading.show(host, kept, output.write, partial(click.echo, err=True), follow)
    except KeyboardInterrupt:
        output.end()
        sys.exit(leave(number, again="logs -f"))
    output.end()
    if end is not None:
        click.echo(end.words, err=True)
        sys.exit(end.code if follow else 0)
