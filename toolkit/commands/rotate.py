"""`toolkit rotate`: keys and certificates that a site's machines share, exchanged while jobs run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.options import inventory_option, json_option
from toolkit.exits import Exit, epilogue
from toolkit.interruption import term_as_ctrl_c
from toolkit.loudness import progress
from toolkit.rotate.outcome import WHATS
from validation.base.counting import number_of

if TYPE_CHECKING:  # loaded when something is exchanged, not for --help
    from toolkit.rotate.outcome import Done


@command(epilog=epilogue("rotate"))
@click.argument("what", nargs=-1, type=click.Choice(WHATS))
@inventory_option
@click.option("--without", multiple=True, metavar="NODE", help="Leave out a node that is away; deploy it afterwards.")
@click.option("--back", is_flag=True, help="Take back a rotation that was stopped, instead of ending it.")
@click.option("--dry-run", is_flag=True, help="Print what changes on which node; change nothing.")
@json_option
def rotate(
    what: tuple[str, ...], inventory: Path, without: tuple[str, ...], back: bool, dry_run: bool, as_json: bool
) -> None:
    """Exchange munge key and registry certificates.

    Jobs and leases go on. munge-key: new starts are held, the key is placed on all nodes, munge is restarted on them in
    one moment, and credentials are tried between the head and each; where one node fails, all go back to the old key.
    registry: a new authority is trusted beside the old one until every node has a certificate of it. Without WHAT both.

    A rotation that was stopped, by Ctrl-C or a power cut, is seen by the next call, which ends it or takes it back
    (--back). No job starts between placing and trying the key; --dry-run prints what else cannot go on.

    \b
    toolkit rotate -i inventories/site --dry-run
    toolkit rotate munge-key -i inventories/site
    toolkit rotate registry -i inventories/site --without gpu7
    """
    from toolkit.deploy.site_state import ROTATION, SiteState
    from toolkit.inventory import read_site
    from toolkit.node import checks
    from toolkit.node.head import Head
    from toolkit.rotate.munge import MungeRotation
    from toolkit.rotate.nodes import Machines
    from toolkit.rotate.registry import RegistryRotation

    topology = read_site(inventory).topology
    checks.refuse_joined(topology, inventory)
    machines, head = Machines(topology, without), Head(topology)
    done: list[Done] = []
    try:
        with term_as_ctrl_c(), SiteState(inventory).locked(ROTATION):
            for one in dict.fromkeys(what or WHATS):
                work = (
                    MungeRotation(machines, head, progress)
                    if one == "munge-key"
                    else RegistryRotation(machines, progress)
                )
                found = work.plan() if dry_run else work.go(back)
                done.append(found)
                if not as_json:
                    _print(found, dry_run)
                if found.state == "open" and not dry_run:
                    break
    except KeyboardInterrupt as stopped:
        words = str(stopped) or "the same command ends what it had begun, or takes it back with --back"
        click.echo(f"interrupted; {words}", err=True)
        raise SystemExit(Exit.INTERRUPTED) from None
    if as_json:
        answers.say("rotate", {"left_out": list(without), "rotations": [one.document() for one in done]})
    raise SystemExit(_code(done, without, back, dry_run))


def _code(done: list[Done], without: tuple[str, ...], back: bool, dry_run: bool) -> Exit:
    if dry_run:
        return Exit.OK
    if any(one.interrupted for one in done):
        return Exit.INTERRUPTED
    if any(one.state == "open" or (one.state == "gone back" and not back and one.why) for one in done):
        return Exit.FAILED
    return Exit.INCOMPLETE if without or any(one.lost or one.unread for one in done) else Exit.OK


def _print(found: Done, dry_run: bool) -> None:
    for name, changes in found.changes.items():
        click.echo(f"{name:<11} {', '.join(changes)}")
    for one in found.cannot:
        click.echo(f"note        {one}")
    if found.state == "planned" and found.what == "munge-key":
        click.echo(
            f"{number_of(found.running, 'job')} would go on, and {found.waiting} that wait would start afterwards"
        )
    for job, state in found.lost.items():
        click.echo(f"job {job} ended meanwhile: {state}", err=True)
    for name, reason in found.left.items():
        click.echo(f"{name} is not done: {reason}", err=True)
    if found.unread:
        click.echo(found.unread, err=True)
    why = f": {found.why}" if found.why else ""
    paused = f"; no job started for {found.paused_s:.0f} s" if found.paused_s else ""
    went = f"; {number_of(found.running - len(found.lost), 'job')} went on" if found.running and not dry_run else ""
    words = {"planned": "nothing was changed", "open": "not finished", "gone back": "as it was before"}
    after = f", {found.seconds:.0f} s" if found.seconds else ""
    click.echo(
        f"{found.what}: {words.get(found.state, found.state)}{after}{paused}{went}{why}", err=found.state == "open"
    )
