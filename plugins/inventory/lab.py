"""Inventory plugin: the hosts of a virtual lab that is up on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible.plugins.loader import inventory_loader

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.project import code_of

DOCUMENTATION = r"""
name: lab
short_description: The virtual lab that is up on this machine
description:
  - Lists the nodes that C(toolkit lab up) has made, with their variables, from the lab's own folder.
  - Without such a lab Ansible ends at once, for an inventory that cannot be read is only a warning to it.
options:
  plugin:
    description: Name of this plugin.
    required: true
    choices: [elastic_ai.toolkit.lab]
  lab:
    description: Which lab, the I(--name) of C(toolkit lab up).
    type: str
    default: lab
"""

EXAMPLES = r"""
plugin: elastic_ai.toolkit.lab
"""


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]
    """What Ansible looks for in an inventory plugin."""

    NAME = "elastic_ai.toolkit.lab"

    def verify_file(self, path: str) -> bool:
        """Whether the file may be one of this plugin."""
        return bool(super().verify_file(path)) and path.endswith((".yml", ".yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill in the lab's hosts; end Ansible where it is not up."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        hosts = self._hosts(str(self.get_option("lab")))
        # The lab's own file is a plain inventory; folder and file of it stay those that the user named.
        inventory_loader.get("ansible.builtin.yaml").parse(inventory, loader, str(hosts), cache)

    def _hosts(self, name: str) -> Path:
        code = str(code_of(Path(__file__).resolve().parents[2]))
        if code not in sys.path:
            sys.path.append(code)  # for Ansible of a Python that is not the project's own
        try:
            from toolkit.errors import LabError
            from toolkit.lab.standing import standing_inventory
        except ImportError as fault:
            raise AnsibleParserError(
                f"{self.NAME} needs the whole toolkit, of its wheel or of a checkout: {fault}"
            ) from None
        try:
            return standing_inventory(name)
        except LabError as fault:
            self._end(str(fault))

    def _end(self, words: str) -> NoReturn:
        """End Ansible with one error; an exception is a warning, beside those of all other plugins."""
        self.display.error(words, wrap_text=False)
        raise SystemExit(1)
