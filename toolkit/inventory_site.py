"""Whether an inventory is one of a site, by its files where they show it, and else by Ansible."""

from __future__ import annotations

from pathlib import Path

from toolkit.inventory import read_inventory
from toolkit.inventory_files import lists_gpu_servers, refuse_unusable


def refuse_no_site(inventory: Path) -> None:
    """InventoryError for what cannot be an inventory, or lists no GPU servers. Ansible is asked, with what that takes
    of time and of a vault's password, only where the files do not show it.
    """
    refuse_unusable(inventory)
    if not lists_gpu_servers(inventory):
        read_inventory(inventory)
