"""Routes of fabric ports beyond their own network: what a declared port means, and what preflight refuses of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

Port = Mapping[str, Any]

#: Of the rules that send what leaves from a port's address to its table: before the main table's 32766.
RULE_PRIORITY = 1000
#: Tables that the kernel keeps for itself: unspec, default, main, local.
KERNEL_TABLES = (0, 253, 254, 255)


def port_routes(port: Port) -> dict[str, list[dict[str, Any]]]:
    """Routes (to, via, table; "" is none) and rules (from, table, priority) of a port.

    `routes` go through the gateway for everybody. With `table` the port has a table of its own, for what leaves from
    its address: its network, and through the gateway everything else.
    """
    own = ipaddress.IPv4Interface(port["address"])
    gateway, table = str(port.get("gateway") or ""), port.get("table")
    routes = [{"to": str(to), "via": gateway, "table": ""} for to in port.get("routes") or []]
    if table is None:
        return {"routes": routes, "rules": []}
    routes.append({"to": str(own.network), "via": "", "table": int(table)})
    if gateway:
        routes.append({"to": "0.0.0.0/0", "via": gateway, "table": int(table)})
    rule = {"from": str(own.ip), "table": int(table), "priority": RULE_PRIORITY}
    return {"routes": routes, "rules": [rule]}


def _faults(port: Port) -> Iterator[str]:
    """Of one port, whose address is one."""
    own, gateway = ipaddress.IPv4Interface(port["address"]), port.get("gateway")
    if gateway:
        try:
            router = ipaddress.IPv4Address(gateway)
        except ValueError as error:
            yield f"gateway {gateway!r} is no IPv4 address: {error}"
        else:
            if router not in own.network or router == own.ip:
                yield f"gateway {gateway} is no other address of its network {own.network}"
        if not port.get("routes") and port.get("table") is None:
            yield "gateway without routes or table: name the networks behind it (routes), or give the port a table"
    if port.get("routes") and not gateway:
        yield "routes without gateway: name the router of its network (gateway)"
    for to in port.get("routes") or []:
        try:
            network = ipaddress.IPv4Network(to)
        except ValueError as error:
            yield f"route {to!r} is no IPv4 network: {error}"
        else:
            if network.prefixlen == 0:
                yield "route 0.0.0.0/0 would take the management network's traffic: give the port a table instead"
    if port.get("table") is not None and int(port["table"]) in KERNEL_TABLES:
        yield f"table {port['table']} belongs to the kernel: take 1 to 252"
    if port.get("address6"):
        try:
            if ipaddress.IPv6Interface(port["address6"]).network.prefixlen == 128:
                yield f"address6 {port['address6']} lacks its prefix length, e.g. /64"
        except ValueError as error:
            yield f"address6 {port['address6']!r} is no IPv6 address with prefix: {error}"


def routing_reasons(observed: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Ports whose routes cannot be, and ports that share a network or a table."""
    networks: dict[str, list[Port]] = {}
    tables: dict[int, list[str]] = {}
    for port in wanted["fabric_ports"]:
        try:
            network = str(ipaddress.IPv4Interface(port["address"]).network)
        except ValueError:
            continue  # named elsewhere
        for fault in _faults(port):
            yield f"fabric port {port['interface']}: {fault}"
        networks.setdefault(network, []).append(port)
        if port.get("table") is not None:
            tables.setdefault(int(port["table"]), []).append(port["interface"])
    for network, ports in networks.items():
        names = ", ".join(port["interface"] for port in ports)
        if len(ports) > 1 and any(port.get("table") is None for port in ports):
            yield (
                f"fabric ports {names} are in one network, {network}, and the node would answer for all of them by "
                f"one: give each a network of its own, or each a table of its own (table)"
            )
    for table, names_of in tables.items():
        if len(names_of) > 1:
            yield f"fabric ports {', '.join(names_of)} have the same table {table}: give each its own"
