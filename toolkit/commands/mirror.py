"""`toolkit mirror`: what a hall without internet needs, on a medium."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.command_class import group
from toolkit.commands.options import inventory_option
from toolkit.exits import Exit, epilogue
from toolkit.interruption import term_as_ctrl_c
from toolkit.working import duration, working
from validation.base.counting import number_of

if TYPE_CHECKING:  # loaded when a mirror is planned, not for --help
    from toolkit.mirror.documents import Plan

sources_option = click.option(
    "--sources", multiple=True, metavar="SYSTEM=FILE",
    help="Take the packages of a system, as ubuntu2404, from the entries in this file of apt or dnf. Repeatable.",
)  # fmt: skip
at_option = click.option(
    "--at", multiple=True, metavar="NAME=ADDRESS",
    help="Reach this repository of the inventory, as docker, at another address from here. Repeatable.",
)  # fmt: skip
recorded_option = click.option(
    "--recorded", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="FOLDER",
    help="Take kernel and GPUs of the nodes from this folder, as preflight recorded them.",
)  # fmt: skip


@group()
def mirror() -> None:
    """Make a mirror for a hall without internet.

    \b
    toolkit mirror plan -i inventories/SITE          what it would hold, its size and time
    """


@mirror.command(epilog=epilogue("mirror plan"))
@inventory_option
@sources_option
@at_option
@recorded_option
def plan(inventory: Path, sources: tuple[str, ...], at: tuple[str, ...], recorded: Path | None) -> None:
    """Print what a mirror for this site holds, its size and time; download no package.

    The roles say which packages they install on the nodes of the inventory, and no node is connected to. apt and dnf
    say what comes with these on an empty system, from this machine's own entries for the system that it runs, and from
    FILE for others. Nothing of this machine is changed.

    \b
    toolkit mirror plan -i inventories/SITE
    toolkit mirror plan -i inventories/SITE --sources ubuntu2404=ubuntu.sources --sources el9=rocky.repo

    Kernel headers and the driver follow kernel and GPUs, which preflight records in the hall:

    \b
    toolkit deploy -i inventories/SITE -- --tags preflight -e preflight_record_to=$PWD/recorded
    """
    made = _planned(inventory, sources, at, recorded)
    print_plan(made)
    raise SystemExit(Exit.FAILED if made.missing else Exit.OK)


def _planned(inventory: Path, sources: tuple[str, ...], at: tuple[str, ...], recorded: Path | None) -> Plan:
    from toolkit.mirror import planning
    from toolkit.mirror.sources import by_words, systems

    files = {name: Path(file) for name, file in by_words(sources, "--sources", systems()).items()}
    wanted = planning.Wanted(inventory, files, by_words(at, "--at"), recorded)
    with term_as_ctrl_c(), working("asking the roles which packages they install") as shown:
        return planning.plan(wanted, shown.say)


def print_plan(made: Plan) -> None:
    """Its parts with their sizes, what is missing, and the sum."""
    from toolkit.mirror.documents import size_words

    for one in made.repositories:
        click.echo(f"{size_words(one.size):>9}  {one.system:<11} {one.name}: {number_of(len(one.packages), 'package')}")
    for kind, names in (("image", made.images), ("wheels", made.wheels), ("engine", made.engines)):
        for name in names:
            click.echo(f"{'':>9}  {kind:<11} {name}")
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    for gone in made.missing:
        version = f" {gone.version}" if gone.version else ""
        there = f" (there: {', '.join(gone.versions[:3])})" if any(gone.versions) else ""
        click.echo(f"missing: {gone.system}: {gone.name}{version}, which role {gone.role} installs{there}", err=True)
    rate = made.rate_bytes_s
    time = f", about {duration(made.size / rate)} to download at the rate of the indices" if rate else ""
    click.echo(f"all: {size_words(made.size)}{time}")
