"""Which nodes are asked for metrics, and where their exporters answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.late import filters_of

#: Module of plugin_utils -> those of its functions that are filters; NAME.yml beside this file documents each.
CODE = {
    "monitoring": ("nodes_running", "management_address", "exporter_listen", "exporter_target", "bmcs_watched"),
}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return filters_of(CODE)
