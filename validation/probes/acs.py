"""Access Control Services of PCI Express ports, from their configuration space, and the IOMMU's way with a card.

Structures as in the PCI Express base specification ("Extended Capabilities", "ACS Extended Capability"). Whoever is not
root is shown the first 64 bytes alone (Linux, pci_read_config), which do not tell.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

EXTENDED, END = 0x100, 0x1000  # where extended capabilities begin, and the configuration space ends
ACS = 0x000D
CONTROL = 6  # of the control register in the capability


def control(config: bytes) -> dict[str, Any] | None:
    """A port's configuration space as Acs; None where not all of it was shown."""
    if len(config) < END:
        return None
    place, seen = EXTENDED, set()
    while place >= EXTENDED and place not in seen and place + 8 <= END:
        seen.add(place)
        (header,) = struct.unpack_from("<I", config, place)
        if header in (0, 0xFFFFFFFF):
            break  # no capability, or a device that does not answer
        if header & 0xFFFF == ACS:
            return {"capable": True, "control": struct.unpack_from("<H", config, place + CONTROL)[0]}
        place = header >> 20
    return {"capable": False, "control": 0}


def of_port(function: Path) -> dict[str, Any] | None:
    """The same of a port in sysfs; None where it cannot be read."""
    try:
        return control((function / "config").read_bytes())
    except OSError:
        return None


def iommu(function: Path) -> str:
    """How the IOMMU treats a card's transfers, as the kernel says: identity (passed through), DMA, DMA-FQ; none."""
    group = function / "iommu_group"
    try:
        return (group / "type").read_text().strip() if group.exists() else "none"
    except OSError:
        return ""
