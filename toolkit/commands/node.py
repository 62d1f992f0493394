"""`toolkit node`: nodes that join a pool in use, are exchanged, and leave it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from toolkit import answers
from toolkit.command_class import group
from toolkit.commands.lease_shared import grace_type
from toolkit.commands.options import inventory_option, json_option, runs_dir_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.loudness import progress

if TYPE_CHECKING:  # loaded when a node comes or goes, not for --help
    from toolkit.node.join import Newcomer

key_options = (
    click.option(
        "--accepted",
        metavar="RUN",
        help="Compare with this accepted run of the site.  [default: the newest that was accepted]",
    ),
    click.option(
        "--peers",
        metavar="NODE,...",
        help="Measure the node with these.  [default: nodes where measuring disturbs nobody]",
    ),
    click.option("--key", type=click.Path(path_type=Path), metavar="FILE", help="Sign the addendum with this key."),
    click.option("--as", "who", metavar='"NAME, COMPANY"', help="Name who signs."),
)
grace_option = click.option(
    "--grace",
    "grace_s",
    type=grace_type,
    metavar="TIME",
    help="Take leases there back, after this notice to their programs, such as 10m; a number alone is seconds.",
)


def say(words: str) -> None:
    """To the person at the terminal."""
    progress(words)


def joins(command: Callable[..., None]) -> Callable[..., None]:
    """The argument and options of both ways in, which the command gets as one Newcomer."""

    @functools.wraps(command)
    def asked(**given: Any) -> None:
        from toolkit.node.join import Newcomer

        own = {one.name: given.pop(one.name) for one in fields(Newcomer)}
        if (own["key"] is None) != (own["who"] is None):
            raise UsageFault("--key and --as belong together: who signs, and with what")
        command(Newcomer(**{**own, "peers": _names(own["peers"])}), **given)

    for option in (runs_dir_option, json_option, *reversed(key_options), inventory_option, click.argument("name")):
        asked = option(asked)
    return asked


@group(epilog=epilogue("node"))
def node() -> None:
    """Add, replace or remove a GPU server of a pool.

    The pool stays in use: leases on all other nodes go on.

    \b
    toolkit lab up --add gpu3           a node for the lab; of a site it is in the inventory first
    toolkit node add gpu3
    toolkit node remove gpu1 --grace 10m
    toolkit node replace gpu2           the same name, another machine
    """


@node.command()
@joins
def add(newcomer: Newcomer, as_json: bool) -> None:
    """Let a GPU server of the inventory join the pool.

    It is checked and provisioned, all others learn of it, and it stays drained until its own acceptance, measured with
    its peers, holds what the site was accepted with. Then it takes leases, and the run with its addendum is signed
    where a key is given. A node that fails stays drained; nothing else of the pool is changed. Ctrl-C stops; the same
    command goes on.

    \b
    toolkit node add gpu3 -i inventories/site --key ~/.ssh/id_ed25519 --as "A. Example, Integrator"
    """
    _join("add", newcomer, as_json)


@node.command()
@joins
@grace_option
def replace(newcomer: Newcomer, grace_s: int | None, as_json: bool) -> None:
    """Put another machine in a node's place: same name, same place in the inventory.

    The node is drained and waited for like one that is removed; a machine that is dead has no leases left. Then the
    machine that answers under its name is provisioned and accepted like one that is added, and its facts are compared
    with those that the accepted run has of the node.

    \b
    toolkit node replace gpu2 -i inventories/site
    """
    _join("replace", newcomer, as_json, grace_s)


def _join(verb: Literal["add", "replace"], newcomer: Newcomer, as_json: bool, grace_s: int | None = None) -> None:
    from toolkit.node.join import Joining
    from toolkit.upgrade.declared import refuse_going_back

    name = newcomer.name
    began = time.monotonic()
    refuse_going_back(newcomer.inventory)
    joining = Joining(verb, newcomer, say)
    if verb == "replace":
        joining.empty(grace_s)
    found = joining.join()
    if as_json:
        answers.say("node", {"node": name, "verb": verb, "addendum": found.model_dump(mode="json")})
    if not found.accepted:
        click.echo(f"{name} stays drained; correct that and run the same command again", err=True)
        raise SystemExit(Exit.FAILED)
    say(f"{name} takes leases, {(time.monotonic() - began) / 60:.1f} minutes after this command began")


@node.command()
@click.argument("name")
@inventory_option
@grace_option
@json_option
@click.option(
    "--without-teardown", is_flag=True, help="Leave the machine as it is, where it is dead or somebody else's now."
)
def remove(name: str, inventory: Path, grace_s: int | None, without_teardown: bool, as_json: bool) -> None:
    """Take a GPU server out of the pool.

    It gets no new leases; those that run are waited for, or taken back with --grace. Then what was provisioned on it is
    taken back, and it leaves the inventory, Slurm and monitoring. Ctrl-C stops; the same command goes on.

    \b
    toolkit node remove gpu1 -i inventories/site
    toolkit node remove gpu1 -i inventories/site --grace 10m
    """
    from toolkit.node import leave
    from toolkit.upgrade.declared import refuse_going_back

    refuse_going_back(inventory)
    leave.remove(name, inventory, grace_s, without_teardown, say)
    say(f"{name} has left the pool")
    if as_json:
        answers.say("node", {"node": name, "verb": "remove", "addendum": None})


def _names(peers: str | None) -> Sequence[str]:
    names = [name.strip() for name in (peers or "").split(",") if name.strip()]
    if peers is not None and not names:
        raise UsageFault("--peers names no node; omit it for the default")
    return names
