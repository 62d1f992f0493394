"""A machine whose configuration files take ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.node_modules import load

network: Any = load("plugins/module_utils/network.py")

PORT = {"ifname": "fab0", "address": "00:11:22:33:44:55", "link_type": "ether"}
OTHER = {"ifname": "eno1", "address": "00:11:22:33:44:66", "link_type": "ether"}
IB = {
    "ifname": "ib0",
    "address": "80:00:00:28:fe:80:00:00:00:00:00:00:7c:fe:90:03:00:29:26:52",
    "link_type": "infiniband",
}
LINKS = [{"ifname": "lo", "address": "00:00:00:00:00:00", "link_type": "loopback"}, PORT, OTHER, IB]


def claimed(root: Path, files: dict[str, str], links: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    for name, text in {"usr/sbin/ifup": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    found: list[dict[str, Any]] = network.read_claims(LINKS if links is None else links, root)
    return found


def ports(root: Path, files: dict[str, str], links: list[dict[str, Any]] | None = None) -> list[str]:
    return [one["port"] for one in claimed(root, files, links)]


def card(root: Path, name: str, address: str, driver: str) -> None:
    """The PCI function of a port, and its driver."""
    function = root / "sys/devices/pci0000:3a" / address
    function.mkdir(parents=True)
    (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (function / "driver").symlink_to(root / "sys/bus/pci/drivers" / driver)
    (root / "sys/class/net" / name).mkdir(parents=True)
    (root / "sys/class/net" / name / "device").symlink_to(function)
