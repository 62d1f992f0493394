"""`toolkit status`: how a site is, on one screen."""

from __future__ import annotations

from pathlib import Path

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.options import inventory_option, json_option, kept_runs_option
from toolkit.exits import Exit, epilogue
from toolkit.working import working
from validation.base.counting import number_of
from validation.base.visible import visible


@command(epilog=epilogue("status"))
@inventory_option
@click.option("--details", is_flag=True, help="Print every single thing behind a line.")
@json_option
@kept_runs_option
def status(inventory: Path, details: bool, as_json: bool, runs_dir: Path) -> None:
    """Show how a site is, on one screen.

    Nodes that answer and their release, what changed since the deployment, waiting reboots, failed units, the pool and
    its leases, the last validation and its paper, punch list, alerts, certificates, backups, and what was begun and not
    finished. Nothing is changed, and nothing is measured; a line that is not "ok" says what to do.

    All nodes are asked at once by ssh; what runs, papers and deployments are concerned, this machine's own are read.
    Signatures are not checked here (toolkit verify), nor what was deployed beyond packages and files (toolkit check).

    \b
    toolkit status                                   the virtual lab
    toolkit status -i inventories/site --details
    toolkit status -i inventories/site --json | jq '.lines[] | select(.state == "bad")'
    """
    from toolkit.inventory import read_inventory
    from toolkit.status.lines import exit_of, lines
    from toolkit.status.looked import look

    topology = read_inventory(inventory)
    try:
        with working(f"reading the site, {number_of(len(topology.nodes), 'node')}") as shown:
            seen = look(inventory, topology, runs_dir, shown.now)
    except KeyboardInterrupt:
        click.echo("interrupted; nothing was changed", err=True)
        raise SystemExit(Exit.INTERRUPTED) from None
    found = lines(seen)
    if as_json:
        said = [
            {"topic": line.topic, "state": line.state, "words": line.words, "do": line.do, "about": list(line.about)}
            for line in found
        ]
        answers.say("status", {"site": seen.site, "when": seen.when.isoformat(timespec="seconds"), "lines": said})
        raise SystemExit(exit_of(found))
    width = max(len(line.topic) for line in found)
    click.echo(f"site {visible(seen.site)}, {seen.when:%Y-%m-%d %H:%M} UTC")
    for line in found:
        mark = "" if line.state == "ok" else f"{line.state.upper()}: "
        click.echo(f"{line.topic:<{width}}  {mark}{visible(line.words)}")
        for one in line.about if details else line.about[:3] if line.state in ("bad", "unknown") else ():
            click.echo(f"{'':<{width}}    {visible(one)}")
        if not details and line.state in ("bad", "unknown") and len(line.about) > 3:
            click.echo(f"{'':<{width}}    and {len(line.about) - 3} more (--details)")
        if line.do:
            click.echo(f"{'':<{width}}  -> {line.do}")
    raise SystemExit(exit_of(found))
