"""What a mirror needs to have for a node, from the roles' own tables."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError  # type: ignore[import-untyped]

from tests.support.node_modules import ROOT, load

mirror = load("plugins/plugin_utils/mirror.py")


def asked(system: str = "debian12", **changed: Any) -> dict[str, Any]:
    node = {"os_key": system, "kernel": "amd64", "in_container": False, "user_space_only": False, "pci": []}
    node |= {"stack": {}, "head": True, "gpu_server": False, "roce": False, "scheduled": True, "left_out": []}
    node |= {"variables": {}, "recorded": False, "extra": ["htop"], "pool_page": True, "jupyterhub": False}
    node |= {"builds_image": True, "training": ["python3-torch", "g++", "g++"], **changed}
    found: dict[str, Any] = mirror.mirror_needs(str(ROOT / "roles/preflight"), node)
    return found


def test_a_head_needs_what_preflight_asks_for_and_what_it_does_not() -> None:
    found = asked()
    assert {"base", "docker", "slurm", "acceptance", "monitoring"} <= set(found["wanted"])  # of preflight
    assert {"backup", "pool_page", "horovod", "inventory"} <= set(found["wanted"])
    assert "age" in found["wanted"]["backup"]
    assert set(found["wanted"]["horovod"]) == {"docker-registry", "openssl", "mmdebstrap", "skopeo"}
    assert found["wanted"]["inventory"] == {"htop": ""}
    assert found["image"] == ["g++", "python3-torch"]
    assert "jupyterhub" not in found["wanted"]
    assert found["notes"] == []


@pytest.mark.parametrize(
    ("system", "words"), [("", "its system is not known; name it"), ("slackware15", "slackware15 is none of ")]
)
def test_a_node_of_an_unknown_system_is_refused_with_what_to_declare(system: str, words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words) as refused:
        asked(system)
    assert "stack.os" in str(refused.value)


def test_who_is_notified_of_alerts_needs_the_program_for_it_on_the_head_alone() -> None:
    assert set(asked()["wanted"]["monitoring"]) == {"prometheus-node-exporter", "prometheus"}
    assert "prometheus-alertmanager" in asked(notifies=True)["wanted"]["monitoring"]
    assert set(asked(notifies=True, head=False)["wanted"]["monitoring"]) == {"prometheus-node-exporter"}
    assert "monitoring" not in asked(notifies=True, left_out=["monitoring"])["wanted"]


def test_what_the_inventory_leaves_out_is_not_needed() -> None:
    found = asked(builds_image=False, pool_page=False, left_out=["backup", "slurm"])
    assert not {"backup", "slurm", "pool_page", "horovod"} & set(found["wanted"])
    assert found["image"] == []


def test_no_role_wants_what_it_does_not_install_on_this_system() -> None:
    """The page, backups and the training image are made on Debian and Ubuntu alone."""
    found = asked("el9", kernel="", stack={"docker": {"provider": "docker_ce", "version": "29.9.0"}})
    assert not {"backup", "pool_page", "horovod"} & set(found["wanted"])
    assert found["image"] == []
    names = [name for needs in found["wanted"].values() for name in needs]
    assert names
    assert not [name for name in names if name.endswith("-")]


def test_a_gpu_server_that_nobody_recorded_is_noted_and_its_driver_is_pinned() -> None:
    stack = {"nvidia_driver": {"provider": "cuda", "version": "580.178.04"}}
    found = asked(gpu_server=True, head=False, builds_image=False, stack=stack)
    assert "linux-headers-amd64" in found["wanted"]["nvidia_driver"]
    assert found["pins"][0]["pin"] == "version 580.178.04-*"
    assert "nobody has recorded this node" in found["notes"][0]
    recorded = asked(
        gpu_server=True, head=False, builds_image=False, stack=stack, recorded=True, kernel="6.1.0-37-amd64"
    )
    assert "linux-headers-6.1.0-37-amd64" in recorded["wanted"]["nvidia_driver"]
    assert recorded["notes"] == []


@pytest.mark.parametrize(
    ("system", "kernel", "rhel"),
    [("debian 12", "amd64", False), ("Ubuntu 24.04", "generic", False), ("rocky 9.6", "", True)],
)
def test_a_node_is_taken_as_the_inventory_has_it(system: str, kernel: str, rhel: bool) -> None:
    observed = mirror.mirror_observed(system, True)
    assert (observed["kernel"], observed["os"]["rhel_like"], observed["in_container"]) == (kernel, rhel, True)
    assert observed["os"]["version"] == system.split()[1]
