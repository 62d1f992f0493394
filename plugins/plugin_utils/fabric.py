"""What role fabric derives from the declared ports and a reading of the node."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NETWORK = "/etc/systemd/network/70-elastic-ai-"


def port_mtu(port: Mapping[str, Any], fabric_mtu: Any) -> int:
    """MTU of a fabric port in bytes. IPoIB's are the kernel's limits: 65520 connected, 2044 in a datagram of 2048."""
    if port.get("mtu"):
        return int(port["mtu"])
    if port.get("link_layer", "ethernet") == "infiniband":
        return 65520 if port.get("ipoib_mode", "datagram") == "connected" else 2044
    return int(fabric_mtu)


def fabric_before(node: Mapping[str, Any], path: str, sysctls: Sequence[str]) -> dict[str, Any]:
    """What ports and kernel parameters had before the role touched them: the first reading of each is kept."""
    text = node["contents"].get(path, "")
    before: dict[str, Any] = json.loads(text) if text else {}
    before.setdefault("networkd_enabled", bool(node["units"]["systemd-networkd.service"]["enabled"]))
    ports, values = before.setdefault("ports", {}), before.setdefault("sysctls", {})
    for name, link in node["links"].items():
        if link["exists"] and name not in ports:
            up = link["operstate"] not in ("down", "absent")
            ports[name] = {"mtu": link["mtu"], "txqueuelen": link["txqueuelen"], "up": up}
            ports[name]["addresses"] = link["addresses"]
    for key in sysctls:
        values.setdefault(key, node["sysctls"][key]["value"])
    return before


def port_commands(before: Mapping[str, Any]) -> str:
    """Lines for `ip -batch` that give the ports back what they had before."""
    lines = []
    for name, port in before.get("ports", {}).items():
        state = "up" if port["up"] else "down"
        lines.append(f"address flush dev {name} scope global")
        lines.append(f"link set dev {name} mtu {port['mtu']} txqueuelen {port['txqueuelen']} {state}")
        lines += [f"address add {address} dev {name}" for address in port["addresses"]]
    return "\n".join(lines) + "\n"


def fabric_port_files(ports: Sequence[Mapping[str, Any]], there: Iterable[str]) -> list[dict[str, Any]]:
    """Files for managed_files: those of each port for systemd-networkd, and the absence of all others that are `there`.

    An InfiniBand partition has a device of its own (.netdev). Its parent carries it, and needs no address for that.
    """
    files = [_file(port["interface"], "port.network", fabric_port=port) for port in ports]
    partitions = [port for port in ports if port.get("pkey") is not None]
    files += [_file(port["interface"], "port.netdev", fabric_port=port) for port in partitions]
    declared = {port["interface"] for port in ports}
    for parent in sorted({port["parent"] for port in partitions} - declared):
        children = [port for port in partitions if port["parent"] == parent]
        files.append(_file(parent, "parent.network", fabric_parent=parent, fabric_children=children))
    wanted = {file["path"] for file in files}
    return files + [{"path": path, "state": "absent"} for path in there if path not in wanted]


def _file(interface: str, kind: str, **names: Any) -> dict[str, Any]:
    return {"path": f"{NETWORK}{interface}.{kind.split('.')[1]}", "template": f"{kind}.j2", "vars": names}


def fabric_ports_off(
    node: Mapping[str, Any], ports: Sequence[Mapping[str, Any]], fabric_mtu: Any, queue: Any
) -> list[str]:
    """How the live ports and their units differ from what is declared; `queue` is the transmit queue in packets."""
    off = []
    if ports:
        stopped = [name for name, unit in node["units"].items() if not (unit["active"] and unit["enabled"])]
        off += [f"{name} is not running and enabled; the port would not come back after a reboot" for name in stopped]
    for port in ports:
        name, link = port["interface"], node["links"][port["interface"]]
        if not link["exists"]:
            off.append(f"fabric port {name} does not exist")
            continue
        if port["address"] not in link["addresses"]:
            off.append(f"{name} lacks address {port['address']} (has: {', '.join(link['addresses']) or 'none'})")
        if link["mtu"] != port_mtu(port, fabric_mtu):
            off.append(f"{name} has MTU {link['mtu']}, not {port_mtu(port, fabric_mtu)}")
        if link["txqueuelen"] != int(queue):
            off.append(f"{name} has a transmit queue of {link['txqueuelen']}, not {queue}")
    return off


def sysctls_off(wanted: Mapping[str, Any], node: Mapping[str, Any]) -> list[str]:
    """Keys of kernel parameters that the node lets be set and that have another value."""
    found = node["sysctls"]
    return [key for key, value in wanted.items() if found[key]["settable"] and str(value) != found[key]["value"]]
