"""What Ansible itself says of an inventory: its groups, and the variables of its hosts with every template resolved."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from toolkit.lab_inventory import ansible_environment
from validation import ansible_side, bounded
from validation.load import ConfigError

_PLACED = re.compile(r"\[ERROR\]: \S+\.ya?ml:\d+: ")


class InventoryError(ConfigError):
    """An inventory that cannot be used. One line: `file:line: host: variable: what is wrong; what to do`."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Group(_Model):
    """A group's own hosts and child groups, in the inventory's order."""

    hosts: tuple[str, ...]
    children: tuple[str, ...]


class Host(_Model):
    """A host. `values`: the variables that were asked for, as Ansible resolves them; how it logs in stands under
    `ansible_host`, `_port`, `_user`, `_ssh_private_key_file`, `_ssh_common_args`, `_ssh_extra_args` and `_ssh_args`,
    however the inventory spells it. `unresolved`: variable -> why Ansible cannot resolve it. `names`: of all it has.
    """

    values: dict[str, Any]
    unresolved: dict[str, str]
    names: tuple[str, ...]


class Source(_Model):
    """An inventory as Ansible reads it."""

    groups: dict[str, Group]
    hosts: dict[str, Host]

    def members(self, group: str, seen: frozenset[str] = frozenset()) -> list[str]:
        """Hosts of a group and of its child groups, in the inventory's order."""
        entry = self.groups.get(group)
        if entry is None:
            return []
        names = list(entry.hosts)
        for child in entry.children:
            if child not in seen:
                names += self.members(child, seen | {group})
        return list(dict.fromkeys(names))


def read_source(inventory: Path, variables: Iterable[str]) -> Source:
    """What Ansible says of an inventory (folder or file), of its hosts' variables those named; InventoryError."""
    python = ansible_side.python_of_ansible()
    if python is None:
        raise InventoryError("ansible-core is not installed; run bin/rehearse, or pip install ansible-core")
    command = ansible_side.command(python, inventory, variables)
    ran = bounded.run(command, env=ansible_environment(inventory))
    out, err = (text.decode("utf-8", "replace") for text in (ran.stdout, ran.stderr))
    by_hand = shlex.join(["ansible-inventory", "-i", str(inventory), "--list"])
    if ran.returncode != 0:
        said = [line.strip() for line in err.splitlines() if line.strip()]
        errors = [line for line in said if "ERROR" in line] or said[-1:] or [f"exit status {ran.returncode}"]
        if _PLACED.match(errors[0]):  # of the plugin rails: file, line and cure stand in it
            raise InventoryError(errors[0].removeprefix("[ERROR]: "))
        raise InventoryError(f"{inventory}: ansible-inventory: {errors[0]}; check it with: {by_hand}")
    answer = ansible_side.answer(out)
    if answer is None:
        raise InventoryError(f"{inventory}: Ansible gave no answer; check it with: {by_hand}")
    try:
        return Source.model_validate_json(answer)
    except (ValidationError, RecursionError) as fault:
        raise InventoryError(f"{inventory}: Ansible's answer cannot be read ({fault})") from None
