"""What a site wants of a node: its inventory, then the roles' defaults and tables, then the release of the stack."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from validation.base.project import ROOT
from validation.measures.asbuilt.parse import NOT_APPLICABLE
from validation.rules.virtual import CONTAINERS

Host = Any
"""testinfra.host.Host, which has no types."""


class Unresolved(Exception):
    """An expectation that cannot be known here: the check is not run, which is no pass."""


def not_applicable(why: str) -> NoReturn:
    """End a check that does not concern this node by the site's own data."""
    pytest.skip(f"{NOT_APPLICABLE}{why}")


@functools.cache
def _yaml(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise Unresolved(f"{path}: no such file; the toolkit that the checks are of is not whole")
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def _literal(value: Any, what: str) -> Any:
    """The value, in which no template is left."""
    if isinstance(value, str) and ("{{" in value or "{%" in value):
        raise Unresolved(f"{what} is a template, which only Ansible resolves: {value}")
    if isinstance(value, dict):
        return {key: _literal(part, f"{what}.{key}") for key, part in value.items()}
    if isinstance(value, list):
        return [_literal(part, what) for part in value]
    return value


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """`other` on top of `one`, mappings key by key."""
    out = dict(one)
    for key, value in other.items():
        both = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        out[key] = merged(out[key], value) if both else value
    return out


def is_version(found: str, wanted: str) -> bool:
    """Whether a version is the wanted one, or a build of it: 12.2.2-1 of 12.2.2, 580.95.05 of 580, and not 23.11.10 of
    23.11.1. Any is where none is named."""
    return not wanted or re.match(rf"{re.escape(wanted)}(?!\d)", found) is not None


class Site:
    """What the inventory says of one node, and of the others."""

    def __init__(self, host: Host) -> None:
        """`host` is of testinfra's backend ansible://, which alone has an inventory."""
        self._host = host
        self.name: str = host.backend.host
        self._inventory: Mapping[str, Any] = host.backend.ansible_runner.inventory
        self.variables: Mapping[str, Any] = self.of(self.name)

    def of(self, node: str) -> Mapping[str, Any]:
        """The variables of a node as they stand in the inventory."""
        found: Mapping[str, Any] = self._inventory.get("_meta", {}).get("hostvars", {}).get(node, {})
        return found

    def hosts(self, group: str) -> list[str]:
        """Nodes of a group and of its child groups, in the inventory's order."""
        entry = self._inventory.get(group, {})
        found = list(entry.get("hosts", []))
        for child in entry.get("children", []):
            found += self.hosts(child)
        return list(dict.fromkeys(found))

    def in_group(self, *groups: str) -> bool:
        """Whether the node is in one of the groups."""
        return any(self.name in self.hosts(group) for group in groups)

    @property
    def head(self) -> str:
        """The first node of group heads, which has the duties of one; "" where the site has none."""
        return next(iter(self.hosts("heads")), "")

    @property
    def is_head(self) -> bool:
        """Whether the node has these duties."""
        return self.name == self.head

    def get(self, name: str, default: Any = None) -> Any:
        """A variable of the inventory; Unresolved where it is a template."""
        return _literal(self.variables.get(name, default), name)

    def wants(self, name: str) -> Any:
        """A variable of a role, `ROLE_NAME`: the inventory's, else the role's default."""
        if name in self.variables:
            return self.get(name)
        for role in sorted((path.name for path in (ROOT / "roles").iterdir()), key=len, reverse=True):
            if name.startswith(f"{role}_"):
                defaults = _yaml(ROOT / "roles" / role / "defaults/main.yml")
                if name in defaults:
                    return _literal(defaults[name], name)
        raise Unresolved(f"{name}: no role has this variable")

    def table(self, role: str, name: str) -> Any:
        """What a role's table by operating system (`name` in roles/ROLE/vars) says of this node's."""
        by_system = _yaml(ROOT / "roles" / role / "vars/main.yml")[name]
        if self.system not in by_system:
            raise Unresolved(f"role {role} knows nothing of {self.system}")
        return _literal(by_system[self.system], name)

    @functools.cached_property
    def system(self) -> str:
        """The node's operating system as the roles' tables name it: debian12, ubuntu2404, el9."""
        name, version = str(self._host.system_info.distribution), str(self._host.system_info.release)
        if name in ("rhel", "redhat", "rocky", "almalinux", "centos", "ol", "oracle"):
            return f"el{version.partition('.')[0]}"
        return f"{name}{version.replace('.', '') if name == 'ubuntu' else version.partition('.')[0]}"

    @functools.cached_property
    def stack(self) -> Mapping[str, Any]:
        """The release's versions for this node's system, with the inventory's stack_overrides on top."""
        release = str(self.get("stack_release", "current"))
        path = ROOT / "stacks" / f"{release}.yml" if re.fullmatch(r"[\w.-]+", release) else Path(release)
        sets = _yaml(path).get("stack_data", {}).get("sets", {})
        if self.system not in sets:
            raise Unresolved(f"release {release} has no set for {self.system}")
        return merged(sets[self.system], self.get("stack_overrides", {}))

    def version(self, variable: str, part: str, key: str = "version") -> str:
        """The version that is wanted: the inventory's variable, else the release's; "" where neither names one."""
        return str(self.get(variable) or self.stack.get(part, {}).get(key) or "")

    @property
    def container(self) -> bool:
        """Whether the inventory says that the node is a container, whose kernel and limits are its host's."""
        return self.get("elastic_ai_virtual") in CONTAINERS

    @property
    def virtual(self) -> bool:
        """Whether the inventory says that the node is virtual."""
        return bool(self.get("elastic_ai_virtual"))

    def only_with(self, role: str) -> None:
        """Leave out a node of which the inventory says that it goes without a role."""
        if str(self.get(f"{role}_state", "present")) == "absent":
            not_applicable(f"{role}_state is absent in the inventory")

    @property
    def ports(self) -> list[Mapping[str, Any]]:
        """The node's fabric ports."""
        return list(self.get("fabric_ports", []))

    @property
    def ethernet_ports(self) -> list[str]:
        """Interfaces of its fabric ports that are Ethernet."""
        return [port["interface"] for port in self.ports if port.get("link_layer", "ethernet") == "ethernet"]


EVERYWHERE = {"*", "0.0.0.0", "[::]"}


def listening(host: Host, port: int | str) -> set[str]:
    """Addresses at which something listens on a TCP port, as ss prints them."""
    lines = host.check_output(f"ss -Hltn 'sport = :{int(port)}'").splitlines()
    return {line.split()[3].rpartition(":")[0] for line in lines if len(line.split()) > 3}


def deaf(host: Host, port: int | str, *addresses: str) -> list[str]:
    """Those of the addresses at which nothing listens on a TCP port."""
    found = listening(host, port)
    return [f"{address}:{port}" for address in addresses if not found & {address, *EVERYWHERE}]
