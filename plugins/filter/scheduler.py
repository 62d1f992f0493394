"""What Slurm is told of nodes and of the pool's policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.late import filters_of

#: Module of plugin_utils -> those of its functions that are filters; NAME.yml beside this file documents each.
CODE = {
    "slurm": ("slurm_confines", "slurm_topology", "slurm_memory_mib", "slurm_gpus", "slurm_cluster"),
    "slurm_conf": ("slurm_conf",),
    "slurm_cores": ("slurm_gpu_cores",),
    "slurm_join": (
        "slurm_join_missing",
        "slurm_join_places",
        "slurm_join_questions",
        "slurm_join_refused",
        "slurm_join_wanted",
    ),
    "slurm_node": ("slurm_judged", "slurm_data_left", "slurm_again"),
    "slurm_policy": ("slurm_policy", "slurm_pool_faults"),
}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return filters_of(CODE)
