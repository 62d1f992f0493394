"""Inventory plugin: addresses and fabric ports of whole groups by rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from ansible.plugins.inventory import BaseInventoryPlugin

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.rails import (
    Member,
    RailsError,
    read_rules,
    variables,
)

try:
    from ansible.template import trust_as_template
except ImportError:  # ansible-core before 2.19 trusts all variables

    def trust_as_template(value: str) -> str:
        """The value."""
        return value


DOCUMENTATION = r"""
name: rails
short_description: Addresses and fabric ports of whole groups by rule
description:
  - Gives the hosts of a group their C(ansible_host) and C(fabric_ports), as if they stood in the inventory one by one,
    so that roles, preflight and C(toolkit) see plain lists. What a host's own lines say stays as it is.
  - The file stands beside C(hosts.yml) and comes after it by its name, for the hosts have to be there already.
options:
  plugin:
    description: Name of this plugin.
    required: true
    choices: [elastic_ai.toolkit.rails]
  groups:
    description:
      - Group -> rules. I(ansible_host) is a range with an address for each host of the group, in their order.
        I(fabric_ports) has the keys of an entry of that list. Its I(interface) is a range, a port for each rail.
        In its I(address) C({rail}) is the number of the rail, from 0, and C({host}) the last number of
        C(ansible_host). In its I(leaf) C({rail}) is that number too.
    type: dict
    required: true
"""

EXAMPLES = r"""
plugin: elastic_ai.toolkit.rails
groups:
  gpu_servers:
    ansible_host: 198.51.100.[31:34]
    fabric_ports:
      interface: ens[31:38]np0
      address: 10.80.{rail}.{host}/24
      rate_gbps: 400
"""


def _trusted(value: Any) -> Any:
    """As if it stood in hosts.yml, for its file is of the same folder; ansible-core 2.19 marks all else as unsafe."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: _trusted(part) for key, part in value.items()}
    return [_trusted(part) for part in value] if isinstance(value, list) else value


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]
    """What Ansible looks for in an inventory plugin."""

    NAME = "elastic_ai.toolkit.rails"

    def verify_file(self, path: str) -> bool:
        """Whether the file may be one of this plugin."""
        return bool(super().verify_file(path)) and path.endswith((".yml", ".yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Give the hosts that are there what the rules say; end Ansible with one error where that cannot be."""
        super().parse(inventory, loader, path, cache)
        members = {
            name: [Member(host.name, dict(host.vars)) for host in group.get_hosts()]
            for name, group in inventory.groups.items()
        }
        try:
            rules = read_rules(Path(path).read_text(encoding="utf-8"), path)
            found = variables(rules, members, path)
        except RailsError as fault:
            self._end(str(fault))
        except (OSError, UnicodeDecodeError) as fault:
            self._end(f"{path}:1: {fault}")
        for host, own in found.items():
            for key, value in own.items():
                inventory.set_variable(host, key, _trusted(value))

    def _end(self, words: str) -> NoReturn:
        """End Ansible with one error; an exception is a warning, beside those of all other plugins."""
        self.display.error(words, wrap_text=False)
        raise SystemExit(1)
