"""Finds the file and line of a variable in an inventory, so that an error can point to it."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from validation.base.yaml_text import child, fault_of, repeated, yaml_tree
from validation.model.load import ConfigError, read_source

_SUFFIXES = (".yml", ".yaml")
#: Endings that Ansible leaves out of a folder of inventories (INVENTORY_IGNORE_EXTS).
_NO_INVENTORY = (".pyc", ".pyo", ".swp", ".bak", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry")
_NO_FOLDERS = ("group_vars", "host_vars", "vars_plugins")
_ADDRESS = "ansible_host"


def inventory_files(folder: Path) -> list[Path]:
    """Files of a folder, and of the folders in it, that Ansible takes for inventories, whatever their names; group_vars
    and host_vars are none."""
    found: list[Path] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name[0] in "._" or path.name.endswith("~") or path.suffix in _NO_INVENTORY or path.name in _NO_FOLDERS:
            continue
        found += inventory_files(path) if path.is_dir() else [path] if path.is_file() else []
    return found


def _variables(folder: Path, name: str = "*") -> list[Path]:
    """Files of variables below group_vars or host_vars: .yml, .yaml, .json or no ending; hidden ones and copies are not
    read, nor what stands in hidden folders."""
    found = [q for p in sorted(folder.glob(name)) for q in (sorted(p.rglob("*")) if p.is_dir() else (p,))]
    return [
        path
        for path in found
        if path.is_file()
        and path.suffix in (*_SUFFIXES, ".json", "")
        and not any(part.startswith(".") or part.endswith("~") for part in path.relative_to(folder).parts)
    ]


def _files(inventory: Path, host: str | None) -> list[Path]:
    """YAML files of an inventory, those that weigh most with Ansible first: host_vars, hosts, group_vars."""
    if inventory.is_file():
        folder, main = inventory.parent, [inventory]
    else:
        folder, main = inventory, inventory_files(inventory)
    own = [p for name in (host, f"{host}.*") for p in _variables(folder / "host_vars", name)] if host else []
    main = [p for p in main if p.suffix in (*_SUFFIXES, ".json")]
    return [*own, *main, *_variables(folder / "group_vars")]


def syntax_fault(inventory: Path) -> str | None:
    """`file:line: what is wrong` for the first file that is no YAML at all, or has a key twice, of which Ansible takes
    the last (of two nodes of one name that one alone); None when all of them are fine."""
    for path in _files(inventory, None):
        try:
            text = read_source(path).text
        except ConfigError as fault:
            return str(fault)
        try:
            tree = yaml_tree(text)
        except yaml.YAMLError as fault:
            if _is_json(text):  # with tabs, which are none of YAML's
                continue
            line, words = fault_of(fault, text)
            return f"{path}:{line}: not valid YAML: {words}; correct this line"
        for key, first in repeated(tree):
            words = (
                f"{key.value} stands here twice, in line {first.start_mark.line + 1} too, and Ansible takes the last"
            )
            return f"{path}:{key.start_mark.line + 1}: {words}; give each a name of its own, or remove one"
    return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def twin_fault(inventory: Path) -> str | None:
    """`file:line: what is wrong` where two nodes have one name, which Ansible makes one node of; None elsewhere.

    A node may stand in several groups. It is two where its own entries name two addresses (`ansible_host`).
    """
    known: dict[str, tuple[str, str]] = {}
    for host, address, place in _addresses(inventory):
        first, there = known.setdefault(host, (address, place))
        if first != address:
            words = f"{host} has ansible_host {address} here and {first} in {there}, and Ansible makes one node of both"
            return f"{place}: {words}; give each node a name of its own"
    return None


def _addresses(inventory: Path) -> Iterator[tuple[str, str, str]]:
    """Each `ansible_host` in an entry of a host: the host, the address as it is written, and `file:line`."""
    for path in _files(inventory, None):
        if not {path.parent.name, path.parent.parent.name} & {"host_vars", "group_vars"}:
            for hosts, _ in mappings(yaml_tree(read_source(path).text) or yaml.MappingNode("", []), "hosts"):
                for name, values in hosts.value if isinstance(hosts, yaml.MappingNode) else ():
                    found = _child(values, _ADDRESS)
                    if found is not None and isinstance(found[0], yaml.ScalarNode):
                        yield str(name.value), found[0].value, f"{path}:{found[1]}"
    for path in _ini_files(inventory):
        for number, section, words in _ini_lines(path):
            for word in words[1:] if ":" not in section else ():
                name, _, value = word.partition("=")
                if name == _ADDRESS:
                    yield words[0], value.strip("\"'"), f"{path}:{number}"


def _ini_files(inventory: Path) -> list[Path]:
    """Files of an inventory in Ansible's ini form, or in a form that nobody here knows."""
    known = (*_SUFFIXES, ".json", ".toml")
    every = [inventory] if inventory.is_file() else inventory_files(inventory)
    return [path for path in every if path.suffix not in known and not os.access(path, os.X_OK)]


