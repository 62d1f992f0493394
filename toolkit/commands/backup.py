"""`toolkit backup`: what a lost head would take along, in one encrypted file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.options import inventory_option, json_option
from toolkit.exits import Exit, epilogue
from toolkit.interruption import term_as_ctrl_c
from toolkit.working import working

if TYPE_CHECKING:  # loaded when one is made, not for --help
    from toolkit.backup.making import Made


@command(epilog=epilogue("backup"))
@inventory_option
@click.option("--to", "folder", type=click.Path(path_type=Path, file_okay=False), default=Path(),
              metavar="FOLDER", help="Copy it into this folder.  [default: this one]")  # fmt: skip
@json_option
def backup(inventory: Path, folder: Path, as_json: bool) -> None:
    """Back up the head of a pool, and copy the file here.

    Into one encrypted file go: state of Slurm, accounting database, munge key, policy of the pool, registry of images,
    figures of Prometheus, validations on the head, and the ledgers of its deployment. The head makes it, reads all of
    it back, and keeps the newest (role backup, which also makes one every night). Leases and jobs go on meanwhile.

    \b
    age-keygen -o backup.key            a key of your own; keep it away from the head
    toolkit backup -i inventories/site --to /mnt/backups
    toolkit restore /mnt/backups/NAME.backup --key backup.key -i inventories/site
    """
    from toolkit.backup import making
    from toolkit.inventory import read_site

    try:
        with term_as_ctrl_c(), working("asking the head") as shown:
            made = making.make(read_site(inventory).topology, folder, shown.say)
    except KeyboardInterrupt:
        click.echo("interrupted; nothing was copied, and no half backup is left", err=True)
        raise SystemExit(Exit.INTERRUPTED) from None
    if as_json:
        answers.say("backup", making.document(made))
    else:
        _print(made)
    raise SystemExit(Exit.FAILED if made.bad else Exit.OK)


def _print(made: Made) -> None:
    from toolkit.backup.archive import PARTS
    from toolkit.support.readme import size_words

    for part, words in PARTS.items():
        if part in made.header.missing:
            click.echo(f"left out   {words}: {made.header.missing[part]}")
        elif part in made.header.parts:
            click.echo(f"{size_words(made.header.parts[part]):>9}  {words}")
    for name, why in made.bad.items():
        click.echo(f"unreadable {name} on the head: {why}", err=True)
    click.echo(f"read back  all of it, {made.seconds:.0f} s; the head keeps {made.kept}")
    click.echo(f"wrote {made.file}: {size_words(made.size)}")
