"""What Ansible makes of an inventory, templates and logins included, as one JSON document on stdout.

A program by itself: it runs in the Python that has ansible-core, which need not be the toolkit's, with Ansible's own
parsers, vault, filters, lookups and settings of connections.

    python read_inventory.py '["fabric_ports", ...]' -i INVENTORY

Of the variables of a host only those that are named are printed, for Ansible has decrypted all of them by now; with
'["*"]' all of them.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ansible import constants  # type: ignore[import-untyped]
from ansible.cli.inventory import InventoryCLI  # type: ignore[import-untyped]
from ansible.errors import AnsibleError  # type: ignore[import-untyped]
from ansible.plugins.loader import connection_loader  # type: ignore[import-untyped]
from ansible.template import Templar  # type: ignore[import-untyped]
from ansible.vars.hostvars import HostVars  # type: ignore[import-untyped]

#: Settings of Ansible's connection `ssh`, and the variable by which each is printed, however the inventory spells it.
_LOGIN = {
    "host": "ansible_host",
    "port": "ansible_port",
    "remote_user": "ansible_user",
    "private_key_file": "ansible_ssh_private_key_file",
    "ssh_common_args": "ansible_ssh_common_args",
    "ssh_extra_args": "ansible_ssh_extra_args",
    "ssh_args": "ansible_ssh_args",
}
_TEMPLATE = ("{{", "{%", "{#")
#: What `omit` is before ansible-core 2.19. A setting of a login that is omitted counts as left out.
_OMITTED = "__omit_place_holder__"


def _templated(value: Any) -> bool:
    if isinstance(value, str):
        return any(mark in value for mark in _TEMPLATE)
    if isinstance(value, Mapping):
        return any(_templated(part) for part in value.values())
    return isinstance(value, Iterable) and any(_templated(part) for part in value)


def _plain(value: Any) -> Any:
    """The value in types that JSON has: Ansible's own are subclasses of those, or carry a decrypted text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_plain(part) for part in value]
    return str(value)


class _Reader(InventoryCLI):  # type: ignore[misc]
    """`ansible-inventory` up to the point where it prints."""

    wanted: list[str]
    login: list[str]  # variables in which an inventory may say how to log in

    def run(self) -> None:
        super(InventoryCLI, self).run()
        self.loader, self.inventory, self.vm = self._play_prereqs()
        HostVars(self.inventory, self.vm, self.loader)  # makes itself known to `vm`, as `hostvars` of templates
        connection_loader.get("ssh", class_only=True)  # the configuration knows its settings from then on
        known = constants.config.get_configuration_definitions("connection", "ssh")
        self.login = [entry["name"] for setting in _LOGIN for entry in known[setting].get("vars", ())]
        groups = {
            name: {
                "hosts": [host.name for host in group.hosts],
                "children": [child.name for child in group.child_groups],
            }
            for name, group in self.inventory.groups.items()
        }
        hosts = {host.name: self._host(host) for host in self.inventory.get_hosts("all")}
        print(json.dumps({"groups": groups, "hosts": hosts}))

    def _host(self, host: Any) -> dict[str, Any]:
        given = self._get_host_variables(host)
        values: dict[str, Any] = {}
        unresolved: dict[str, str] = {}
        templar = None
        every = "*" in self.wanted
        for name in given if every else dict.fromkeys((*self.wanted, *self.login)):
            if name not in given:
                continue
            value = given[name]
            try:
                if _templated(value) or not isinstance(value, (str, int, float, list, dict, type(None))):
                    templar = templar or Templar(
                        loader=self.loader, variables=self.vm.get_vars(host=host, include_hostvars=True)
                    )
                    value = templar.template(value)
                if name in self.login and isinstance(value, str) and value.startswith(_OMITTED):
                    continue
                values[name] = _plain(value)
            except Exception as fault:  # of Ansible, or of a filter or a lookup of the site
                if name in self.login and type(fault).__name__ == "AnsibleValueOmittedError":  # as ansible-core 2.19
                    continue
                unresolved[name] = _first_line(fault)
                if every and isinstance(value, (str, list, dict)):
                    values[name] = _plain(value)
        values |= _login(host.name, values)
        shown = {name: value for name, value in values.items() if every or name in (*self.wanted, *_LOGIN.values())}
        return {"values": shown, "unresolved": unresolved, "names": sorted(map(str, given))}


def _first_line(fault: Exception) -> str:
    kind = "" if isinstance(fault, AnsibleError) else f"{type(fault).__name__}: "
    return kind + (str(fault).strip().splitlines() or [""])[0]


def _login(host: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """How Ansible logs in: the inventory's variables in any of their spellings, and what its settings say else."""
    found = {}
    for setting, variable in _LOGIN.items():
        try:
            value, origin = constants.config.get_config_value_and_origin(
                setting, plugin_type="connection", plugin_name="ssh", variables={"inventory_hostname": host, **values}
            )
        except AnsibleError:  # a value of another type: the caller names it, with its place
            continue
        if value is None or origin == "default" or "inventory_hostname" in origin:
            continue
        if setting == "ssh_args" and not origin.startswith("var:"):
            continue  # of all sites: sockets and intervals, which the toolkit sets itself
        found[variable] = value if setting == "port" else str(value)
    return found


if __name__ == "__main__":
    _Reader.wanted = json.loads(sys.argv[1])
    _Reader.cli_executor(["ansible-inventory", *sys.argv[2:], "--list"])
