"""The container engine: what roles docker and nvidia_container_toolkit promise."""

from __future__ import annotations

import json
from typing import Any

from validation.asbuilt.site import Host, Site, is_version, not_applicable


def _configured(host: Host) -> dict[str, Any]:
    found = host.file("/etc/docker/daemon.json")
    assert found.exists, "/etc/docker/daemon.json is not there"
    configured: dict[str, Any] = json.loads(found.content_string)
    return configured


def test_engine_runs_and_is_enabled(host: Host, site: Site) -> None:
    """After a reboot too."""
    site.only_with("docker")
    docker = host.service("docker")
    assert docker.is_running, "docker does not run"
    assert docker.is_enabled, "docker is not enabled"


def test_engine_runs_with_the_configuration_of_the_inventory(host: Host, site: Site) -> None:
    """What the inventory wants stands in daemon.json, and the engine that runs has taken it."""
    site.only_with("docker")
    configured = _configured(host)
    wanted = site.wants("docker_daemon_config")
    other = [key for key, value in wanted.items() if key != "runtimes" and configured.get(key) != value]
    assert not other, f"daemon.json differs from docker_daemon_config in {', '.join(other)}"
    live = json.loads(host.check_output("docker info --format '{{json .}}'"))
    runtime = configured.get("default-runtime", "runc")
    assert live["DefaultRuntime"] == runtime, f"the default runtime is {live['DefaultRuntime']}, wanted {runtime}"
    missing = sorted(set(configured.get("runtimes", {})) - set(live["Runtimes"]))
    assert not missing, f"the engine does not know the runtimes {', '.join(missing)}"


def test_gpu_servers_have_the_nvidia_runtime_and_nobody_else(host: Host, site: Site) -> None:
    """A container gets GPUs where there are some."""
    site.only_with("docker")
    wanted = bool(site.get("nvidia_container_toolkit_enabled", site.in_group("gpu_servers")))
    there = "nvidia" in _configured(host).get("runtimes", {})
    assert there == wanted, "daemon.json has the runtime nvidia" if there else "daemon.json has no runtime nvidia"


def test_engine_is_of_the_wanted_version(host: Host, site: Site) -> None:
    """Of the inventory's, else of the release's."""
    site.only_with("docker")
    wanted = site.version("docker_version", "docker")
    if not wanted:
        not_applicable("neither inventory nor release names a version of Docker")
    found = host.check_output("docker version --format '{{.Server.Version}}'")
    assert found == wanted, f"docker is {found}, wanted {wanted}"


def test_container_toolkit_is_of_one_wanted_version(host: Host, site: Site) -> None:
    """All four packages."""
    site.only_with("nvidia_container_toolkit")
    wanted = site.version("nvidia_container_toolkit_version", "container_toolkit")
    names = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools",
             "libnvidia-container1")  # fmt: skip
    found = {name: _version(host, name) for name in names}
    other = {name: version for name, version in found.items() if not version or not is_version(version, wanted)}
    said = ", ".join(f"{name} {version or 'is not installed'}" for name, version in other.items())
    assert not other, f"wanted {wanted}: {said}"
    assert len(set(found.values())) == 1, f"of several versions: {', '.join(sorted(set(found.values())))}"


def _version(host: Host, name: str) -> str:
    package = host.package(name)
    return str(package.version) if package.is_installed else ""
