"""A node that fits, and what preflight decides of it."""

from __future__ import annotations

from typing import Any

from tests.support.node_modules import load

preflight: Any = load("plugins/plugin_utils/preflight.py")

NODE: dict[str, Any] = {
    "os": {"id": "ubuntu", "version": "24.04", "rhel_like": False},
    "architecture": "x86_64",
    "kernel": "6.8.0-87-generic",
    "kernels": ["6.8.0-87-generic", "6.8.0-85-generic"],
    "in_container": False,
    "python": "3.12.3",
    "root": True,
    "systemd": True,
    "memory_mib": 64000,
    "disks": {
        "/opt": {"existing": "/opt", "device": 1, "free_mib": 50000},
        "/var": {"existing": "/var", "device": 1, "free_mib": 50000},
        "/boot": {"existing": "/boot", "device": 2, "free_mib": 600},
    },
    "drivers": {"ens2f0": "mlx5_core"},
    "links": {"lo": ["127.0.0.1"], "eno1": ["10.0.0.11"], "ens2f0": []},
    "links_error": "",
    "network": {"running": ["systemd-networkd"], "claims": [], "networkmanager": {}},
    "jobs": [],
    "provisioned_release": "",
    "hostname": "gpu1",
    "hostname_resolves": True,
    "headers": "installable",
    "secure_boot": "disabled",
    "mok_enrolled": [],
    "sqv": False,
    "node_time_s": 1000.0,
    "answered_s": 1001.0,
    "offset_at_most_s": 0.5,
    "nouveau_loaded": False,
}
WEAK = {"fingerprint": "EB693B3035CD5710E231E123A4B469633BF863CC", "self_signature_hashes": ["SHA1"]}
STRONG = {"fingerprint": "A" * 40, "self_signature_hashes": ["SHA1", "SHA512"]}
WANTED: dict[str, Any] = {
    "name": "gpu1",
    "address": "10.0.0.11",
    "fabric_ports": [{"interface": "ens2f0", "address": "10.78.0.11/24"}],
    "fabric_mtu": 9000,
    "port_manager": "systemd-networkd",
    "release": "current",
    "change_under_jobs": False,
    "supported_os": ["debian 12", "ubuntu 24.04", "rocky 9"],
    "architectures": ["x86_64"],
    "kernel_min": "5.10",
    "python_min": "3.9",
    "memory_min_mib": 2000,
    "disk_min_mib": {"/opt": 4000, "/var": 4000, "/boot": 300},
    "scheduled": True,
    "confined": True,
    "time_offset_max_s": 30,
    "addresses": {"10.0.0.11": ["gpu1"]},
    "stack": {"nvidia_driver": {"provider": "cuda"}, "ofed": {"provider": "doca"}},
    "gpu_server": True,
    "user_space_only": False,
    "repository_keys": {"cuda": [WEAK], "docker": [STRONG]},
    "undeclared_keys": [],
}


def reasons(observed: dict[str, Any], wanted: dict[str, Any] | None = None) -> list[str]:
    found: list[str] = preflight.preflight_reasons({**NODE, **observed}, {**WANTED, **(wanted or {})})
    return found
