"""Addresses and fabric ports of whole groups by rule: what the inventory plugin `rails` calculates, without Ansible."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.project import loaded

_COLLECTION = Path(__file__).parents[2]
RAIL, HOST = "{rail}", "{host}"
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_KEYS = {"ansible_host", "fabric_ports"}
_MOST = 4096  # of one range


class RailsError(ValueError):
    """A rule that cannot be used: `file:line: what is wrong; what to do`."""


class Rule(NamedTuple):
    """What a group's hosts have in common. `lines`: key -> line (from 1)."""

    group: str
    ansible_host: str
    fabric_ports: dict[str, Any]
    lines: dict[str, int]


class Member(NamedTuple):
    """A host of a group, with what its own lines in the inventory say of it."""

    name: str
    own: Mapping[str, Any]


def expand_range(word: str) -> list[str]:
    """`ens[31:38]np0` is eight names, as Ansible has it: bounds are included, `[01:12]` keeps zeros, `[1:9:2]` steps.

    ValueError with words where it is none.
    """
    found = _RANGE.search(word)
    if found is None:
        if "[" in word or "]" in word:
            raise ValueError(f"{word}: a range is written like ens[31:38]np0")
        return [word]
    parts = found[1].split(":")
    if len(parts) not in (2, 3) or not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise ValueError(f"{word}: a range is written like ens[31:38]np0")
    first, last, step = int(parts[0]), int(parts[1]), int(parts[2]) if len(parts) == 3 else 1
    if last < first or step < 1:
        raise ValueError(f"{word}: the range ends before it begins")
    if (last - first) // step >= _MOST:
        raise ValueError(f"{word}: more than {_MOST}; is there a digit too many?")
    width = len(parts[0]) if parts[0].startswith("0") else 0
    before, after = word[: found.start()], word[found.end() :]
    return [one for n in range(first, last + 1, step) for one in expand_range(f"{before}{n:0{width}d}{after}")]


def read_rules(text: str, path: str) -> list[Rule]:
    """The rules of a file; RailsError with file and line where it has another form."""
    reader = loaded(_COLLECTION, "validation/base/yaml_text.py")
    try:
        return _rules(reader, reader.yaml_tree(text), path)
    except yaml.YAMLError as fault:
        line, words = reader.fault_of(fault, text)
        raise RailsError(f"{path}:{line}: not valid YAML: {words}; correct this line") from None


def _rules(reader: Any, root: yaml.Node | None, path: str) -> list[Rule]:
    for key, first in reader.repeated(root):
        words = f"duplicate key: {key.value}; it stands in line {first.start_mark.line + 1} too, keep one"
        raise RailsError(f"{path}:{key.start_mark.line + 1}: {words}")
    top = _mapping(root, path, {"plugin", "groups"})
    if "groups" not in top:
        raise RailsError(f"{path}:1: groups: is missing; name a group and its rules there")
    rules = []
    for group, (line, node) in _mapping(top["groups"][1], path, None).items():
        keys = _mapping(node, path, _KEYS)
        values = {key: reader.value_of(value) for key, (_, value) in keys.items()}
        lines = {"": line, **{key: at for key, (at, _) in keys.items()}}
        if not isinstance(values.get("ansible_host", ""), str):
            raise RailsError(f"{path}:{lines['ansible_host']}: ansible_host: write it like 198.51.100.[31:34]")
        if "fabric_ports" in keys:
            inner = _mapping(keys["fabric_ports"][1], path, None)
            for key in ("interface", "address"):
                if not isinstance(values["fabric_ports"].get(key), str):
                    raise RailsError(f"{path}:{lines['fabric_ports']}: fabric_ports: {key}: is missing; add it")
            lines |= {f"fabric_ports.{key}": at for key, (at, _) in inner.items()}
        rules.append(Rule(group, values.get("ansible_host", ""), values.get("fabric_ports", {}), lines))
    return rules


def _mapping(node: Any, path: str, known: set[str] | None) -> dict[str, tuple[int, Any]]:
    """Key -> its line, and its value's node."""
    if not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line + 1 if node is not None else 1
        raise RailsError(f"{path}:{line}: a mapping of keys is expected; see inventories/xe9680/rails.yml")
    found: dict[str, tuple[int, Any]] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if known is not None and name not in known:
            raise RailsError(f"{path}:{line}: unknown key: {name}; known: {', '.join(sorted(known))}")
        found[name] = (line, value)
    return found


