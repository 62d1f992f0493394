"""Whether a node can be provisioned, and which versions fit it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.late import filters_of

#: Module of plugin_utils -> those of its functions that are filters; NAME.yml beside this file documents each.
CODE = {
    "foreign": ("taken_over",),
    "preflight": (
        "preflight_facts",
        "preflight_reasons",
        "preflight_notes",
        "preflight_table",
        "preflight_unread",
        "preflight_image_mib",
    ),
    "preflight_network": ("address_owners",),
    "preflight_node": ("first_reboot",),
    "stack": ("nic_list", "stack_data", "stack_effective", "stack_faults", "stack_notes"),
    "systems": ("system_lacks",),
    "unread": ("unread_variables",),
    "upgrade": ("stack_changes",),
}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return filters_of(CODE)
