"""Operating systems that are on sale and that no role knows: refused at the start, by name of what has no entry."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.test_recorded import RECORDED, playbook, said
from tests.support.node_modules import load
from tests.support.preflight_case import NODE, WANTED, preflight, reasons

pytestmark = pytest.mark.systems

make: Any = load("tests/data/facts/make.py")
systems: Any = load("plugins/plugin_utils/systems.py")
NEW = tuple(make.UNSERVED)


@pytest.mark.parametrize("system", make.SYSTEMS)
def test_a_system_that_is_served_has_an_entry_in_every_role(system: str) -> None:
    assert systems.system_lacks(system, [], True, True) == []


@pytest.mark.parametrize("role", [*systems.EVERYWHERE, *systems.GPU_SERVERS])
def test_a_role_whose_table_loses_a_system_is_listed(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = copy.deepcopy(dict(systems._variables(role)))
    known = variables[f"__{role}_systems"]
    variables[f"__{role}_systems"] = (
        [name for name in known if name != "el9"]
        if isinstance(known, list)
        else {name: entry for name, entry in known.items() if name != "el9"}
    )
    read = systems._variables
    monkeypatch.setattr(systems, "_variables", lambda name: variables if name == role else read(name))
    assert systems.system_lacks("el9", [], True, True) == [role]
    assert systems.system_lacks("el9", [role], True, True) == []
    assert systems.system_lacks("el9", [], False, True) == ([role] if role in systems.EVERYWHERE else [])


def test_repositories_count_where_they_are_the_vendors() -> None:
    assert "repos (cuda)" in systems.system_lacks("el10", [], True, True)
    assert not [name for name in systems.system_lacks("el10", [], True, False) if "repos" in name]
    assert "repos (cuda)" not in systems.system_lacks("el10", [], False, True)


def test_to_add_a_system_to_the_accepted_ones_is_not_enough() -> None:
    """What came then was a failure in the middle of the run, or the packages of Debian 12."""
    node = {**NODE, "os": {"id": "rocky", "version": "10.1", "rhel_like": True}}
    wanted = {"supported_os": ["rocky 10"], "os_key": "el10", "system_lacks": ["base", "slurm"]}
    (reason,) = [one for one in reasons(node, wanted) if "el10" in one]
    assert reason.startswith("no entry for el10 in: base, slurm (NVIDIA, Docker and EPEL have repositories for it; ")
    assert "leave the node out of the inventory, or install a supported system" in reason


@pytest.mark.parametrize(
    ("core", "python", "noted"),
    [
        ("2.17.14", "3.12.11", False), ("2.17.14", "3.14.4", True), ("2.19.14", "3.13.5", False),
        ("2.19.14", "3.14.4", True), ("2.21.5", "3.14.4", False), ("9.9.9", "3.14.4", False),
    ],
)  # fmt: skip
def test_a_python_that_ansible_does_not_support_there_is_noted(core: str, python: str, noted: bool) -> None:
    notes = preflight.preflight_notes({**NODE, "python": python}, {**WANTED, "ansible_core": core})
    assert [note for note in notes if note.startswith(f"Python {python} is newer than ansible-core {core}")] == (
        [note for note in notes if "ansible-core" in note] if noted else []
    )
    assert any("ansible-core" in note for note in notes) == noted


def test_preflight_refuses_each_by_its_recorded_facts_before_anything_is_changed(tmp_path: Path) -> None:
    """The real role over recordings: as GPU servers, and one that runs AlmaLinux."""
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    for name, system in (("head", "ubuntu2404"), *((system, system) for system in NEW), ("alma", "el10")):
        data = json.loads((RECORDED / f"os/{system}.json").read_text(encoding="utf-8"))
        data["modules"]["node_preflight"]["hostname"] = name
        if name == "alma":
            data["modules"]["node_preflight"]["os"] = {"id": "almalinux", "version": "10.1", "rhel_like": True}
        (recorded / f"{name}.json").write_text(json.dumps(data), encoding="utf-8")
    hosts = {name: {"ansible_host": f"192.0.2.{number}"} for number, name in enumerate(("head", *NEW, "alma"), 11)}
    groups = {"heads": ["head"], "gpu_servers": [*NEW, "alma"]}
    children = {name: {"hosts": {host: hosts[host] for host in members}} for name, members in groups.items()}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": children}}), encoding="utf-8")
    ran = playbook(
        "playbooks/preflight.yml", "-i", str(tmp_path / "hosts.yml"), "-e", f"preflight_recorded={recorded}",
        "-e", "horovod_state=absent",
    )  # fmt: skip
    text = said(ran)
    assert ran.returncode != 0
    for name, title, key in (
        ("ubuntu2604", "ubuntu 26.04", "ubuntu2604"),
        ("el10", "rocky 10.1", "el10"),
        ("alma", "almalinux 10.1", "el10"),
    ):
        assert f"{name} cannot be provisioned: operating system is {title}; supported: debian 12" in text, text[-3000:]
        assert f"no entry for {key} in: base, cuda, dcgm" in text
    assert "no driver of branch 580 is on public record" in text
