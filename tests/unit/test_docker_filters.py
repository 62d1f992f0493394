"""Packages of the Docker engine and its daemon.json, as role docker derives them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from tests.support.node_modules import ROOT, load

docker: Any = load("plugins/plugin_utils/docker.py")
#: The role's own table, as the filters get it.
SYSTEMS = yaml.safe_load((ROOT / "roles/docker/vars/main.yml").read_text(encoding="utf-8"))["__docker_systems"]
INDICES = Path(__file__).resolve().parents[1] / "data" / "indices"
#: What the stack release `current` wants, by system.
WANTED = yaml.safe_load((ROOT / "stacks/current.yml").read_text(encoding="utf-8"))["stack_data"]["sets"]
LAB = {"default-runtime": "lab-runc", "runtimes": {"lab-runc": {"path": "/runc"}}}


def system(os_key: str) -> dict[str, Any]:
    return {"os_key": os_key, **SYSTEMS.get(os_key, {})}


@pytest.mark.parametrize(
    ("os_key", "engine", "client", "containerd"),
    [
        ("debian12", "5:29.4.3-1~debian.12~bookworm", "5:29.4.3-1~debian.12~bookworm", "2.3.1-1~debian.12~bookworm"),
        ("debian13", "5:29.4.3-1~debian.13~trixie", "5:29.4.3-1~debian.13~trixie", "2.3.1-1~debian.13~trixie"),
        ("ubuntu2204", "5:29.4.3-1~ubuntu.22.04~jammy", "5:29.4.3-1~ubuntu.22.04~jammy", "2.3.1-1~ubuntu.22.04~jammy"),
        ("ubuntu2404", "5:29.4.3-1~ubuntu.24.04~noble", "5:29.4.3-1~ubuntu.24.04~noble", "2.3.1-1~ubuntu.24.04~noble"),
        ("el9", "3:29.4.3-1.el9", "1:29.4.3-1.el9", "2.3.1-1.el9"),
        ("el10", "3:29.4.3-1.el10", "1:29.4.3-1.el10", "2.3.1-1.el10"),
    ],
)
def test_versions_get_epoch_and_suffix_of_their_system(os_key: str, engine: str, client: str, containerd: str) -> None:
    wanted = docker.docker_packages(system(os_key), "docker_ce", "29.4.3", "2.3.1")
    assert (wanted["docker-ce"], wanted["docker-ce-cli"], wanted["containerd.io"]) == (engine, client, containerd)
    assert set(wanted) == {
        "docker-ce",
        "docker-ce-cli",
        "containerd.io",
        "docker-buildx-plugin",
        "docker-compose-plugin",
    }


def test_without_a_version_nothing_is_pinned() -> None:
    assert set(docker.docker_packages(system("debian12"), "docker_ce").values()) == {""}
    assert docker.docker_packages(system("debian12"), "distribution") == {"docker.io": ""}
    assert docker.docker_packages(system("debian13"), "distribution") == {"docker.io": "", "docker-cli": ""}


@pytest.mark.parametrize(("os_key", "provider"), [("el9", "distribution"), ("fedora42", "docker_ce")])
def test_a_system_that_a_provider_does_not_serve_is_refused(os_key: str, provider: str) -> None:
    with pytest.raises(AnsibleFilterError, match="set docker_provider"):
        docker.docker_packages(system(os_key), provider)


# No index of Docker's repository for EL 10 and Ubuntu 26.04 is recorded yet.
@pytest.mark.parametrize("os_key", sorted(SYSTEMS.keys() - {"el10", "ubuntu2604"}))
def test_every_name_and_form_of_version_stands_in_the_recorded_index(os_key: str) -> None:
    """In the version of Docker that the stack release wants; it leaves containerd's to the repository."""
    wanted = docker.docker_packages(system(os_key), "docker_ce", WANTED[os_key]["docker"]["version"], "2.3.1")
    assert wanted["docker-ce"]
    recorded = dict(line.split()[:2] for line in (INDICES / f"docker-{os_key}.txt").read_text().splitlines())
    assert set(wanted) <= set(recorded)
    assert {name: version for name, version in wanted.items() if version}.items() <= recorded.items()
    if "distribution" in SYSTEMS[os_key]:
        text = (INDICES / f"distribution-{os_key}.txt").read_text()
        assert all(f"\n{name} " in "\n" + text for name in SYSTEMS[os_key]["distribution"])


def test_gpu_servers_get_runtime_and_cdi_beside_what_the_inventory_says() -> None:
    merged = docker.docker_daemon(LAB, system("debian13"), "distribution", True)
    assert merged["default-runtime"] == "lab-runc"
    assert merged["runtimes"] == {
        "lab-runc": {"path": "/runc"},
        "nvidia": {"path": "nvidia-container-runtime", "args": []},
    }
    assert merged["features"] == {"cdi": True}
    assert docker.docker_daemon(LAB, system("debian13"), "distribution", False) == LAB


def test_an_engine_before_25_is_not_told_of_cdi() -> None:
    assert "features" not in docker.docker_daemon({}, system("debian12"), "distribution", True)
    assert "features" in docker.docker_daemon({}, system("debian12"), "docker_ce", True)


def test_the_inventory_has_the_last_word() -> None:
    config = {"features": {"cdi": False, "other": True}, "runtimes": {"nvidia": {"path": "/mine"}}}
    assert docker.docker_daemon(config, system("ubuntu2404"), "docker_ce", True) == config


def test_daemon_json_is_compared_by_what_it_says() -> None:
    assert not docker.docker_daemon_differs(json.dumps(LAB, indent=7), LAB)
    assert docker.docker_daemon_differs(json.dumps({}), LAB)
    assert docker.docker_daemon_differs("", LAB)
    assert docker.docker_daemon_differs("{ not json", LAB)
