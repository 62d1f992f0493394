"""All filters of the collection.

One file, because Ansible reads every file of this folder for each filter that a process meets for the first time, and a
process is forked for each task. What the filters do is in plugins/plugin_utils, where they share code; it is imported
when it is first used, or by `load` for all workers at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

CODE = "ansible_collections.elastic_ai.toolkit.plugins.plugin_utils"
#: Module of plugin_utils -> the filters that it has.
FILTERS = {
    "docker": "docker_packages docker_daemon docker_daemon_differs",
    "driver": ("driver_judged"),
    "fabric": (
        "port_mtu fabric_links port_manager connection_uuid fabric_before port_commands fabric_port_files "
        "fabric_ports_off ports_to_activate sysctls_off"
    ),
    "firewall": "site_networks ufw_networks",
    "gpu": (
        "gpu_list nvswitch_list upstream_version driver_candidates driver_plan driver_verdict driver_health_faults "
        "cuda_generation_faults cuda_packages peer_memory dcgm_cuda_majors_of dcgm_packages "
        "daemon_gpu_faults"
    ),
    "gpu_gate": "driver_gate_faults dcgm_reported dcgm_gate_faults",
    "horovod": (
        "apt_sources_for training_servers training_with_gpus training_addresses training_over_rdma "
        "training_lock training_digests training_pinned"
    ),
    "kernel": "kernel_reads kernel_plan kernel_undo",
    "monitoring": "nodes_running management_address exporter_listen exporter_target",
    "nccl": "nccl_reads fabric_libraries library_file",
    "ofed": "rdma_devices ofed_reboot_reasons",
    "openpgp": "openpgp_keys openpgp_trusted openpgp_armour",
    "os": "os_key",
    "packages": "packages_off",
    "preflight": "preflight_facts preflight_reasons preflight_notes address_owners preflight_table preflight_unread",
    "project": "python_sources",
    "reboot": "kernel_lost reboot_reasons units_lost",
    "record": "provisioned_record ledgers_left",
    "remoting": "engine_described lease_gpus lease_idle_minutes lease_servers driver_opens_devices driver_unused",
    "sources": "repos_superseded",
    "repos": (
        "repos_plan repos_paths repos_files repos_moved repos_lists repos_unread repos_key_faults "
        "repos_read_of repos_gone repos_before repos_refusal repos_keys_there repos_undeclared"
    ),
    "roce": "ethernet_ports roce_policy roce_reading ports_to_set kept_ports",
    "routing": "port_routes",
    "slurm": (
        "slurm_confines slurm_taken_over slurm_topology slurm_memory_mib slurm_gpus other_databases slurm_cluster"
    ),
    "slurm_cores": "slurm_gpu_cores",
    "slurm_policy": "slurm_policy slurm_pool_faults",
    "stand_ins": "stand_ins_of",
    "stack": "nic_list stack_data stack_effective stack_variables stack_faults stack_notes",
    "tuning": "tuning_plan tuning_undo",
}


def _late(module: str, name: str) -> Callable[..., Any]:
    def called(*values: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(f"{CODE}.{module}"), name)(*values, **options)

    return called


def load() -> None:
    """Import and read what the filters need: for the process that Ansible forks its workers from."""
    for module in FILTERS:
        importlib.import_module(f"{CODE}.{module}")
    importlib.import_module(f"{CODE}.compatibility").known()


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return {name: _late(module, name) for module, names in FILTERS.items() for name in names.split()}
