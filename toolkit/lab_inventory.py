"""inventories/lab, which lists the lab that is up: where it is, and whether there is such a lab."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from toolkit.errors import or_nearest
from toolkit.lab.spec import DEFAULT_NAME, LAB, state_root
from toolkit.lab.standing import standing_inventory
from validation.base.project import ROOT
from validation.model.base import Model
from validation.model.load import load_yaml, read_source

PLUGIN = "elastic_ai.toolkit.lab"  # plugins/inventory/lab.py
_OF_A_LAB = {"hosts.yml", "group_vars"}
"""What a folder that lists a lab may have; from any other file Ansible would read hosts, or another address of one."""
_RULES = re.compile(r"^plugin:\s*[\"']?elastic_ai\.toolkit\.rails\b", re.MULTILINE)
_NAMED = re.compile(rf"^plugin:\s*[\"']?{re.escape(PLUGIN)}\b", re.MULTILINE)


class _LabInventory(Model):
    """hosts.yml of an inventory that lists a lab. `lab` is the lab's name."""

    plugin: Literal["elastic_ai.toolkit.lab"]
    lab: str = DEFAULT_NAME


def lab_inventory() -> Path:
    """inventories/lab as seen from here; from any other folder the project's own."""
    return LAB if LAB.exists() else ROOT / LAB


def others(missing: Path) -> str:
    """What to give in place of an inventory folder that is missing: the nearest below inventories, or all of them."""
    known = sorted(str(p.parent) for p in Path("inventories").glob("*/hosts.yml"))
    return or_nearest(str(missing), known) if known else f"examples are in {ROOT / 'inventories'}"


def listed_lab(inventory: Path) -> str | None:
    """Name of the lab whose hosts an inventory (folder or file) lists; None where it lists a site's.

    ConfigError with file and line where it says more than which lab.
    """
    file = inventory / "hosts.yml" if inventory.is_dir() else inventory
    if file.suffix not in (".yml", ".yaml") or not file.is_file():
        return None
    source = read_source(file)
    return load_yaml(source, _LabInventory).lab if _NAMED.search(source.text) else None


def is_of_a_lab(inventory: Path) -> bool:
    """Whether an inventory lists a lab and nothing beside it, or is the one that a lab itself has while it is up."""
    if listed_lab(inventory) is not None:
        return not inventory.is_dir() or {path.name for path in inventory.iterdir()} <= _OF_A_LAB
    return inventory.resolve().is_relative_to((state_root() / "labs").resolve())


def refuse_absent_lab(inventory: Path) -> None:
    """LabError where an inventory lists a lab that is not up: one line that says how to bring it up."""
    name = listed_lab(inventory)
    if name is not None:
        standing_inventory(name)


def has_rules(inventory: Path) -> bool:
    """Whether a folder has a file of rules beside its hosts (plugins/inventory/rails.py)."""
    files = inventory.rglob("*.yml") if inventory.is_dir() else ()
    return any(_RULES.search(read_source(file).text) for file in files if file.is_file())


def ansible_environment(inventory: Path) -> dict[str, str]:
    """The environment in which Ansible reads an inventory: this process's own, and where its plugins are found.

    Settings that the caller chose, by ANSIBLE_CONFIG or by ansible.cfg in this folder, are kept.
    """
    chosen = "ANSIBLE_CONFIG" in os.environ or Path("ansible.cfg").is_file()
    if chosen or (listed_lab(inventory) is None and not has_rules(inventory)):
        return dict(os.environ)
    return {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
