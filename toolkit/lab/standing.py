"""Which labs are up on this machine. Standard library only: Ansible asks too (plugins/inventory/lab.py)."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab.spec import DEFAULT_NAME, host_interface, inventory_dir, lab_dir, state_root

#: What `toolkit lab up` writes into the lab's own folder when all nodes answer.
HOSTS = "hosts.yml"


def standing_inventory(name: str = DEFAULT_NAME) -> Path:
    """hosts.yml of the lab called `name`, which is up; LabError that says how to bring it up, and which others are."""
    if is_up(name):
        return inventory_dir(name) / HOSTS
    others = [other for other in _made() if other != name and is_up(other)]
    if name == DEFAULT_NAME and not others:
        raise LabError("no lab is up: toolkit lab up")
    command = "toolkit lab up" if name == DEFAULT_NAME else f"toolkit lab up --name {name}"
    there = "".join(f"; '{other}' is up: -i {inventory_dir(other)}" for other in others)
    raise LabError(f"no lab '{name}' is up: {command}{there}")


def is_up(name: str = DEFAULT_NAME) -> bool:
    """Whether the lab came up and its network is there; a folder alone may be what a restart of the machine left."""
    if not (inventory_dir(name) / HOSTS).is_file():
        return False
    try:
        leg = host_interface(json.loads((lab_dir(name) / "spec.json").read_text())["index"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return has_interface(leg)


def has_interface(name: str) -> bool:
    """Whether this machine has a network interface of that name."""
    try:
        socket.if_nametoindex(name)
    except OSError:
        return False
    return True


def _made() -> list[str]:
    """Names of labs that have a folder."""
    labs = state_root() / "labs"
    return sorted(folder.name for folder in labs.iterdir()) if labs.is_dir() else []
