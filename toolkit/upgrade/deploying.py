"""What site.yml is told of a batch: the release of each node, what it goes back to, and who may be rebooted."""

from __future__ import annotations

from typing import Any

from toolkit.upgrade.state import Batch, State


def wanted(state: State, batch: Batch, head: str) -> dict[str, Any]:
    """Release and pins by name: of a rollback what each had before. The head is deployed with every batch; where it is
    not of the batch, it keeps what it has."""
    names = dict.fromkeys([*batch.nodes, head])
    back = {name for name in batch.nodes if state.verb == "rollback"}
    back |= {head} if head not in batch.nodes and state.has_before(head) else set()
    releases = {name: state.of(name).release if name in back else state.of(name).to for name in names}
    pins = {name: state.of(name).pins for name in names if name in back and state.of(name).pins}
    # By node: the head is deployed with every batch, and leases need it. The batch is what reboots at once.
    may = f"{{{{ 'if_needed' if inventory_hostname in {list(batch.nodes)} else 'never' }}}}"
    consent = {"reboot": may, "reboot_batch": "100%"}
    return {"stack_releases": releases, **({"stack_pins": pins} if pins else {}), **consent}
