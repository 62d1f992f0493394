"""Fabric ports that stand on others (VLANs, bonds, partitions): what they need, what preflight refuses of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Port = Mapping[str, Any]

#: Longest name of an interface (IFNAMSIZ of linux/if.h, less its end).
NAME_LENGTH = 15
#: Modes of a bond that need no more than its members: LACP (IEEE 802.1AX), which the switch has to speak, and one
#: member at a time.
BOND_MODES = ("802.3ad", "active-backup")


def is_made(port: Port) -> bool:
    """Whether the port's interface comes into being by the role: it need not be there before."""
    return any(port.get(key) is not None for key in ("vlan", "pkey", "bond_members"))


def bond_of(port: Port) -> str:
    """The bond that a port brings along: itself, or what its VLAN stands on; "" for none."""
    if not port.get("bond_members"):
        return ""
    return str(port["parent"] if port.get("vlan") is not None else port["interface"])


def made_interfaces(ports: Sequence[Port]) -> list[str]:
    """Interfaces that the role makes."""
    own = [str(port["interface"]) for port in ports if is_made(port)]
    return list(dict.fromkeys([*own, *(name for port in ports if (name := bond_of(port)))]))


def lower_interfaces(ports: Sequence[Port]) -> list[dict[str, Any]]:
    """Interfaces below Ethernet ports that are no ports themselves: what VLANs stand on, and members of bonds.

    Each with the ports that stand on it (`children`) and the bond that takes it (`bond`); a bond without an address
    has its members and mode.
    """
    declared = {port["interface"] for port in ports}
    found: dict[str, dict[str, Any]] = {}
    for port in ports:
        if port.get("vlan") is not None and port["parent"] not in declared:
            below = found.setdefault(port["parent"], {"interface": port["parent"], "children": [], "bond": ""})
            below["children"].append(port)
            if port.get("bond_members"):
                below |= {key: port[key] for key in ("bond_members", "bond_mode") if key in port}
        for member in port.get("bond_members") or []:
            found.setdefault(member, {"interface": member, "children": [port], "bond": bond_of(port)})
    return list(found.values())


def _of_one(port: Port) -> Iterator[str]:
    vlan, parent, members = port.get("vlan"), port.get("parent"), port.get("bond_members")
    if vlan is not None and not parent:
        yield "a VLAN needs the interface that it stands on (parent)"
    if vlan is not None and not 1 <= int(vlan) <= 4094:
        yield f"vlan {vlan} is not 1 to 4094"
    if vlan is not None and port.get("pkey") is not None:
        yield "vlan is Ethernet's, pkey InfiniBand's: take one away"
    if parent and vlan is None and port.get("pkey") is None:
        yield "parent without vlan or pkey: say what stands on it"
    if port.get("link_layer", "ethernet") == "infiniband" and (vlan is not None or members):
        yield "InfiniBand has partitions (pkey) in place of VLANs, and no bond carries RDMA on it"
    if members is not None and len(set(members)) < 2:
        yield "a bond needs two members at least (bond_members)"
    if members and {port["interface"], parent} & set(members):
        yield "a bond is no member of itself (bond_members)"
    if port.get("bond_mode", BOND_MODES[0]) not in BOND_MODES:
        yield f"bond_mode {port['bond_mode']} is none of {', '.join(BOND_MODES)}"
    if "bond_mode" in port and not members:
        yield "bond_mode without bond_members"
    for name in filter(None, (port["interface"] if is_made(port) else "", bond_of(port))):
        if len(name) > NAME_LENGTH:
            yield f"{name} has more than the {NAME_LENGTH} characters of an interface's name"


def layer_reasons(observed: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Ports that cannot stand on what they are to stand on, on this node."""
    ports = wanted["fabric_ports"]
    faults = [(port["interface"], fault) for port in ports for fault in _of_one(port)]
    yield from (f"fabric port {name}: {fault}" for name, fault in faults)
    if faults:
        return
    declared, bonds = {port["interface"]: port for port in ports}, {bond_of(port) for port in ports} - {""}
    mtu = int(wanted["fabric_mtu"])
    takers: dict[str, set[str]] = {}
    for port in ports:
        name, bond = port["interface"], bond_of(port)
        for member in port.get("bond_members") or []:
            takers.setdefault(member, set()).add(bond)
            if member in declared:
                yield f"fabric port {member} is a member of bond {bond} too: a member has no address of its own"
        below = declared.get(port.get("parent")) if port.get("vlan") is not None else None
        most = int(below.get("mtu") or mtu) if below else 0
        if below and int(port.get("mtu") or mtu) > most:
            yield f"fabric port {name}: {port['parent']} has MTU {most}: give the VLAN one that is no larger (mtu)"
    for member, taken in takers.items():
        if len(taken) > 1:
            yield f"interface {member} is a member of bonds {' and '.join(sorted(taken))}: a port is in one bond"
    if observed["links_error"]:
        return
    links = observed["links"]
    for below in lower_interfaces(ports):
        name, users = below["interface"], ", ".join(port["interface"] for port in below["children"])
        if name not in links and name not in bonds:
            yield f"interface {name}, which {users} needs, does not exist; there are: {', '.join(sorted(links))}"
        elif wanted["address"] in links.get(name, ()):
            yield (
                f"fabric port {users} needs interface {name}, which carries the management address "
                f"{wanted['address']}: its settings are not role fabric's to replace; take another port"
            )
