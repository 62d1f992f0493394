"""What role fabric derives from the declared ports and a reading of the node."""

from __future__ import annotations

import ipaddress
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NETWORKD = "systemd-networkd"
NETWORKMANAGER = "NetworkManager"
#: What configures the fabric ports where it is not systemd-networkd. EL has that from EPEL alone, and its installer
#: gives every port to NetworkManager.
MANAGERS = {"el9": NETWORKMANAGER}

#: systemd-networkd takes the first file by name that matches a port, whatever its folder (systemd.network(5));
#: netplan's are 10-netplan-*, those of cloud-init 10-cloud-init-*.
PREFIX = "05-elastic-ai-"
NETWORK = f"/etc/systemd/network/{PREFIX}"
CONNECTIONS = "/etc/NetworkManager/system-connections/elastic-ai-"


def port_mtu(port: Mapping[str, Any], fabric_mtu: Any) -> int:
    """MTU of a fabric port in bytes. IPoIB's are the kernel's limits: 65520 connected, 2044 in a datagram of 2048."""
    if port.get("mtu"):
        return int(port["mtu"])
    if port.get("link_layer", "ethernet") == "infiniband":
        return 65520 if port.get("ipoib_mode", "datagram") == "connected" else 2044
    return int(fabric_mtu)


def port_manager(os_key: str) -> str:
    """What configures the fabric ports of a system: systemd-networkd or NetworkManager."""
    return MANAGERS.get(os_key, NETWORKD)


def connection_uuid(interface: str) -> str:
    """UUID of a port's connection in NetworkManager: it follows from the name, so that a second run is the same."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{interface}.elastic-ai.invalid"))


def fabric_before(node: Mapping[str, Any], path: str, sysctls: Sequence[str], manager: str) -> dict[str, Any]:
    """What ports and kernel parameters had before the role touched them: the first reading of each is kept."""
    text = node["contents"].get(path, "")
    before: dict[str, Any] = json.loads(text) if text else {}
    before.setdefault("manager_enabled", bool(node["units"][f"{manager}.service"]["enabled"]))
    ports, values = before.setdefault("ports", {}), before.setdefault("sysctls", {})
    for name, link in node["links"].items():
        if link["exists"] and name not in ports:
            up = link["operstate"] not in ("down", "absent")
            ports[name] = {"mtu": link["mtu"], "txqueuelen": link["txqueuelen"], "up": up}
            ports[name]["addresses"] = link["addresses"]
    for key in sysctls:
        values.setdefault(key, node["sysctls"][key]["value"])
    return before


def port_commands(before: Mapping[str, Any], manager: str) -> str:
    """Lines for `ip -batch` that give the ports back what they had before.

    NetworkManager gives addresses back by itself, from the connection that a port had before.
    """
    lines = []
    for name, port in before.get("ports", {}).items():
        if manager == NETWORKMANAGER:
            lines.append(f"link set dev {name} mtu {port['mtu']} txqueuelen {port['txqueuelen']}")
            continue
        state = "up" if port["up"] else "down"
        lines.append(f"address flush dev {name} scope global")
        lines.append(f"link set dev {name} mtu {port['mtu']} txqueuelen {port['txqueuelen']} {state}")
        lines += [f"address add {address} dev {name}" for address in port["addresses"]]
    return "\n".join(lines) + "\n"


def fabric_port_files(ports: Sequence[Mapping[str, Any]], there: Iterable[str], manager: str) -> list[dict[str, Any]]:
    """Files for managed_files: those of each port for its manager, and the absence of all others that are `there`."""
    files = [_keyfile(port) for port in ports] if manager == NETWORKMANAGER else _networkd_files(ports)
    wanted = {file["path"] for file in files}
    return files + [{"path": path, "state": "absent"} for path in there if path not in wanted]


def _keyfile(port: Mapping[str, Any]) -> dict[str, Any]:
    """A connection of NetworkManager, which reads no file that others may read."""
    name, names = port["interface"], {"fabric_port": port}
    path = f"{CONNECTIONS}{name}.nmconnection"
    return {"path": path, "template": "port.nmconnection.j2", "vars": names, "mode": "0600"}


def _networkd_files(ports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Files of systemd-networkd.

    An InfiniBand partition has a device of its own (.netdev). Its parent carries it, and needs no address for that.
    """
    files = [_file(port["interface"], "port.network", fabric_port=port) for port in ports]
    partitions = [port for port in ports if port.get("pkey") is not None]
    files += [_file(port["interface"], "port.netdev", fabric_port=port) for port in partitions]
    declared = {port["interface"] for port in ports}
    for parent in sorted({port["parent"] for port in partitions} - declared):
        children = [port for port in partitions if port["parent"] == parent]
        files.append(_file(parent, "parent.network", fabric_parent=parent, fabric_children=children))
    return files


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
        if port.get("address6") and str(ipaddress.IPv6Interface(port["address6"])) not in link["addresses6"]:
            off.append(f"{name} lacks address {port['address6']} (has: {', '.join(link['addresses6']) or 'none'})")
        if link["mtu"] != port_mtu(port, fabric_mtu):
            off.append(f"{name} has MTU {link['mtu']}, not {port_mtu(port, fabric_mtu)}")
        if link["txqueuelen"] != int(queue):
            off.append(f"{name} has a transmit queue of {link['txqueuelen']}, not {queue}")
    return off


def ports_to_activate(
    node: Mapping[str, Any], ports: Sequence[Mapping[str, Any]], fabric_mtu: Any, queue: Any, changed: Sequence[str]
) -> list[str]:
    """Ports whose connection has to be activated: its file is among those `changed`, or it is not as declared."""
    return [
        port["interface"]
        for port in ports
        if _keyfile(port)["path"] in changed or fabric_ports_off(node, [port], fabric_mtu, queue)
    ]


def sysctls_off(wanted: Mapping[str, Any], node: Mapping[str, Any]) -> list[str]:
    """Keys of kernel parameters that the node lets be set and that have another value."""
    found = node["sysctls"]
    return [key for key, value in wanted.items() if found[key]["settable"] and str(value) != found[key]["value"]]
