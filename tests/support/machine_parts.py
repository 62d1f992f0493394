"""Parts with serial numbers of the constructed machines, as a node's own system shows them: made up, every one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DIMMS, DRIVES = 12, 2


def parts(place: int, found: Mapping[str, Any]) -> dict[str, Any]:
    """Of the node at this place of its site, with the facts `found`."""
    own = f"CONSTRUCTED-{place + 1}"
    cards = [card["address"] for card in found["pci"] if card["what"] == "gpu"]

    def each(kind: str, slots: list[str], letter: str, **more: Any) -> list[dict[str, Any]]:
        said = {"kind": kind, **more}
        numbered = enumerate(slots, 1)
        return [{**said, "slot": slot, "serial": f"{own}{letter}{n}"} for n, slot in numbered]

    ports = [port["interface"] for port in found["fabric_ports"]]
    return {
        "serial": own,
        "bios_version": "2.24.0",
        "dimms": each("dimm", [f"A{n}" for n in range(1, DIMMS + 1)], "-D", model="DDR4", size=32.0),
        "gpus": each("gpu", cards, "", model=found["gpu_model"], firmware="88.00.4F.00.09"),
        "nics": each("nic", ports, "-N", firmware="16.35.4030", protocol="other"),
        "drives": each("drive", [f"nvme{n}" for n in range(DRIVES)], "-S", firmware="1.2.3", protocol="NVMe"),
        "unread": [],
    }
