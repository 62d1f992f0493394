"""`toolkit upgrade`: a site goes to another stack release, batch by batch."""

from __future__ import annotations

from typing import Any

import click

from toolkit.command_class import command
from toolkit.commands.upgrade_options import carried_out, upgrade_options
from toolkit.exits import epilogue


@command(epilog=epilogue("upgrade"))
@click.option("--to", metavar="RELEASE", required=True, help="Upgrade to this stack release, a file of stacks/.")
@upgrade_options
def upgrade(**given: Any) -> None:
    """Bring a site to another stack release.

    Goes batch by batch. Prints the plan first: what changes on which node, what reboots, in which batches, about how
    long, and what cannot go back. Then for each batch (reboot_batch of the inventory): Slurm drains it and what runs
    there is waited for, site.yml runs on it with consent to one reboot, each node is measured by itself and held
    against the accepted run, and it takes work again. The head is the first batch. Stops at the first bad batch, whose
    nodes stay drained. After Ctrl-C or a crash the same command goes on.

    \b
    toolkit upgrade --to current -i inventories/site --dry-run      the plan alone
    toolkit upgrade --to current -i inventories/site
    toolkit upgrade --to current -i inventories/site --limit head,gpu1       one node at first
    toolkit upgrade --to current -i inventories/site --grace 10m --budget 4h
    """
    carried_out("upgrade", **given)
