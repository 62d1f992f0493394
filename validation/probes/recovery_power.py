"""A node's power is switched off and on by its BMC, by Redfish (`ComputerSystem.Reset`), and the node is read after it.

Before anything is switched the BMC has to be that of the node: its service tag or serial number is the one that the
node's DMI shows. A container shows none of its own.
"""

from __future__ import annotations

import time
from typing import Any

from validation.probes import recovery_steps as steps
from validation.probes.controller import host_variable
from validation.probes.host_parts import serial
from validation.probes.recovery_steps import Asked, Failed
from validation.probes.redfish import ROOT, Refused, Session, Target, Unread, target

KINDS = ("PowerCycle", "ForceRestart")
"""Ways without an orderly stop; the first that the BMC has."""
BMC_S = 60.0
SERIAL = "systemd-detect-virt --container --quiet || cat /sys/class/dmi/id/product_serial"


def _system(session: Session) -> dict[str, Any]:
    """The one server of a BMC."""
    members = session.get(f"{ROOT}/Systems").get("Members")
    paths = [one.get("@odata.id") for one in members or [] if isinstance(one, dict)]
    if len(paths) != 1 or not isinstance(paths[0], str):
        raise Unread("it has none or several servers, of which one would have to be the node")
    return session.get(paths[0])


def _action(system: dict[str, Any]) -> tuple[str, str]:
    """Path and type of the reset."""
    action = (system.get("Actions") or {}).get("#ComputerSystem.Reset") or {}
    path, allowed = action.get("target"), action.get("ResetType@Redfish.AllowableValues") or []
    kind = next((one for one in KINDS if one in allowed), None)
    if not isinstance(path, str) or kind is None:
        raise Unread(f"it offers no {' and no '.join(KINDS)}")
    return path, kind


def switched(bmc: Target, shown: str | None) -> str:
    """Switch the power once; how. Unread where nothing was switched, or nobody knows. shown: the node's serial."""
    with Session(bmc, BMC_S) as session:
        system = _system(session)
        own = [str(system[key]) for key in ("SKU", "SerialNumber") if system.get(key)]
        if shown and own and shown not in own:
            raise Unread(f"it is that of {own[0]}, and the node is {shown}; correct bmc in the inventory")
        path, kind = _action(system)
        sent = session.send("POST", path, {"ResetType": kind})
    if not sent.right:
        raise Unread(f"it refuses {kind}: {sent.words()}")
    return kind


def cycles(asked: Asked) -> dict[str, Any]:
    """The node's power is cycled `times` times."""
    before = steps.reading(asked.ssh, asked.ports)
    if before is None:
        raise Failed(f"{asked.node} does not answer; nothing was switched")
    shown, how = serial(steps.ask(asked.ssh, SERIAL).stdout.strip()), ""
    try:
        bmc = target(host_variable("bmc").get(asked.node))
        with steps.drained(asked):
            boots, last = [], before
            for _ in range(asked.times):
                begin = time.monotonic()
                how = switched(bmc, shown)
                boots.append(steps.wait_for_boot(asked, last["boot"], begin, f"{how} by its BMC"))
                last = boots[-1]["reading"]
    except (Refused, Unread, ValueError) as fault:
        raise Failed(f"{asked.node}: its BMC: {fault}") from None
    return {"what": "cycles", "node": asked.node, "how": f"{how} by its BMC", "before": before, "boots": boots}
