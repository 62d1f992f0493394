"""What the hosts do with RoCE, port by port, from the inventory's variables of roles roce and fabric."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from toolkit.errors import UsageFault
from toolkit.inventory import GROUPS, InventoryError, read_inventory
from toolkit.inventory_address import address_fault
from toolkit.inventory_bmc import plain_password
from toolkit.inventory_lines import locate
from toolkit.inventory_source import Host, read_source
from toolkit.scan.known_hosts import of_inventory
from toolkit.switches.keys import System
from validation.base import project
from validation.model import Cable
from validation.model.base import explain

ROLE_OF = {
    "roce_enabled": "roce", "roce_dscp": "roce", "roce_priority": "roce", "roce_cnp_dscp": "roce",
    "roce_cnp_priority": "roce", "roce_bandwidth_percent": "roce", "fabric_mtu": "fabric",
}  # fmt: skip
"""Variable -> the role whose default counts where the inventory has none."""
PASSWORD = "switches_password"  # noqa: S105 - the name of a variable


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Values(_Model):
    """The variables of a host, checked."""

    roce_enabled: bool
    roce_dscp: int = Field(ge=0, le=63)
    roce_priority: int = Field(ge=0, le=7)
    roce_cnp_dscp: int = Field(ge=0, le=63)
    roce_cnp_priority: int = Field(ge=0, le=7)
    roce_bandwidth_percent: int = Field(ge=1, le=99)
    fabric_mtu: int = Field(ge=576, le=65520)


class Reached(_Model):
    """An entry of the variable `switches`: how a switch is collected from."""

    address: str
    system: System
    user: str = "admin"
    port: int = Field(default=22, ge=1, le=65535)

    @field_validator("address")
    @classmethod
    def _is_one(cls, value: str) -> str:
        if fault := address_fault(value):
            raise ValueError(fault)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", value):
            raise ValueError(f"{value!r} is neither an IPv4 address nor a name")
        return value


@dataclass(frozen=True)
class HostPort:
    """A port of a host, and what it does. `bond`: of which it is a member, None where of none; `lacp`: the bond's."""

    node: str
    port: str
    values: Values
    mtu: int
    mtu_path: tuple[int | str, ...]
    bond: str | None = None
    lacp: bool = False
    bond_path: tuple[int | str, ...] = ()

    def __str__(self) -> str:
        """`gpu2 eth1`."""
        return f"{self.node} {self.port}"


@cache
def _default(variable: str) -> Any:
    file = project.file(f"roles/{ROLE_OF[variable]}/defaults/main.yml")
    return yaml.safe_load(file.read_text(encoding="utf-8"))[variable]


@dataclass(frozen=True)
class Site:
    """An inventory's hosts, cables and switches. Hosts without Ethernet fabric ports are left out.

    `known_hosts`: the file that the inventory has ssh keep host keys in, None where it names none."""

    inventory: Path
    ports: tuple[HostPort, ...]
    cables: tuple[Cable, ...]
    switches: dict[str, Reached]
    password: str | None
    known_hosts: Path | None
    declared: dict[str, frozenset[str]]
    """host -> those of its variables that the inventory gives."""

    def where(self, port: HostPort, variable: str, path: tuple[int | str, ...] = ()) -> str:
        """The host's line: the file and line where a variable is given, else the role that has its default."""
        value = getattr(port.values, variable, None)
        if path or variable in self.declared[port.node]:
            place = locate(self.inventory, port.node, path or (variable,)) or f"{self.inventory}: {port.node}"
            return f"{place}: {_said(port, variable, path)}"
        return f"roles/{ROLE_OF[variable]}/defaults/main.yml: {variable}: {_plain(value)} (default)"

    @cached_property
    def by_cable(self) -> dict[tuple[str, str], HostPort]:
        """(node, physical port) -> the port."""
        return {(port.node, port.port): port for port in self.ports}


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _said(port: HostPort, variable: str, path: tuple[int | str, ...]) -> str:
    if path == port.bond_path and path:
        return f"{port.bond} is {'a bond by LACP' if port.lacp else 'a bond without LACP'} of {port.port}"
    if path:
        return f"mtu: {port.mtu}"
    return f"{variable}: {_plain(getattr(port.values, variable))}"


