"""Whether all that the roles will install can be had, asked of the real dnf and apt before a role has run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.test_real_apt import repository
from tests.functional.test_real_dnf import H100, KERNEL, node, of_roles, plan, repositories
from tests.support import real_apt, real_dnf
from tests.support.node_modules import ROOT, load

__all__ = ["node", "repositories", "repository"]  # fixtures
pytestmark = pytest.mark.engines

needs, question = load("plugins/plugin_utils/needs.py"), load("plugins/modules/package_question.py")


def wanted(system: str, kernel: str, **changed: Any) -> dict[str, dict[str, str]]:
    """What the roles want on a GPU server with stack release `current`."""
    stack = yaml.safe_load((ROOT / "stacks/current.yml").read_text(encoding="utf-8"))["stack_data"]["sets"][system]
    facts = {"os_key": system, "kernel": kernel, "in_container": False, "user_space_only": False, "pci": [H100]}
    facts |= {"stack": stack, "head": True, "gpu_server": True, "roce": True, "scheduled": True, "left_out": []}
    found: dict[str, dict[str, str]] = needs.package_needs(
        str(ROOT / "roles/preflight"), {**facts, "variables": {}, **changed}
    )
    return found


def merged(by_role: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: version for packages in by_role.values() for name, version in packages.items()}


def ask(node: real_dnf.Node, packages: dict[str, str]) -> dict[str, Any]:
    """The module's answer on this node."""

    def run(command: list[str]) -> tuple[int, str, str]:
        if command[0] == "rpm":
            return node.commands(command)
        words = [command[0], "--config", str(node.folder / "dnf.conf"), "--installroot", str(node.root), *command[1:]]
        done = subprocess.run(
            [*words[:5], "--releasever=9", *words[5:]],
            capture_output=True, text=True, check=False, env={**os.environ, **node.home},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    answer: dict[str, Any] = question.dnf_answer(run, packages)
    return answer


def test_dnf_has_all_or_says_what_is_missing_and_who_wants_it(node: real_dnf.Node) -> None:
    """No module stream is enabled yet, and neither EPEL nor Docker is in the content view of the second node."""
    by_role = wanted("el9", KERNEL)
    answer = ask(node, merged(by_role))
    assert answer == {"missing": {}, "unmet": [], "unreadable": ""}
    assert needs.packages_missing(answer, by_role) == []

    for name in ("docker", "epel"):
        (node.root / f"etc/yum.repos.d/{name}.repo").unlink()
    answer = ask(node, {**merged(by_role), "datacenter-gpu-manager-4-core": "1:4.5.9-1"})
    said = needs.packages_missing(answer, by_role)
    assert set(by_role["docker"]) <= set(answer["missing"])
    docker = next(line for line in said if "for role docker: " in line)
    assert f"docker-ce {by_role['docker']['docker-ce']}" in docker
    assert "(there: " in next(line for line in said if "for role dcgm: " in line)
    assert any("for role slurm: " in line and "slurm-slurmd" in line for line in said)
    assert any(line.startswith("dkms") and "kmod-nvidia-open-dkms" in line for line in answer["unmet"]), answer
    assert "(repos_from is system)" in said[-1]


def test_fio_is_asked_for_where_the_inventory_names_storage() -> None:
    assert not any("fio" in name for name in wanted("el9", KERNEL)["acceptance"])
    assert {"fio", "fio-engine-libaio"} <= set(wanted("el9", KERNEL, storage=True)["acceptance"])
    assert "fio" in wanted("ubuntu2404", KERNEL, storage=True)["acceptance"]


def test_repositories_that_cannot_be_read_are_reported(node: real_dnf.Node) -> None:
    entry = node.root / "etc/yum.repos.d/docker.repo"
    entry.write_text(entry.read_text().replace("/docker/el9", "/nowhere/el9"))
    (line,) = needs.packages_missing(ask(node, {"docker-ce": ""}), {"docker": {"docker-ce": ""}})
    assert "cannot read this node's repositories" in line
    assert "docker" in line


@pytest.mark.parametrize("system", ["ubuntu2404"])
def test_apt_has_all_or_says_what_is_missing_and_who_wants_it(tmp_path: Path, repository: Path, system: str) -> None:
    """The only repository is NVIDIA's."""
    node = real_apt.Node(tmp_path / "node", repository / system)
    by_role = wanted(system, "6.8.0-87-generic")
    answer = question.apt_answer(node.apt, merged(by_role), fetch=False)
    said = needs.packages_missing(answer, by_role)
    roles = [line.partition("for role ")[2].partition(":")[0] for line in said]
    assert {"docker", "base", "slurm", "ofed", "acceptance"} <= set(roles)
    assert {"cuda", "dcgm"}.isdisjoint(roles), said
    (driver,) = [line for line in said if "for role nvidia_driver: " in line]
    assert driver.endswith("for role nvidia_driver: linux-headers-6.8.0-87-generic")


def test_the_tables_of_the_roles_say_the_same_to_both() -> None:
    """What is asked at minute 0 is what the roles' own filters make of the same stack."""
    got = merged(wanted("el9", KERNEL, left_out=["nvidia_driver", "packages"]))
    tools = yaml.safe_load((ROOT / "roles/kernel/vars/main.yml").read_text(encoding="utf-8"))
    kernel = set(tools["__kernel_systems"]["el9"]["tools"])  # wanted where a kernel is held
    expected = {name: version for name, version in of_roles()[0].items() if name not in kernel}
    assert {name: got.get(name) for name in expected} == expected
    assert {name for name in got if name not in expected and not name.startswith("kernel-")} == set()
    driver = wanted("el9", KERNEL)["nvidia_driver"]
    stack = yaml.safe_load((ROOT / "stacks/current.yml").read_text(encoding="utf-8"))["stack_data"]["sets"]["el9"]
    found = plan(stack["nvidia_driver"]["version"])
    assert driver == {**found["before"], **found["packages"]}
