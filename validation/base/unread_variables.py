"""Files of variables that Ansible does not read, since another of the same name comes first. Imports none of ours."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path

ORDER = ("", ".yml", ".yaml", ".json")
"""Of each name Ansible takes the first that is there, a folder or a file, and no other (DataLoader.find_vars_files)."""


def unread(inventory: Path) -> str:
    """The first such file of an inventory's group_vars and host_vars, in a sentence; "" where each is read."""
    folder = inventory if inventory.is_dir() else inventory.parent
    for kind in ("group_vars", "host_vars"):
        found = sorted((folder / kind).iterdir()) if (folder / kind).is_dir() else []
        names = dict.fromkeys(path.name if path.is_dir() else _name(path) for path in found)
        for name in names:
            there = [path for end in ORDER if (path := folder / kind / f"{name}{end}").exists()]
            if len(there) > 1:
                first = f"{there[0]}/" if there[0].is_dir() else str(there[0])
                cure = f"move it to {there[0]}/main{there[1].suffix}" if there[0].is_dir() else "make one file of them"
                return f"{there[1]}: Ansible does not read it, since {first} is there too; {cure}"
    return ""


def of_no_group(inventory: Path, groups: Collection[str], known: Collection[str]) -> str:
    """The first file in group_vars of a group that the inventory does not have, with a name like one of `known`, in a
    sentence; "" where there is none. What another site's inventory has beside it is left alone."""
    folder = (inventory if inventory.is_dir() else inventory.parent) / "group_vars"
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = path.name if path.is_dir() else _name(path)
        meant = get_close_matches(name.replace("-", "_"), known, 1, 0.8) if name not in groups else []
        if meant:
            return f"{path}: Ansible does not read it, since no group is named {name}; did you mean {meant[0]}?"
    return ""


def _name(path: Path) -> str:
    return path.stem if path.suffix in ORDER else path.name
