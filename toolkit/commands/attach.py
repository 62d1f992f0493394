"""`toolkit attach`: at a program that goes on alone, as if it had been started here."""

from __future__ import annotations

import sys
from functools import partial

import click

from toolkit.command_class import command
from toolkit.commands.kept_output import Output, leave
from toolkit.exits import epilogue
from toolkit.lease.kept import reading, record
from toolkit.lease.kept.record import Kept
from toolkit.lease.machine.host import this_host

LAST_LINES = 10
"""Of what was printed before."""


def _ends(kept: Kept) -> str:
    """How only the program is ended, whose lease stays."""
    here = kept.status.held and kept.order.host == record.this_machine()
    return f", kill {kept.status.pid} ends it and not its lease" if here else ""


@command(epilog=epilogue("attach"))
@click.argument("number", type=click.IntRange(min=1), metavar="LEASE")
def attach(number: int) -> None:
    """Follow a detached program until it ends.

    Such a program was started by toolkit run --detach. Prints its last 10 lines and what follows, and ends with its
    exit code. Ctrl-C leaves it running.

    \b
    toolkit attach 49
    toolkit lease release 49       ends it
    """
    host = this_host()
    kept, output = reading.find(host, number), Output()
    if not kept.over:
        click.echo(f"lease {number}: {kept.order.program}; Ctrl-C leaves it running{_ends(kept)}", err=True)
    try:
        end = reading.show(host, kept, output.write, partial(click.echo, err=True), follow=True, last_lines=LAST_LINES)
    except KeyboardInterrupt:
        output.end()
        sys.exit(leave(number, again="attach"))
    output.end()
    assert end is not None
    click.echo(end.words, err=True)
    sys.exit(end.code)
