"""Packages of the Docker engine and the content of its daemon.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

DISTRIBUTION = {
    "debian12": ["docker.io"],
    "debian13": ["docker.io", "docker-cli"],
    "ubuntu2204": ["docker.io"],
    "ubuntu2404": ["docker.io"],
}
# Epochs of engine and client, and the suffix that Docker gives the versions of its packages on a system.
DOCKER_CE = {
    "debian12": ("5:", "5:", "-1~debian.12~bookworm"),
    "debian13": ("5:", "5:", "-1~debian.13~trixie"),
    "ubuntu2204": ("5:", "5:", "-1~ubuntu.22.04~jammy"),
    "ubuntu2404": ("5:", "5:", "-1~ubuntu.24.04~noble"),
    "el9": ("3:", "1:", "-1.el9"),
}
WITHOUT_CDI = {"debian12"}  # whose docker.io is 20.10; Docker knows CDI since 25
NVIDIA = {"path": "nvidia-container-runtime", "args": []}


def docker_packages(os_key: str, provider: str, version: str = "", containerd: str = "") -> dict[str, str]:
    """Packages of a provider on a system with the version that pins each, "" for any."""
    if provider == "distribution":
        if os_key not in DISTRIBUTION:
            raise AnsibleFilterError(f"{os_key} has no Docker of its own; set docker_provider to docker_ce")
        return dict.fromkeys(DISTRIBUTION[os_key], str(version))
    if os_key not in DOCKER_CE:
        raise AnsibleFilterError(f"Docker's repository is not known to serve {os_key}; set docker_provider")
    engine, client, suffix = DOCKER_CE[os_key]
    return {
        "docker-ce": f"{engine}{version}{suffix}" if version else "",
        "docker-ce-cli": f"{client}{version}{suffix}" if version else "",
        "containerd.io": f"{containerd}{suffix}" if containerd else "",
        "docker-buildx-plugin": "",
        "docker-compose-plugin": "",
    }


def docker_daemon(config: Mapping[str, Any], os_key: str, provider: str, nvidia: bool) -> dict[str, Any]:
    """The whole of daemon.json: `config`, and the NVIDIA runtime and CDI where wanted; `config` wins."""
    merged = dict(config)
    if nvidia:
        merged["runtimes"] = {"nvidia": NVIDIA, **config.get("runtimes", {})}
        if provider != "distribution" or os_key not in WITHOUT_CDI:
            merged["features"] = {"cdi": True, **config.get("features", {})}
    return merged


def docker_daemon_differs(text: str, wanted: Mapping[str, Any]) -> bool:
    """Whether the text of a daemon.json says anything else than `wanted`."""
    try:
        return bool(json.loads(text or "null") != dict(wanted))
    except ValueError:
        return True


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Any]:
        """Filters by name."""
        return {
            "docker_packages": docker_packages,
            "docker_daemon": docker_daemon,
            "docker_daemon_differs": docker_daemon_differs,
        }
