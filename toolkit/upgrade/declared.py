"""Whether the inventory still declares the release that a site was upgraded from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.inventory_lines import locate
from toolkit.inventory_source import read_source
from toolkit.upgrade.state import Kept

RELEASE = "stack_release"
_NONE_DECLARED = "current"
"""What playbooks/group_vars has for an inventory that names none."""


def place_of(inventory: Path, host: str, there: object) -> str:
    """Where the release is to be written: the line that has `there` for a host, or the file that all hosts read."""
    found = locate(inventory, host, (RELEASE,)) if there else None
    return found or f"{inventory}/group_vars/all"


def refuse_going_back(inventory: Path, options: Sequence[str] | None = None) -> None:
    """UsageFault where site.yml with the inventory's release would take back a finished upgrade. `options`: those of
    ansible-playbook, among which a release that is named is what is wanted; None where a command takes none.

    An upgrade that is still open is not looked at here: the inventory is to change after it.
    """
    kept = Kept(inventory)
    last = kept.read_last()
    if last is None or kept.read_open() is not None or any(RELEASE in word for word in options or ()):
        return
    hosts = read_source(inventory, [RELEASE]).hosts
    for name in (name for batch in last.batches for name in batch.nodes if name in hosts):
        declared = hosts[name].values.get(RELEASE)
        there = str(declared or _NONE_DECLARED)
        if there == last.of(name).release != last.to:
            place = place_of(inventory, name, declared)
            meant = "" if options is None else f"; if going back is what you want: -- -e {RELEASE}={there}"
            raise UsageFault(
                f"{name} was upgraded to {last.to} ({last.ended[:10]}), and the inventory still has {there}, so this "
                f"would take it back; nothing was changed. Write {RELEASE}: {last.to} into {place}{meant}"
            )
