"""What site.yml is told of a batch: the release of each node, what it goes back to, and who may be rebooted; and that
another deployment of the site is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from toolkit.deploy.site_state import SiteBusy, SiteState
from toolkit.progress import duration
from toolkit.upgrade.state import Batch, State

LOCK_LEAST_S = 1800.0
"""How long another deployment is waited for at least; longer where the site's last one took longer."""
_PAUSE_S = 5.0
T = TypeVar("T")


def when_free(
    inventory: Path, say: Callable[[str], None], clock: Callable[[], float], deployed: Callable[[], T]
) -> tuple[T, float]:
    """What `deployed` gives, and for how many seconds another deployment was waited for before. SiteBusy where that one
    does not end: it may be the restart of a node by `toolkit incidents`, and no fault of the batch."""
    last, began, told = SiteState(inventory).read_last(check=False), clock(), False
    most_s = max(LOCK_LEAST_S, last.total_s if last is not None else 0.0)
    while True:
        waited_s = clock() - began
        try:
            return deployed(), waited_s
        except SiteBusy as fault:
            if waited_s >= most_s:
                raise SiteBusy(f"{fault}; it has not ended within {duration(most_s)}") from None
            if not told:
                say(f"{fault}; waiting for it, {duration(most_s)} at most")
            told = True
        time.sleep(_PAUSE_S)


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
