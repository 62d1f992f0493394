"""Packages of the Docker engine and the content of its daemon.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

NVIDIA = {"path": "nvidia-container-runtime", "args": []}


def docker_packages(
    system: Mapping[str, Any], provider: str, version: str = "", containerd: str = ""
) -> dict[str, str]:
    """Packages of a provider on a system with the version that pins each, "" for any.

    `system` is an entry of the role's __docker_systems, with os_key for the message of a refusal.
    """
    if provider == "distribution":
        if "distribution" not in system:
            raise AnsibleFilterError(f"{system['os_key']} has no Docker of its own; set docker_provider to docker_ce")
        return dict.fromkeys(system["distribution"], str(version))
    if "docker_ce" not in system:
        raise AnsibleFilterError(f"Docker's repository is not known to serve {system['os_key']}; set docker_provider")
    form = system["docker_ce"]
    return {
        "docker-ce": f"{form['engine']}{version}{form['suffix']}" if version else "",
        "docker-ce-cli": f"{form['client']}{version}{form['suffix']}" if version else "",
        "containerd.io": f"{containerd}{form['suffix']}" if containerd else "",
        "docker-buildx-plugin": "",
        "docker-compose-plugin": "",
    }


def docker_daemon(config: Mapping[str, Any], system: Mapping[str, Any], provider: str, nvidia: bool) -> dict[str, Any]:
    """The whole of daemon.json: `config`, and the NVIDIA runtime and CDI where wanted; `config` wins."""
    merged = dict(config)
    if nvidia:
        merged["runtimes"] = {"nvidia": NVIDIA, **config.get("runtimes", {})}
        if provider != "distribution" or system.get("cdi", True):
            merged["features"] = {"cdi": True, **config.get("features", {})}
    return merged


def docker_daemon_differs(text: str, wanted: Mapping[str, Any]) -> bool:
    """Whether the text of a daemon.json says anything else than `wanted`."""
    try:
        return bool(json.loads(text or "null") != dict(wanted))
    except ValueError:
        return True
