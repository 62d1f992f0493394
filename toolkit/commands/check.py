"""`toolkit check`: do the nodes hold what site.yml was to give them?"""

from __future__ import annotations

import time
from pathlib import Path

import click

from toolkit import acceptance, answers, asbuilt
from toolkit.command_class import command
from toolkit.commands.options import inventory_option, json_option
from toolkit.exits import Exit, epilogue
from toolkit.inventory import read_inventory
from toolkit.progress import duration
from toolkit.rundir import write_text
from toolkit.working import working
from validation.base.counting import number_of, were
from validation.execute import Launcher


@command(epilog=epilogue("check"))
@inventory_option
@click.option(
    "--limit", metavar="NODES", help="Check only these nodes, groups or patterns of names, with commas between them."
)
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a JUnit file over all nodes.",
)
@json_option
def check(inventory: Path, limit: str | None, junit: Path | None, as_json: bool) -> None:
    """Check that the nodes are as the toolkit built them.

    Looks at services, ports, modules, limits, mounts and versions.

    The checks are plain pytest with pytest-testinfra (validation/asbuilt/): they read the inventory and look at the
    nodes over ssh, change nothing, and run without this command too. One line for each node, and one for each check
    that did not pass, with what puts it right.

    \b
    toolkit check                                        the virtual lab
    toolkit check -i inventories/site --limit gpu3,heads
    toolkit check -i inventories/site --junit as-built.xml
    pytest --hosts=ansible://all --ansible-inventory=inventories/site validation/asbuilt    the same without us
    """
    topology = read_inventory(inventory)
    nodes = asbuilt.chosen(topology, limit)
    width, began = max(len(node.name) for node in nodes), time.monotonic()
    done = 0

    def begun(node: str) -> None:
        shown.say(f"checking {node}")

    def ended(found: asbuilt.Checked) -> None:
        nonlocal done
        done += 1
        took = duration(time.monotonic() - began)
        shown.say(f"[{done}/{len(nodes)}] {asbuilt.lines(found, inventory)[0]}   {took} elapsed")
        shown.now(f"checking, {done} of {number_of(len(nodes), 'node')} done")

    async def work(launcher: Launcher) -> list[asbuilt.Checked]:
        return await asbuilt.check(launcher, topology, nodes, begun, ended)

    try:
        with working(f"reaching {number_of(len(nodes), 'node')}") as shown:
            found = acceptance.run_async(acceptance.with_launcher(str(inventory), work))
    except acceptance.Interrupted:
        click.echo(
            f"interrupted; {done} of {number_of(len(nodes), 'node')} {were(done)} checked, nothing was changed",
            err=True,
        )
        raise SystemExit(Exit.INTERRUPTED) from None
    if as_json:
        answers.say("check", {"inventory": inventory, "nodes": [one.document() for one in found]})
    for one in () if as_json else found:
        for line in asbuilt.lines(one, inventory, width):
            click.echo(line)
    if junit is not None:
        write_text(junit, asbuilt.junit(found))
    codes = {one.exit_code for one in found}
    raise SystemExit(next((code for code in (Exit.FAILED, Exit.INCOMPLETE) if code in codes), Exit.OK))
