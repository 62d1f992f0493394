"""`toolkit check`: do the nodes hold what site.yml was to give them?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.options import inventory_option, json_option, kept_runs_option
from toolkit.exits import Exit, epilogue
from toolkit.rundir import write_text
from toolkit.working import working
from validation.base.counting import number_of, were
from validation.base.visible import visible

if TYPE_CHECKING:  # loaded when nodes are checked, not for --help
    from toolkit import asbuilt, serials
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
@kept_runs_option
def check(inventory: Path, limit: str | None, junit: Path | None, as_json: bool, runs_dir: Path) -> None:
    """Check that the nodes are as the toolkit built them.

    Looks at services, ports, modules, limits, mounts and versions, and compares the parts by serial number with those
    of the newest signed run of the site: what was replaced, moved, is gone or new. docs/how-to/hardware.md.

    The checks are plain pytest with pytest-testinfra (validation/asbuilt/): they read the inventory and look at the
    nodes over ssh, change nothing, and run without this command too. One line for each node, and one for each check
    that did not pass, with what puts it right.

    \b
    toolkit check                                        the virtual lab
    toolkit check -i inventories/site --limit gpu3,heads
    toolkit check -i inventories/site --junit as-built.xml
    pytest --hosts=ansible://all --ansible-inventory=inventories/site validation/asbuilt    the same without us
    """
    from toolkit import acceptance, asbuilt, serials
    from toolkit.inventory import read_site
    from toolkit.node_groups import groups_of
    from toolkit.progress import duration

    site = read_site(inventory)
    topology = site.topology
    nodes = asbuilt.chosen(topology, limit, groups_of(site))
    with working("looking for the newest signed run"):
        signed = serials.newest_signed(runs_dir, topology.site)
    done, began = 0, time.monotonic()

    def ended(found: asbuilt.Checked) -> None:
        nonlocal done
        done += 1
        said, took = asbuilt.lines(found, inventory)[0], duration(time.monotonic() - began)
        shown.say(f"[{done}/{len(nodes)}] {said}   {took} elapsed")
        shown.now(f"checking, {done} of {number_of(len(nodes), 'node')} done")

    async def work(launcher: Launcher) -> tuple[list[asbuilt.Checked], serials.PartsChecked]:
        found = await asbuilt.check(launcher, topology, nodes, lambda node: shown.say(f"checking {node}"), ended)
        if signed.why:
            return found, serials.PartsChecked(signed, 0)
        shown.now("reading serial numbers")
        now = await serials.read_now(launcher, topology, nodes)
        return found, serials.checked(signed, now, whole=len(nodes) == len(topology.nodes))

    try:
        with working(f"reaching {number_of(len(nodes), 'node')}") as shown:
            found, parts = acceptance.run_async(acceptance.with_launcher(str(inventory), work))
    except acceptance.Interrupted:
        click.echo(
            f"interrupted; {done} of {number_of(len(nodes), 'node')} {were(done)} checked, nothing was changed",
            err=True,
        )
        raise SystemExit(Exit.INTERRUPTED) from None
    if as_json:
        nodes_said = [one.document() for one in found]
        answers.say("check", {"inventory": inventory, "nodes": nodes_said, "parts": parts.document()})
    else:
        _show(found, parts, inventory)
    if junit is not None:
        write_text(junit, asbuilt.junit(found, *([parts.junit()] if parts.signed.record is not None else [])))
    raise SystemExit(_code(found, parts))


def _code(found: Sequence[asbuilt.Checked], parts: serials.PartsChecked) -> Exit:
    codes = {parts.exit_code, *(one.exit_code for one in found)}
    return next((code for code in (Exit.FAILED, Exit.INCOMPLETE) if code in codes), Exit.OK)


def _show(found: Sequence[asbuilt.Checked], parts: serials.PartsChecked, inventory: Path) -> None:
    from toolkit import asbuilt

    width = max(len(one.node) for one in found)
    for one in found:
        for line in asbuilt.lines(one, inventory, width):
            click.echo(line)
    for line in parts.lines():
        click.echo(visible(line), err=parts.signed.record is None)
