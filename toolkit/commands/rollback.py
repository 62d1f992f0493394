"""`toolkit rollback`: an upgrade is taken back, batch by batch."""

from __future__ import annotations

from typing import Any

from toolkit.command_class import command
from toolkit.commands.upgrade_options import carried_out, upgrade_options
from toolkit.exits import epilogue


@command(epilog=epilogue("rollback"))
@upgrade_options
def rollback(**given: Any) -> None:
    """Undo an upgrade, to the versions on record.

    Goes back to what each node had before the last upgrade from this machine, or before one that is not finished: its
    release, and the versions on record where they differ from it. In batches as an upgrade, the head last. Refuses what
    cannot go back: a kernel, and a Slurm whose database was converted.

    \b
    toolkit rollback -i inventories/site --dry-run
    toolkit rollback -i inventories/site
    toolkit rollback -i inventories/site --limit gpu3
    """
    carried_out("rollback", to="", **given)
