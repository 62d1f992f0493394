"""`toolkit switch`: what hosts and switches are to agree on for lossless RoCE."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit import answers
from toolkit.command_class import group
from toolkit.commands.options import inventory_option, json_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.loudness import progress
from validation.base.counting import number_of

if TYPE_CHECKING:  # pydantic and paramiko are loaded when something is checked, not for --help
    from toolkit.switches.check import Checked
    from toolkit.switches.config import Switch
    from toolkit.switches.wanted import Site


@group()
def switch() -> None:
    """Compare switches with the hosts' RoCE settings.

    \b
    toolkit switch check leaf1.txt leaf2.txt -i inventories/SITE
    toolkit switch render leaf1 --system sonic -i inventories/SITE

    For Enterprise SONiC and SmartFabric OS10. Nothing is changed on a switch.
    """


@switch.command(epilog=epilogue("switch check"))
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, dir_okay=False, exists=True))
@inventory_option
@click.option("--known-hosts", type=click.Path(path_type=Path, dir_okay=False),
              show_default="that of the inventory, ~/.ssh/known_hosts",
              help="Look up host keys of switches in this file.")  # fmt: skip
@json_option
def check(files: tuple[Path, ...], inventory: Path, known_hosts: Path | None, as_json: bool) -> None:
    """Find what switches and hosts do not agree on, with both lines.

    FILES hold the output of `show running-configuration`, one switch each. Without them the switches of the inventory
    (variable switches) are asked over ssh, by keys or by the password in TOOLKIT_SWITCH_PASSWORD or in the vault
    (switches_password). Compared are DSCP, priority, PFC, ECN, notifications, MTU and LACP, port by port by the
    inventory's map of cables.

    \b
    toolkit switch check leaf1.txt leaf2.txt -i inventories/SITE
    toolkit switch check -i inventories/SITE --json | jq '.differences[].words'
    """
    from toolkit.switches import check as checking
    from toolkit.switches import wanted

    site = wanted.read(inventory)
    switches, faults = _switches(files, site, known_hosts or site.known_hosts or Path.home() / ".ssh/known_hosts")
    checked = checking.check(site, switches)
    unchecked = (*faults, *checked.unchecked)
    if as_json:
        answers.say("switch-check", {
            "switches": [{"switch": one.name, "system": one.system, "source": one.source} for one in switches],
            "ports": checked.ports, "compared": [asdict(one) for one in checked.compared],
            "not_compared": [asdict(one) for one in checked.not_compared],
            "differences": [asdict(one) for one in checked.differences],
            "unchecked": list(unchecked),
        })  # fmt: skip
    else:
        _print(checked, unchecked, switches)
    if checked.differences:
        raise SystemExit(Exit.FAILED)
    raise SystemExit(Exit.INCOMPLETE if unchecked else Exit.OK)


def _switches(files: tuple[Path, ...], site: Site, known_hosts: Path) -> tuple[list[Switch], list[str]]:
    """The switches that could be read, and why others could not. A file that cannot be used ends the command."""
    from toolkit.switches import collect
    from toolkit.switches.lines import SwitchFault
    from toolkit.switches.read import read_file

    if not files:
        collect.known(site.switches)
        progress(f"reading {number_of(len(site.switches), 'switch', 'switches')} over ssh")
        got = collect.collect(site.switches, collect.password(site.password), known_hosts)
        faults = [str(one) for one in got if isinstance(one, SwitchFault)]
        return [one for one in got if not isinstance(one, SwitchFault)], faults
    found = [read_file(file) for file in files]
    for index, one in enumerate(found):
        twin = next((other for other in found[:index] if other.name == one.name), None)
        if twin is not None:
            raise UsageFault(f"{twin.source} and {one.source} are both of {one.name}; name one file for each switch")
    return found, []


def _print(checked: Checked, unchecked: tuple[str, ...], switches: list[Switch]) -> None:
    for one in checked.differences:
        click.echo(f"{one}\n    host    {one.host_line}\n    switch  {one.switch_line}")
    for words in unchecked:
        click.echo(f"not checked: {words}")
    count = number_of(len(checked.differences), "difference")
    where = f"{number_of(checked.ports, 'port')} of {number_of(len(switches), 'switch', 'switches')}"
    click.echo(f"{count}: {where} compared with the hosts")


@switch.command(epilog=epilogue("switch render"))
@click.argument("name", metavar="SWITCH")
@click.option("--system", type=click.Choice(["sonic", "os10"]),
              help="Write it for this system.  [default: that of the inventory's switches]")  # fmt: skip
@inventory_option
def render(name: str, system: str | None, inventory: Path) -> None:
    """Print the configuration that SWITCH needs for the hosts' RoCE settings.

    Its ports are those of the inventory's map of cables. Nothing is sent to the switch: read the lines, tune the
    thresholds of ECN, and apply them as your site does.

    \b
    toolkit switch render leaf1 --system sonic -i inventories/SITE > leaf1.cfg
    """
    from toolkit.switches import render as rendering
    from toolkit.switches import wanted
    from toolkit.switches.keys import NAMES

    site = wanted.read(inventory)
    chosen = next((one for one in NAMES if one == system), None)
    if chosen is None:
        if name not in site.switches:
            raise UsageFault(f"name the system of {name} with --system, or give it to the inventory's switches")
        chosen = site.switches[name].system
    click.echo(rendering.render(site, name, chosen), nl=False)