def _values(inventory: Path, host: str, said: Host) -> Values:
    given = {name: said.values[name] if name in said.values else _default(name) for name in ROLE_OF}
    try:
        return Values.model_validate(given)
    except ValidationError as fault:
        path, words = explain(fault)
        place = locate(inventory, host, path) or str(inventory)
        raise InventoryError(f"{place}: {host}: {'.'.join(map(str, path))}: {words}") from None


def _ports(host: str, said: Host, values: Values) -> list[HostPort]:
    found = []
    for position, port in enumerate(said.values.get("fabric_ports") or ()):
        if port.get("link_layer", "ethernet") != "ethernet":
            continue
        own = port.get("mtu") is not None
        mtu, path = (int(port["mtu"]), ("fabric_ports", position, "mtu")) if own else (values.fabric_mtu, ())
        members = port.get("bond_members")
        below = members or [port.get("parent") or port["interface"]]
        for name in below:
            bond = (port.get("parent") if port.get("vlan") else None) or port["interface"] if members else None
            lacp = bool(members) and port.get("bond_mode", "802.3ad") == "802.3ad"
            bonded = ("fabric_ports", position, "bond_members") if members else ()
            found.append(HostPort(host, name, values, mtu, path, bond, lacp, bonded))
    largest: dict[str, HostPort] = {}
    for one in found:  # several VLANs of one port: the switch needs room for the largest
        if one.port not in largest or one.mtu > largest[one.port].mtu:
            largest[one.port] = one
    return list(largest.values())


def read(inventory: Path) -> Site:
    """What an inventory says of hosts, cables and switches; InventoryError or UsageFault with one clear line."""
    topology = read_inventory(inventory)  # says what is wrong with its hosts, fabric ports and cables
    more = ("fabric_ports", "switches", PASSWORD)
    source = read_source(inventory, {*ROLE_OF, *more})
    hosts = list(dict.fromkeys(name for group in GROUPS for name in source.members(group)))
    ports: list[HostPort] = []
    for host in hosts:
        said = source.hosts[host]
        ports += _ports(host, said, _values(inventory, host, said))
    first = source.hosts[hosts[0]]
    for variable in ("switches", PASSWORD):
        if variable in first.unresolved:
            raise InventoryError(f"{inventory}: {variable}: Ansible cannot resolve it: {first.unresolved[variable]}")
        if any(source.hosts[host].values.get(variable) != first.values.get(variable) for host in hosts):
            raise InventoryError(f"{inventory}: {variable}: differs between hosts; set it in group_vars/all")
    return Site(
        inventory=inventory,
        ports=tuple(ports),
        cables=topology.cables,
        switches=_switches(inventory, hosts[0], first.values.get("switches") or {}),
        password=_password(inventory, hosts[0], first.values.get(PASSWORD)),
        known_hosts=of_inventory(topology.nodes[0].ssh.extra_args),
        declared={host: frozenset(source.hosts[host].values) for host in hosts},
    )


def _switches(inventory: Path, host: str, given: Any) -> dict[str, Reached]:
    place = locate(inventory, host, ("switches",)) or str(inventory)
    if not isinstance(given, dict):
        raise UsageFault(
            f"{place}: switches: is no table of names; write leaf1: {{address: 192.0.2.11, system: sonic}}"
        )
    found = {}
    for name, entry in given.items():
        try:
            found[str(name)] = Reached.model_validate(entry)
        except ValidationError as fault:
            path, words = explain(fault)
            raise UsageFault(f"{place}: switches: {name}: {'.'.join(map(str, path))}: {words}") from None
    return found


def _password(inventory: Path, host: str, given: object) -> str | None:
    """The password of the vault; UsageFault where it is in the inventory for everybody to read."""
    if given is None:
        return None
    place = locate(inventory, host, (PASSWORD,))
    if not isinstance(given, str) or not given:
        raise UsageFault(f"{place or inventory}: {PASSWORD}: is no text; encrypt it: ansible-vault encrypt_string")
    if plain_password(place, PASSWORD):
        raise UsageFault(
            f"{place}: {PASSWORD} is written here in plain text; encrypt it: ansible-vault encrypt_string, or set "
            "TOOLKIT_SWITCH_PASSWORD in place of it"
        )
    return given
