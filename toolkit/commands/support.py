"""`toolkit support`: what a vendor needs to know of a bad part, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.options import inventory_option, json_option, kept_runs_option
from toolkit.exits import Exit, epilogue
from toolkit.interruption import term_as_ctrl_c
from toolkit.working import working
from validation.base.counting import number_of

if TYPE_CHECKING:  # loaded when something is packed, not for --help
    from toolkit.support.gather import Packed


@command(epilog=epilogue("support"))
@click.argument("node")
@click.argument("part", required=False, default="")
@inventory_option
@kept_runs_option
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE",
              help="Write this file, or into this folder.  [default: support-NODE-PART-TIME.tar.gz]")  # fmt: skip
@json_option
def support(node: str, part: str, inventory: Path, runs_dir: Path, out: Path | None, as_json: bool) -> None:
    """Pack what a vendor needs to know of a bad part.

    Run it before anything is restarted. Into one file go: serial numbers, slot and firmware, log lines of kernel and
    driver, the last run's values beside other nodes', the BMC's log and inventory, nvidia-bug-report.sh and sosreport
    where they are installed, and the toolkit's records. README.txt in it is read without this toolkit.

    PART is a serial number, slot, PCI address, GPU index or UUID, or an interface. Without it the whole node is packed.
    Nothing is changed on the node. Secrets are looked for and hidden: look through the file before you send it.

    \b
    toolkit support gpu3                  the whole node
    toolkit support gpu3 5                GPU 5, as nvidia-smi counts
    toolkit support gpu3 ens1f0np0 -i inventories/site --out case-4711.tar.gz
    """
    from toolkit import acceptance
    from toolkit.support.gather import Request, make

    request = Request(node, part, inventory, runs_dir, out)
    try:
        with term_as_ctrl_c(), working(f"asking {node}") as shown:
            packed = make(request, shown.say, shown.now)
    except (acceptance.Interrupted, KeyboardInterrupt):
        click.echo("interrupted; nothing was written, and nothing is left on the node", err=True)
        raise SystemExit(Exit.INTERRUPTED) from None
    if as_json:
        answers.say("support", {
            "file": packed.file, "bytes": packed.size, "files": packed.files, "node": packed.node,
            "part": packed.part.document() if packed.part else None, "run": packed.run, "not_asked": packed.faults,
            "could_not_be_read": packed.unread, "left_out": packed.left_out, "secrets_hidden": packed.hidden,
        })  # fmt: skip
    else:
        _print(packed)
    raise SystemExit(Exit.INCOMPLETE if packed.faults else Exit.OK)


def _print(packed: Packed) -> None:
    from toolkit.support.readme import size_words

    if packed.part:
        click.echo(f"part       {packed.part}")
    click.echo(f"last run   {packed.run or 'none with this node'}")
    for what, why in packed.faults.items():
        click.echo(f"not read   {what}: {why}")
    others = len(packed.unread) - len(packed.faults.keys() - {"part"})
    if others > 0:
        click.echo(f"missing    {number_of(others, 'thing')} could not be read: README.txt in the file lists why")
    hidden = sum(packed.hidden.values())
    click.echo(f"secrets    {hidden} hidden; look through the file before you send it" if hidden
               else "secrets    none was found; look through the file before you send it")  # fmt: skip
    click.echo(f"wrote {packed.file}: {number_of(packed.files, 'file')}, {size_words(packed.size)}")
