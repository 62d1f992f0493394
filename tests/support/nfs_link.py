"""A file system that two of a lab's machines share over a link of known rate, and what that link carries."""

from __future__ import annotations

from toolkit.lab.spec import FABRIC_MTU, WIRE_OVERHEAD_BYTES

EXPORT, MOUNT = "/srv/shared", "/mnt/shared"
LINK_GBPS = 0.2  # so little that emulated processors fill it
TRUTH = 0.03
_TCP_HEADERS = 52  # IPv4, TCP and its timestamps
CARRIED_GB_S = LINK_GBPS / 8 * (FABRIC_MTU - _TCP_HEADERS) / (FABRIC_MTU + WIRE_OVERHEAD_BYTES)
HOME = {"name": "home", "path": MOUNT, "shared": True, "filesystem": "nfs4"}
FAR = {"name": "far", "path": f"{MOUNT}/far", "filesystem": "nfs4", "link_gbps": LINK_GBPS}
