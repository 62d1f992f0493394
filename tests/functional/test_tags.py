"""`--tags` runs what has the tag: no check of another role's variables, with the real ansible-playbook."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.functional.test_check_mode_per_os import keys
from tests.support import one_reboot
from tests.support.node_modules import ROOT

pytestmark = pytest.mark.systems

#: What every run does first and last, whatever was asked for.
ALWAYS = {"preflight", "reboot_first", "reboot_report"}


def listed(playbook: str, *options: str) -> list[tuple[str, set[str]]]:
    """Tasks that a run would go through, each with its tags."""
    command = ["ansible-playbook", playbook, "-i", str(ROOT / "inventories/xe9680"), "--list-tasks", *options]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "NO_COLOR": "1"}
    )
    found = re.findall(r"(?m)^ {6}(\S.*)\tTAGS: \[(.*)\]$", done.stdout)
    return [(name, set(tags.split(", "))) for name, tags in found]


@pytest.mark.parametrize("playbook", ["site.yml", "playbooks/hardware.yml", "playbooks/teardown.yml"])
def test_no_tag_brings_a_task_of_another(playbook: str) -> None:
    """What has the tag `always` runs with each of them."""
    every = listed(playbook)
    tags = {tag for _, has in every for tag in has if tag} - {"always"}
    assert len(tags) > 2
    beside = {tag: [name for name, has in every if "always" in has and not has & {tag, *ALWAYS}] for tag in tags}
    assert {tag: names for tag, names in beside.items() if names} == {}


def test_one_tag_lists_its_tasks_alone() -> None:
    found = [name for name, has in listed("site.yml", "--tags", "dcgm") if not has & ALWAYS]
    assert found[:2] == ["dcgm : Check the role's variables", "dcgm : Include state tasks"]
    assert {name.partition(" : ")[0] for name in found} == {"dcgm", "acceptance"}


def test_every_role_is_a_tag_and_brings_its_own_check() -> None:
    every = listed("site.yml")
    checks = {name.partition(" : ")[0]: tags for name, tags in every if name.endswith("Check the role's variables")}
    roles = {path.parents[1].name for path in (ROOT / "roles").glob("*/tasks/main.yml")}
    assert set(checks) == roles - {"bios", "packages", "preflight"}, "bios is in hardware.yml, packages in other roles"
    assert all(role in tags for role, tags in checks.items())


@pytest.mark.parametrize(("tag", "refused"), [("dcgm", False), ("docker", True)])
def test_a_wrong_variable_of_another_role_stops_no_tag(tmp_path: Path, tag: str, refused: bool) -> None:
    machine = one_reboot.System("ubuntu2404", "xe9680", one_reboot.make.RAILS[0])
    variables = keys(tmp_path) | {"docker_daemon_config": ["not", "a", "dict"]}
    hosts = one_reboot.inventory(machine, tmp_path / "site", one_reboot.arrived(machine), variables)
    one_reboot.check(tmp_path, {"site": hosts}, "--tags", tag)
    said = " ".join((hosts.parent / "said").read_text(encoding="utf-8").split())
    assert ("failed=1" in said) == refused
    assert ("docker_daemon_config" in said) == refused
    assert ("Validation of arguments failed" in said) == refused
