"""Finds the file and line of a variable in an inventory, so that an error can point to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from validation.load import ConfigError, read_source
from validation.yaml_text import fault_of, yaml_tree

_SUFFIXES = (".yml", ".yaml")


def _files(inventory: Path, host: str | None) -> list[Path]:
    """YAML files of an inventory, those that weigh most with Ansible first: host_vars, hosts, group_vars."""
    if inventory.is_file():
        folder, main = inventory.parent, [inventory]
    else:
        folder, main = inventory, sorted(p for p in inventory.glob("*") if p.suffix in _SUFFIXES)
    own = sorted((folder / "host_vars").glob(f"{host}*")) if host else []
    shared = sorted((folder / "group_vars").rglob("*"))
    nested = [q for p in own if p.is_dir() for q in sorted(p.rglob("*"))]
    return [p for p in (*own, *nested, *main, *shared) if p.is_file() and p.suffix in _SUFFIXES]


def syntax_fault(inventory: Path) -> str | None:
    """`file:line: what is wrong` for the first file that is no YAML at all; None when all of them are."""
    for path in _files(inventory, None):
        try:
            text = read_source(path).text
        except ConfigError as fault:
            return str(fault)
        try:
            yaml_tree(text)
        except yaml.YAMLError as fault:
            line, words = fault_of(fault, text)
            return f"{path}:{line}: not valid YAML: {words}; correct this line"
    return None


def _child(node: yaml.Node, key: int | str) -> tuple[yaml.Node, int] | None:
    """The value under `key` and the line (from 1) where it starts."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if getattr(name, "value", None) == str(key):
                return value, name.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key], node.value[key].start_mark.line + 1
    return None


def _mappings(node: yaml.Node, key: str, seen: set[yaml.Node] | None = None) -> Iterator[tuple[yaml.Node, int]]:
    """Every value under `key`, anywhere in the tree; by an alias the tree may contain itself."""
    seen = set() if seen is None else seen
    if isinstance(node, yaml.MappingNode) and node not in seen:
        seen.add(node)
        for name, value in node.value:
            if getattr(name, "value", None) == key:
                yield value, name.start_mark.line + 1
            yield from _mappings(value, key, seen)


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
    for file in _files(inventory, host):
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
            for hosts, _ in _mappings(tree, "hosts"):
                found = _child(hosts, host)
                if found is not None:
                    candidates.append(found)
                    fallback = fallback or f"{file}:{found[1]}"
            candidates += list(_mappings(tree, "vars"))
        for node, line in candidates:
            at, depth = _walk(node, line, path)
            if depth:
                return f"{file}:{at}"
        if host is None and fallback is None:
            fallback = f"{file}:1"
    return fallback
