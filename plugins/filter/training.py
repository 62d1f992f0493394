"""Who takes part in distributed training, and what its image is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.late import filters_of

#: Module of plugin_utils -> those of its functions that are filters; NAME.yml beside this file documents each.
CODE = {
    "horovod": (
        "apt_sources_for",
        "training_servers",
        "training_with_gpus",
        "training_addresses",
        "training_over_rdma",
        "training_lock",
        "training_digests",
        "training_pinned",
    ),
    "training_role": (
        "training_user",
        "training_faults",
        "training_wheels",
        "training_wheel_key",
        "training_pushed",
        "training_principals",
    ),
}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return filters_of(CODE)
