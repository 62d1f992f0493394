"""Whether an inventory can be one, by its files alone: what every command asks before Ansible reads it."""

from __future__ import annotations

from pathlib import Path

import yaml

from toolkit.inventory_lines import inventory_files, mappings, syntax_fault, twin_fault
from toolkit.inventory_source import InventoryError
from toolkit.lab.spec import LAB
from toolkit.lab_inventory import others
from validation.base.project import ROOT
from validation.base.unread_variables import unread
from validation.base.yaml_text import child, yaml_tree
from validation.model.load import ConfigError, read_source

_IN_YAML = (".yml", ".yaml", ".json")
_EMPTY = "tag:yaml.org,2002:null"


def refuse_unusable(inventory: Path) -> None:
    """InventoryError with file and line for what is not there, no YAML, empty, without groups of hosts, or not read."""
    _refuse_missing(inventory)
    broken = syntax_fault(inventory) or twin_fault(inventory) or _shape_fault(inventory) or unread(inventory)
    if broken:
        raise InventoryError(broken)


def lists_gpu_servers(inventory: Path) -> bool:
    """Whether its files name the group of GPU servers, or a plugin that may; False where only Ansible knows."""
    trees = [tree for path in _main(inventory) if (tree := _tree(path)) is not None]
    return any(child(tree, "plugin") is not None or any(mappings(tree, "gpu_servers")) for tree in trees)


def _refuse_missing(inventory: Path) -> None:
    if inventory.is_file() or (inventory.is_dir() and inventory_files(inventory)):
        return
    if inventory.is_dir():
        inventory = inventory / "hosts.yml"
    folder = inventory if inventory.suffix == "" else inventory.parent
    if folder.resolve() == LAB.resolve():
        raise InventoryError(f"{inventory}: no such file; the lab's inventory is {ROOT / LAB}")
    raise InventoryError(f"{inventory}: no such file; {others(folder)}")


def _main(inventory: Path) -> list[Path]:
    return [inventory] if inventory.is_file() else inventory_files(inventory)


def _tree(path: Path) -> yaml.Node | None:
    """Of a file in YAML; None for one in another form, and for an empty one."""
    if path.suffix not in _IN_YAML:
        return None
    try:
        found: yaml.Node | None = yaml_tree(read_source(path).text)
    except (yaml.YAMLError, ConfigError):  # JSON with tabs, which Ansible reads
        return None
    return None if found is None or found.tag == _EMPTY else found


def _shape_fault(inventory: Path) -> str | None:
    """`file:line: what is wrong` for the first file that is YAML and no mapping; and where there is nothing in any."""
    files = _main(inventory)
    for path in files:
        tree = _tree(path)
        if tree is not None and not isinstance(tree, yaml.MappingNode):
            form = "a list" if isinstance(tree, yaml.SequenceNode) else "a text"
            line = tree.start_mark.line + 1
            return f"{path}:{line}: is {form}, and no groups with hosts; write all: at its top, children: below"
    if all(_is_empty(path) for path in files):
        return f"{files[0]}: is empty; list the site's machines in it, as in {ROOT / 'inventories'}"
    return None


def _is_empty(path: Path) -> bool:
    try:
        return not read_source(path).text.strip("- \t\r\n")
    except ConfigError:  # no text, such as a program
        return False
