"""`toolkit fabrics`: the fabric profiles, and where their bounds come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit import answers
from toolkit.command_class import group
from toolkit.commands.options import json_option

if TYPE_CHECKING:  # loaded when fabrics are read, not for --help
    from validation.model import Bound
    from validation.rules.fabric import Fabric


@group(invoke_without_command=True)
@json_option
@click.pass_context
def fabrics(context: click.Context, as_json: bool) -> None:
    """List the networks that can be measured.

    Shows what toolkit validate demands of each.

    \b
    toolkit fabrics                   all of them
    toolkit fabrics show roce40       one, with line rate -> ceiling -> floor and the sources
    toolkit fabrics show tcp10 -i inventories/lab   as a rehearsal on that lab would judge it
    """
    if context.invoked_subcommand is not None:
        return
    from toolkit import tables
    from validation.rules.fabric import fabric_names, load_fabric

    profiles = [load_fabric(name) for name in fabric_names()]
    if as_json:
        answers.say("fabrics", {"fabrics": [fabric.model_dump(mode="json") for fabric in profiles]})
        return
    titles = ("fabric", "line rate", "link layer", "transport", "MTU", "lossless", "generation", "title")
    rows = []
    for f in profiles:
        lossless = "yes" if f.lossless else "no"
        rate = f"{f.line_rate_gbps:g} Gbit/s"
        rows.append((f.name, rate, f.link_layer, f.transport, str(f.mtu), lossless, f.generation, f.title))
    tables.show(titles, rows, right=("line rate", "MTU"))


def _limits(bound: Bound) -> str:
    sides = [("floor", bound.floor), ("at most", bound.maximum), ("ceiling", bound.ceiling)]
    said = [f"{name} {value:.4g} {bound.unit}" for name, value in sides if value is not None]
    return ", ".join(said) or f"{bound.equal} {bound.unit}"


def _lines(fabric: Fabric) -> list[str]:
    needs = "needs RDMA devices on the fabric ports" if fabric.needs_rdma else "plain TCP"
    return [
        f"line rate   {fabric.line_rate_gbps:g} Gbit/s per port   ({fabric.sources.line_rate_gbps})",
        f"link layer  {fabric.link_layer}, transport {fabric.transport}: {needs}   ({fabric.sources.transport})",
        f"lossless    {'yes' if fabric.lossless else 'no'}   ({fabric.sources.lossless})",
    ]


@fabrics.command()
@click.argument("name")
@click.option(
    "-i", "--inventory", type=click.Path(path_type=Path), help="Show the bounds of a rehearsal on this lab too."
)
@json_option
def show(name: str, inventory: Path | None, as_json: bool) -> None:
    """Explain one fabric: rate, ceiling, how each floor is derived, and the source of every figure.

    \b
    toolkit fabrics show roce40
    toolkit fabrics show tcp10 --json | jq .bounds.tcp_bandwidth.floor
    """
    from rich.text import Text

    from toolkit.inventory import read_inventory
    from toolkit.progress import make_console
    from validation.rules.bounds import bounds_of
    from validation.rules.fabric import FIGURES, load_fabric

    fabric = load_fabric(name)
    link = read_inventory(inventory).lab_link if inventory else None
    bounds = bounds_of(fabric, link)
    if as_json:
        document = {
            "fabric": fabric.model_dump(mode="json"),
            "bounds": {k: b.model_dump(mode="json") for k, b in bounds.items()},
        }
        answers.say("fabric", document)
        return
    console = make_console()
    console.print(Text(f"{fabric.name}: {fabric.title}", style="bold"))
    for line in _lines(fabric):
        console.print(Text(line), soft_wrap=True)
    for key, bound in bounds.items():
        console.print()
        console.print(Text(f"{key}: {_limits(bound)}", style="bold"))
        for line in bound.derivation:
            console.print(Text(f"  {line}"), soft_wrap=True)
        if bound.nominal:
            console.print(Text(f"  nominal: {bound.nominal}"), soft_wrap=True)
    without = [key for key in FIGURES if key not in bounds]
    if without:
        console.print()
        console.print(Text(f"no figure, so reported and not judged: {', '.join(without)}"), soft_wrap=True)
    for note in fabric.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)