def _ini_lines(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Lines that say something: number, section ("" before the first), words."""
    try:
        text = read_source(path).text
    except ConfigError:
        return  # no text: no inventory either
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if words and words[0].startswith("[") and words[0].endswith("]") and len(words) == 1:
            section = words[0].strip("[]")
        elif words and not words[0].startswith(";"):
            yield number, section, words


def _ini_place(inventory: Path, host: str, variable: str) -> tuple[str | None, str | None, str | None]:
    """`file:line` in files of the ini form: where a host's own line has a variable, where the host stands first, and
    where a group has it, if one alone does."""
    own = first = None
    groups = []
    for path in _ini_files(inventory):
        for number, section, words in _ini_lines(path):
            place = f"{path}:{number}"
            if section.endswith(":vars"):
                groups += [place] if re.split(r"\s*=", " ".join(words))[0] == variable else []
            elif ":" not in section and _names(words[0], host):
                first = first or place
                own = place if any(word.partition("=")[0] == variable for word in words[1:]) else own
    return own, first, groups[0] if len(groups) == 1 else None


def _names(word: str, host: str) -> bool:
    """Whether the first word of a line names a host: by its name, with a port, or by a range of names."""
    name = word.strip("\"'")
    names = (name, bare := re.sub(r":\d+$", "", name), bare.strip("[]"))
    return host in names or any("[" in one and host in _range(one) for one in names)


@functools.cache
def _range(word: str) -> frozenset[str]:
    """The names of a range; none where it is no range."""
    from ansible.errors import AnsibleError  # type: ignore[import-untyped]
    from ansible.plugins.inventory import expand_hostname_range  # type: ignore[import-untyped]

    try:
        return frozenset(expand_hostname_range(word))
    except (AnsibleError, ValueError):
        return frozenset()


def _child(node: yaml.Node, key: int | str) -> tuple[yaml.Node, int] | None:
    """The value under `key` and the line (from 1) where it starts; `gpu[1:4]` is the key of gpu2 too."""
    found = child(node, key)
    if found is None and isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            text = getattr(name, "value", None)
            if isinstance(text, str) and "[" in text and str(key) in _range(text):
                return value, name.start_mark.line + 1
    return found


def mappings(node: yaml.Node, key: str, seen: set[yaml.Node] | None = None) -> Iterator[tuple[yaml.Node, int]]:
    """Every value under `key`, anywhere in the tree; by an alias the tree may contain itself."""
    seen = set() if seen is None else seen
    if isinstance(node, yaml.MappingNode) and node not in seen:
        seen.add(node)
        for name, value in node.value:
            if getattr(name, "value", None) == key:
                yield value, name.start_mark.line + 1
            yield from mappings(value, key, seen)


def _rule(tree: yaml.Node, inventory: Path, host: str, path: tuple[int | str, ...]) -> int | None:
    """Line of the rule that gives a host a variable (plugins/inventory/rails.py); one makes all ports of a node."""
    names = tuple(part for part in path if not isinstance(part, int))
    for groups, _ in mappings(tree, "groups"):
        for name, rules in groups.value if isinstance(groups, yaml.MappingNode) else ():
            line, depth = _walk(rules, name.start_mark.line + 1, names)
            if depth and _in_group(inventory, str(name.value), host):
                return line
    return None


def _in_group(inventory: Path, group: str, host: str) -> bool:
    """Whether a host stands among a group's own."""
    for file in _files(inventory, None):
        try:
            tree = yaml_tree(read_source(file).text)
        except (yaml.YAMLError, ConfigError):
            continue
        for found, _ in mappings(tree, group) if tree is not None else ():
            hosts = _child(found, "hosts")
            if hosts is not None and _child(hosts[0], host) is not None:
                return True
    return False


def _walk(node: yaml.Node, line: int, path: tuple[int | str, ...]) -> tuple[int, int]:
    """Line and depth of the deepest part of `path` below `node`."""
    depth = 0
    for key in path:
        found = _child(node, key)
        if found is None:
            break
        node, line = found
        depth += 1
    return line, depth


def locate(inventory: Path, host: str | None, path: tuple[int | str, ...]) -> str | None:
    """`file:line` of a host's variable; of the host, where the variable is nowhere; None where nothing is found."""
    fallback = None
    own, first, of_group = _ini_place(inventory, host, str(path[0]) if path else "") if host else (None, None, None)
    for file in _files(inventory, host):
        if own and file.parent.name != "host_vars" and file.parent.parent.name != "host_vars":
            return own
        try:
            tree = yaml_tree(read_source(file).text)
        except (yaml.YAMLError, ConfigError):
            continue
        if tree is None:
            continue
        candidates: list[tuple[yaml.Node, int]] = []
        if file.parent.name in ("host_vars", "group_vars") or file.parent.parent.name in ("host_vars", "group_vars"):
            candidates.append((tree, 1))
        elif host is not None:
            for hosts, _ in mappings(tree, "hosts"):
                found = _child(hosts, host)
                if found is not None:
                    candidates.append(found)
                    fallback = fallback or f"{file}:{found[1]}"
            candidates += list(mappings(tree, "vars"))
            if _child(tree, "plugin") is not None:
                rule = _rule(tree, inventory, host, path)
                if rule is not None:
                    return f"{file}:{rule}"
        for node, line in candidates:
            at, depth = _walk(node, line, path)
            if depth:
                return f"{file}:{at}"
        if host is None and fallback is None:
            fallback = f"{file}:1"
    return own or of_group or fallback or first
