"""What the roles of leases know of servers, engines and the driver's devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.late import filters_of

#: Module of plugin_utils -> those of its functions that are filters; NAME.yml beside this file documents each.
CODE = {
    "remoting": (
        "engine_described",
        "lease_addresses",
        "lease_gpus",
        "lease_default_image",
        "lease_idle_minutes",
        "lease_people",
        "lease_servers",
        "driver_opens_devices",
        "driver_unused",
        "engine_refused",
    ),
}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return filters_of(CODE)
