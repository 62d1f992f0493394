"""Operating system, kernel, tuning, reboots, and what a run of the roles leaves on record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.late import filters_of

#: Module of plugin_utils -> those of its functions that are filters; NAME.yml beside this file documents each.
CODE = {
    "chosen": ("chosen",),
    "kernel": ("kernel_plan", "kernel_undo"),
    "os": ("os_key",),
    "project": ("nvml_binding", "python_modules", "python_sources"),
    "reboot": ("reboot_reasons", "units_lost", "reboot_faults", "reboot_account"),
    "record": ("provisioned_record", "ledgers_left"),
    "stand_ins": ("stand_ins_of",),
    "tuning": ("tuning_plan", "tuning_undo"),
}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return filters_of(CODE)