def variables(rules: Iterable[Rule], members: Mapping[str, Iterable[Member]], path: str) -> dict[str, dict[str, Any]]:
    """Host -> `ansible_host` and `fabric_ports` by rule, but what its own lines say. RailsError where it cannot be."""
    found: dict[str, dict[str, Any]] = {}
    given_by: dict[tuple[str, str], str] = {}
    owner: dict[str, str] = {}
    for rule in rules:
        if rule.group not in members:
            known = ", ".join(sorted(set(members) - {"all", "ungrouped"}))
            words = f"group {rule.group}: is not in the inventory; there are: {known}"
            raise RailsError(f"{path}:{rule.lines['']}: {words}")
        hosts = list(members[rule.group])
        addresses = _addresses(rule, hosts, path)
        for member, address in zip(hosts, addresses):
            new: dict[str, Any] = {}
            if rule.ansible_host and "ansible_host" not in member.own:
                new["ansible_host"] = address
            if rule.fabric_ports and "fabric_ports" not in member.own:
                new["fabric_ports"] = _ports(rule, member, member.own.get("ansible_host", address), path)
            for key in new:
                other = given_by.setdefault((member.name, key), rule.group)
                if other != rule.group:
                    words = f"{member.name} has {key} by the rule of group {other} too; keep one of them"
                    raise RailsError(f"{path}:{rule.lines[key]}: group {rule.group}: {words}")
            for port in new.get("fabric_ports", []):
                ip = port["address"].split("/")[0]
                if owner.setdefault(ip, member.name) != member.name:
                    words = f"address {ip} would be {owner[ip]}'s and {member.name}'s; give one of them its own lines"
                    raise RailsError(f"{path}:{rule.lines['fabric_ports.address']}: group {rule.group}: {words}")
            found.setdefault(member.name, {}).update(new)
    return found


def _addresses(rule: Rule, hosts: list[Member], path: str) -> list[str]:
    """A management address for each host of a group, "" without a rule."""
    if not rule.ansible_host:
        return [""] * len(hosts)
    where = f"{path}:{rule.lines['ansible_host']}: group {rule.group}: ansible_host"
    try:
        found = expand_range(rule.ansible_host)
    except ValueError as fault:
        raise RailsError(f"{where}: {fault}") from None
    if len(found) != len(hosts):
        names = f"{hosts[0].name} to {hosts[-1].name}" if hosts else "none"
        some = f"{len(found)} address{'' if len(found) == 1 else 'es'}"
        of = f"{len(hosts)} host{'' if len(hosts) == 1 else 's'}"
        raise RailsError(f"{where}: {some} for {of} ({names}); make them as many")
    return found


def _ports(rule: Rule, member: Member, address: str, path: str) -> list[dict[str, Any]]:
    """The fabric ports of a host: one for each interface, `{rail}` counted from 0."""
    where = f"{path}:{rule.lines['fabric_ports.address']}: group {rule.group}: fabric_ports"
    pattern = rule.fabric_ports["address"]
    try:
        interfaces = expand_range(rule.fabric_ports["interface"])
    except ValueError as fault:
        raise RailsError(f"{path}:{rule.lines['fabric_ports.interface']}: group {rule.group}: {fault}") from None
    if len(interfaces) > 1 and RAIL not in pattern:
        words = f"without {RAIL} all {len(interfaces)} ports would have it; write it like 10.80.{RAIL}.{HOST}/24"
        raise RailsError(f"{where}: address {pattern}: {words}")
    number = ""
    if HOST in pattern:
        try:
            number = str(ipaddress.IPv4Address(address).packed[-1])
        except ValueError:
            words = f"{HOST} is the last number of ansible_host; {member.name} has {address or 'none'}; set an address"
            raise RailsError(f"{where}: {words}") from None
    found: list[dict[str, Any]] = []
    networks: dict[ipaddress.IPv4Network, str] = {}
    for rail, interface in enumerate(interfaces):
        text = pattern.replace(RAIL, str(rail)).replace(HOST, number)
        try:
            if "/" not in text:
                raise ValueError("no prefix length")
            network = ipaddress.IPv4Interface(text).network
        except ValueError as fault:
            words = f"address {text} of {member.name}: {fault}; write it like 10.80.0.31/24"
            raise RailsError(f"{where}: {words}") from None
        if network in networks:
            both = f"{networks[network]} and {interface} of {member.name}"
            words = f"{both} are both in {network}; each rail needs its own"
            raise RailsError(f"{where}: {words}")
        networks[network] = interface
        one = {**rule.fabric_ports, "interface": interface, "address": text}
        if isinstance(one.get("leaf"), str):
            one["leaf"] = one["leaf"].replace(RAIL, str(rail))
        found.append(one)
    return found
