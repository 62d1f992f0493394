"""Fabric ports, RDMA, RoCE, routes, the firewall, and what NCCL and UCX are told of the fabric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.late import filters_of

#: Module of plugin_utils -> those of its functions that are filters; NAME.yml beside this file documents each.
CODE = {
    "fabric": (
        "port_mtu",
        "fabric_links",
        "port_manager",
        "connection_uuid",
        "fabric_before",
        "port_commands",
        "fabric_port_files",
        "fabric_ports_off",
        "fabric_no_carrier",
        "ports_without_carrier",
        "ports_to_activate",
        "sysctls_off",
    ),
    "firewall": ("site_networks", "ufw_networks"),
    "nccl": ("nccl_reads", "fabric_libraries", "library_file"),
    "ofed": ("rdma_devices", "ofed_reboot_reasons", "ofed_judged"),
    "roce": ("ethernet_ports", "roce_policy", "roce_reading", "ports_to_set", "kept_ports"),
    "routing": ("port_routes",),
}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return filters_of(CODE)
