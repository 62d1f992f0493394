"""How often a port's link came or went: Linux, Documentation/ABI/testing/sysfs-class-net (carrier_changes)."""

from __future__ import annotations

import json
from pathlib import Path

from validation.probes.tool import run_tool

SYSFS = Path("/sys")


def carrier_changes(interface: str, sysfs: Path = SYSFS) -> int | None:
    """Since the interface was made; None where the kernel does not say."""
    try:
        text = (sysfs / "class/net" / interface / "carrier_changes").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def of_address(address: str, sysfs: Path = SYSFS) -> dict[str, int]:
    """The same of the interface that has an address, as facts of a measurement; nothing where it is not known."""
    ran = run_tool(["ip", "-j", "addr", "show", "to", address], timeout_s=5.0)
    try:
        names = [str(link["ifname"]) for link in json.loads(ran.stdout) if link.get("addr_info")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    changes = carrier_changes(names[0], sysfs) if len(names) == 1 else None
    return {} if changes is None else {"carrier_changes": changes}
