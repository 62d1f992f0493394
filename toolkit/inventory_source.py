"""What Ansible itself says of an inventory: its groups, and the variables of its hosts with every template resolved."""

from __future__ import annotations

import codecs
import re
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from toolkit.lab_inventory import ansible_environment
from validation import ansible_side
from validation.base import bounded
from validation.model.load import ConfigError

#: What each of Ansible's readers says of a source, in the forms of ansible-core 2.19 and of those before.
_READER = re.compile(
    r"Failed to parse (?:inventory|\S+) with '?(?P<reader>\w+)'? plugin: (?P<why>.+?)(?=\n\n|\Z)", re.DOTALL
)
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
        raise InventoryError(f"ansible-core is not installed: {sys.executable} -m pip install ansible-core")
    command = ansible_side.command(python, inventory, variables)
    # A source that nobody can read is a fault by whatever settings: its nodes would be missing without a word.
    environment = {**ansible_environment(inventory), "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True"}
    ran = bounded.run(command, env=environment)
    out, err = (text.decode("utf-8", "replace") for text in (ran.stdout, ran.stderr))
    by_hand = shlex.join(["ansible-inventory", "-i", str(inventory), "--list"])
    if ran.returncode != 0:
        said = [line.strip() for line in err.splitlines() if line.strip()]
        errors = [line for line in said if "ERROR" in line] or said[-1:] or [f"exit status {ran.returncode}"]
        if _PLACED.match(errors[0]):  # of the plugin rails: file, line and cure stand in it
            raise InventoryError(errors[0].removeprefix("[ERROR]: "))
        why = _why(err)
        with suppress(OSError):
            if Path(_source_of(errors[0])).read_bytes().startswith(codecs.BOM_UTF8):
                why = f"it begins with a byte order mark; save it as UTF-8 without one ({why})"
        if why and "Completely failed to parse" in errors[0]:
            raise InventoryError(f"{_place(errors[0], why)}: Ansible cannot read it: {why}; check it with: {by_hand}")
        raise InventoryError(f"{inventory}: ansible-inventory: {errors[0].rstrip('.')}; check it with: {by_hand}")
    answer = ansible_side.answer(out)
    if answer is None:
        raise InventoryError(f"{inventory}: Ansible gave no answer; check it with: {by_hand}")
    try:
        return Source.model_validate_json(answer)
    except (ValidationError, RecursionError) as fault:
        raise InventoryError(f"{inventory}: Ansible's answer cannot be read ({fault})") from None


def _why(said: str) -> str:
    """Why Ansible could not read a source, "" where it does not say: of its readers the one that the source is for."""
    told = {found["reader"]: " ".join(found["why"].split()) for found in _READER.finditer(said)}
    if "no root 'plugin' key" in told.get("auto", ""):
        del told["auto"]
    order = ("auto", "script", "ini", "yaml", "toml") if _is_ini(told) else ("auto", "script", "yaml", "toml", "ini")
    found = next((told[reader] for reader in order if told.get(reader)), next(iter(told.values()), ""))
    return re.sub(r"^Failed to parse (?:inventory|'[^']*'): ", "", found).rstrip(".")


def _is_ini(told: dict[str, str]) -> bool:
    """Whether a source that is neither is one in Ansible's ini form: no YAML at all, and no program."""
    return "YAML parsing failed" in told.get("yaml", "YAML parsing failed")


def _source_of(error: str) -> str:
    return error.partition("parse inventory source ")[2].strip()


def _place(error: str, why: str) -> str:
    """The source that could not be read, with the first line in which the words stand that Ansible quotes."""
    source = _source_of(error)
    quoted = re.search(r"(?:, got: |Host pattern |entry for \"|group ')([^\s'\"]+)", why)
    try:
        lines = Path(source).read_text(encoding="utf-8").splitlines() if quoted else []
    except (OSError, UnicodeDecodeError):
        return source
    words = re.compile(rf"(?<![\w-]){re.escape(quoted[1])}(?![\w-])") if quoted else None
    at = [number for number, line in enumerate(lines, 1) if words and words.search(line.partition("#")[0])]
    return f"{source}:{at[0]}" if len(at) == 1 else source
