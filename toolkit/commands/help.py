"""`toolkit help`: a command's help, or the first hour."""

from __future__ import annotations

import click

from toolkit.command_class import command
from toolkit.errors import UsageFault, or_nearest

FIRST_HOUR = "first-hour"
STEPS = """\
The first hour, on one Debian machine with root (in a checkout bin/rehearse does all of it by itself):

  toolkit lab up                          a virtual lab: head, client1, gpu1, gpu2
  toolkit deploy                          provision its nodes
  toolkit validate --fabric tcp10         measure and judge them; ends with a verdict
  toolkit report                          where the report is; open report.html in a browser

Break something, and see whether it is found:

  toolkit lab fault set gpu2 slow-link    one link at a tenth of its rate
  toolkit validate --fabric tcp10         fails, and names the port of gpu2
  toolkit lab fault clear gpu2

Hand a run over (of a lab: a rehearsal, never an acceptance):

  toolkit sign --key ~/.ssh/id_ed25519 --as "NAME, COMPANY"
  toolkit bundle                          one file: report, data, logs, signatures
  toolkit lab down

Without a lab: toolkit validate --here measures this machine by itself.
"""


@command()
@click.argument("topic", nargs=-1)
@click.pass_context
def help(ctx: click.Context, topic: tuple[str, ...]) -> None:
    """Explain a command, or the first hour.

    \b
    toolkit help first-hour
    toolkit help validate
    toolkit help lab fault
    """
    if topic == (FIRST_HOUR,):
        click.echo(STEPS, nl=False)
        return
    here = ctx.find_root()
    for word in topic:
        if not isinstance(here.command, click.Group):
            raise UsageFault(f"{here.command_path} has no commands of its own; see: {here.command_path} --help")
        found = here.command.get_command(here, word)
        if found is None:
            known = here.command.list_commands(here)
            first = [FIRST_HOUR] if here.parent is None else []
            raise UsageFault(f"there is no command {' '.join(topic)!r}; {or_nearest(word, [*known, *first])}")
        here = found.context_class(found, parent=here, info_name=word)
    click.echo(here.get_help())
