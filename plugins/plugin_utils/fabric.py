"""What role fabric derives from the declared ports and a reading of the node."""

from __future__ import annotations

import ipaddress
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.layers import (
    bond_of,
    lower_interfaces,
    made_interfaces,
)

NETWORKD = "systemd-networkd"
NETWORKMANAGER = "NetworkManager"
#: What configures the fabric ports where it is not systemd-networkd. EL has that from EPEL alone, and its installer
#: gives every port to NetworkManager.
MANAGERS = {"el9": NETWORKMANAGER, "el10": NETWORKMANAGER}

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


def fabric_links(ports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Interfaces to read: the ports and what they stand on."""
    lower = [below["interface"] for below in lower_interfaces(ports)]
    return list(dict.fromkeys([*(str(port["interface"]) for port in ports), *lower]))


def fabric_before(
    node: Mapping[str, Any], path: str, sysctls: Sequence[str], manager: str, declared: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """What ports and kernel parameters had before the role touched them: the first reading of each is kept.

    `made`: interfaces of the `declared` ports that were not there; they go with the role.
    """
    text = node["contents"].get(path, "")
    before: dict[str, Any] = json.loads(text) if text else {}
    before.setdefault("manager_enabled", bool(node["units"][f"{manager}.service"]["enabled"]))
    ports, values = before.setdefault("ports", {}), before.setdefault("sysctls", {})
    made = [*before.get("made", [])]
    made += [n for n in made_interfaces(declared) if n not in ports and n not in made and not _exists(node, n)]
    if made:
        before["made"] = made
    for name, link in node["links"].items():
        if link["exists"] and name not in ports and name not in made:
            up = link["operstate"] not in ("down", "absent")
            ports[name] = {"mtu": link["mtu"], "txqueuelen": link["txqueuelen"], "up": up}
            ports[name]["addresses"] = link["addresses"]
    for key in sysctls:
        values.setdefault(key, node["sysctls"][key]["value"])
    return before


def _exists(node: Mapping[str, Any], name: str) -> bool:
    return bool(node["links"].get(name, {}).get("exists"))


def port_commands(before: Mapping[str, Any], manager: str) -> str:
    """Lines for `ip -batch` that give the ports back what they had before.

    NetworkManager gives addresses back by itself, from the connection that a port had before.
    """
    lines = [f"link delete dev {name}" for name in before.get("made", [])]
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
    files = _keyfiles(ports) if manager == NETWORKMANAGER else _networkd_files(ports)
    wanted = {file["path"] for file in files}
    return files + [{"path": path, "state": "absent"} for path in there if path not in wanted]


def _vlans_on(interface: str, ports: Sequence[Mapping[str, Any]]) -> list[str]:
    return [port["interface"] for port in ports if port.get("vlan") is not None and port["parent"] == interface]


def _keyfiles(ports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Connections of NetworkManager: those of the ports, and those of what they stand on."""
    return [*map(_keyfile, ports), *(_keyfile(below, "lower") for below in lower_interfaces(ports))]


def _keyfile(port: Mapping[str, Any], kind: str = "port") -> dict[str, Any]:
    """A connection of NetworkManager, which reads no file that others may read."""
    name, names = port["interface"], {f"fabric_{kind}": port}
    path = f"{CONNECTIONS}{name}.nmconnection"
    return {"path": path, "template": f"{kind}.nmconnection.j2", "vars": names, "mode": "0600"}


def _networkd_files(ports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Files of systemd-networkd.

    An InfiniBand partition, a VLAN and a bond have devices of their own (.netdev). What they stand on carries them, and
    needs no address for that.
    """
    vlans = {port["interface"]: _vlans_on(port["interface"], ports) for port in ports}
    files = [
        _file(port["interface"], "port.network", fabric_port=port, fabric_vlans=vlans[port["interface"]])
        for port in ports
    ]
    files += [
        _file(port["interface"], "vlan.netdev", fabric_port=port) for port in ports if port.get("vlan") is not None
    ]
    bonds = {name: port for port in ports if (name := bond_of(port))}
    files += [_file(name, "bond.netdev", fabric_bond=name, fabric_port=port) for name, port in bonds.items()]
    files += [
        _file(
            below["interface"], "lower.network", fabric_lower=below, fabric_vlans=_vlans_on(below["interface"], ports)
        )
        for below in lower_interfaces(ports)
    ]
    partitions = [port for port in ports if port.get("pkey") is not None]
    files += [_file(port["interface"], "port.netdev", fabric_port=port) for port in partitions]
    declared = {port["interface"] for port in ports}
    for parent in sorted({port["parent"] for port in partitions} - declared):
        children = [port for port in partitions if port["parent"] == parent]
        files.append(_file(parent, "parent.network", fabric_parent=parent, fabric_children=children))
    return files


def _file(interface: str, kind: str, **names: Any) -> dict[str, Any]:
    return {"path": f"{NETWORK}{interface}.{kind.split('.')[1]}", "template": f"{kind}.j2", "vars": names}


#: States of an interface in which nothing comes by its cable.
NO_CARRIER = frozenset({"down", "lowerlayerdown", "notpresent"})


def ports_without_carrier(node: Mapping[str, Any], ports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ports, and what they stand on, that are there and have no carrier."""
    links = node["links"]
    return [n for n in fabric_links(ports) if _exists(node, n) and links[n].get("operstate") in NO_CARRIER]


def fabric_no_carrier(node: Mapping[str, Any], ports: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ports without a carrier in a sentence; none where all have one."""
    return no_carrier(ports_without_carrier(node, ports))


def no_carrier(names: Sequence[str]) -> list[str]:
    """Where to look for the carrier of ports."""
    which = "its cable, its transceiver and the port" if len(names) == 1 else "cables, transceivers and the ports"
    return [f"no carrier on {', '.join(names)}: look at {which} of the switch"] if names else []


def fabric_ports_off(
    node: Mapping[str, Any], ports: Sequence[Mapping[str, Any]], fabric_mtu: Any, queue: Any
) -> list[str]:
    """How the live ports and their units differ from what is declared; `queue` is the transmit queue in packets.

    A port without a carrier may lack its addresses: its network manager may wait for the cable.
    """
    off, dark = [], set(ports_without_carrier(node, ports))
    if ports:
        stopped = [name for name, unit in node["units"].items() if not (unit["active"] and unit["enabled"])]
        off += [f"{name} is not running and enabled; the port would not come back after a reboot" for name in stopped]
    for port in ports:
        name, link = port["interface"], node["links"][port["interface"]]
        if not link["exists"]:
            off.append(f"fabric port {name} does not exist")
            continue
        if port["address"] not in link["addresses"] and name not in dark:
            off.append(f"{name} lacks address {port['address']} (has: {', '.join(link['addresses']) or 'none'})")
        address6 = str(ipaddress.IPv6Interface(port["address6"])) if port.get("address6") else ""
        if address6 and name not in dark and address6 not in link["addresses6"]:
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
    above = [
        port["interface"]
        for port in ports
        if _keyfile(port)["path"] in changed or fabric_ports_off(node, [port], fabric_mtu, queue)
    ]
    lower = [below["interface"] for below in lower_interfaces(ports) if _keyfile(below, "lower")["path"] in changed]
    return [*reversed(lower), *above]  # members of a bond come before what stands on it


def sysctls_off(wanted: Mapping[str, Any], node: Mapping[str, Any]) -> list[str]:
    """Keys of kernel parameters that the node lets be set and that have another value."""
    found = node["sysctls"]
    return [key for key, value in wanted.items() if found[key]["settable"] and str(value) != found[key]["value"]]
