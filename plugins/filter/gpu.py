"""What is read of GPUs, which driver, CUDA and DCGM they get, and whether they are fit for jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.late import filters_of

#: Module of plugin_utils -> those of its functions that are filters; NAME.yml beside this file documents each.
CODE = {
    "driver": ("driver_judged", "driver_missing"),
    "gpu": (
        "gpu_list",
        "nvswitch_list",
        "upstream_version",
        "driver_candidates",
        "driver_plan",
        "driver_verdict",
        "driver_health_faults",
        "cuda_generation_faults",
        "cuda_packages",
        "dcgm_cuda_majors_of",
        "dcgm_packages",
        "daemon_gpu_faults",
    ),
    "gpu_gate": ("driver_gate_faults", "dcgm_reported", "dcgm_gate_faults"),
    "gpudirect": ("gpudirect_judged",),
}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return filters_of(CODE)
