"""Operating systems that no role knows are refused at the start, and what is on no public record the site states."""

from __future__ import annotations

import copy
import json
import re
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
NEW = tuple(make.STATED)


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
    assert "repos (cuda)" in systems.system_lacks("el11", [], True, True)
    assert not [name for name in systems.system_lacks("el11", [], True, False) if "repos" in name]
    assert "repos (cuda)" not in systems.system_lacks("el11", [], False, True)


def test_to_add_a_system_to_the_accepted_ones_is_not_enough() -> None:
    """What came then was a failure in the middle of the run, or the packages of Debian 12."""
    node = {**NODE, "os": {"id": "rocky", "version": "11.0", "rhel_like": True}}
    wanted = {"supported_os": ["rocky 11"], "os_key": "el11", "system_lacks": ["base", "slurm"]}
    (reason,) = [one for one in reasons(node, wanted) if "el11" in one]
    assert reason.startswith("no entry for el11 in: base, slurm: ")
    assert "leave the node out of the inventory, or install a supported system" in reason


@pytest.mark.parametrize("system", NEW)
def test_what_is_on_no_record_the_site_states_and_each_sentence_names_the_variable(system: str) -> None:
    asked = [name for name in make.STATED[system] if name != "nvidia_driver_fabric_manager_version"]
    unstated = systems.system_unstated(system, {}, [], True)
    assert [reason.split()[0] for reason in unstated] == asked
    assert all("needs it: " in reason and "set it, for example " in reason for reason in unstated)
    assert systems.system_unstated(system, make.STATED[system], [], True) == []
    assert systems.system_unstated(system, {}, ["slurm"], False) == []
    assert systems.system_unstated("ubuntu2404", {}, [], True) == []


def test_preflight_goes_by_what_the_inventory_states() -> None:
    node = {**NODE, "os": {"id": "rocky", "version": "10.1", "rhel_like": True}}
    wanted = {"supported_os": ["rocky 10"], "os_key": "el10"}
    (reason,) = [one for one in reasons(node, wanted) if one.startswith("slurm_release")]
    assert 'slurm_release: "26.05"' in reason
    assert not [one for one in reasons(node, {**wanted, "slurm_release": "26.05"}) if "slurm_release" in one]
    assert not [one for one in reasons(node, {**wanted, "scheduled": False}) if "slurm_release" in one]
    assert not [one for one in reasons(node, {**wanted, "left_out": ["slurm"]}) if "slurm_release" in one]


@pytest.mark.parametrize(
    ("stated", "reason", "note"),
    [
        ("", "", ""), ("22.05", "", ""), ("24.11", "", ""), ("25.11", "", "known by documents, not run"),
        ("26.05", "", "later than every release that was run (22.05, 24.11) or read of (25.11)"),
        ("21.08", "22.05 is the oldest", ""), ("latest", "no release of Slurm", ""),
        ("26.5", "no release of Slurm", ""),
    ],
)  # fmt: skip
def test_a_release_of_slurm_that_is_stated_is_held_against_what_is_known(stated: str, reason: str, note: str) -> None:
    reasons_, notes = systems.slurm_stated("el10", stated)
    for found, wanted in ((reasons_, reason), (notes, note)):
        assert len(found) == bool(wanted)
        assert all(wanted in one for one in found)


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


def test_preflight_refuses_each_that_states_nothing_before_anything_is_changed(tmp_path: Path) -> None:
    """The real role over recordings: as GPU servers, and one that runs AlmaLinux; and one that states all."""
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    systems_of = {"head": "ubuntu2404", **{system: system for system in NEW}, "alma": "el10", "stated": "el10"}
    for name, system in systems_of.items():
        data = json.loads((RECORDED / f"os/{system}.json").read_text(encoding="utf-8"))
        data["modules"]["node_preflight"]["hostname"] = name
        if name == "alma":
            data["modules"]["node_preflight"]["os"] = {"id": "almalinux", "version": "10.1", "rhel_like": True}
        (recorded / f"{name}.json").write_text(json.dumps(data), encoding="utf-8")
    hosts: dict[str, dict[str, Any]] = {
        name: {"ansible_host": f"192.0.2.{number}"} for number, name in enumerate(systems_of, 11)
    }
    hosts["stated"] |= {**make.STATED["el10"], "repos_fingerprints": {"cuda": "A" * 40}}
    groups = {"heads": ["head"], "gpu_servers": [name for name in systems_of if name != "head"]}
    children = {name: {"hosts": {host: hosts[host] for host in members}} for name, members in groups.items()}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": children}}), encoding="utf-8")
    ran = playbook(
        "playbooks/preflight.yml", "-i", str(tmp_path / "hosts.yml"), "-e", f"preflight_recorded={recorded}",
        "-e", "horovod_state=absent", "-e", "stack_release=current",
    )  # fmt: skip
    text = said(ran)
    assert ran.returncode != 0
    for name, key in (("ubuntu2604", "ubuntu2604"), ("el10", "el10"), ("alma", "el10")):
        assert f"slurm_release is not set, and a node with {key} needs it" in text, text[-3000:]
        assert re.search(rf"{name}\b[^\n]*slurm_release is not set", text) or f"{name} cannot be provisioned" in text
    assert "nvidia_driver_version is not set, and a node with ubuntu2604 needs it" in text
    assert "no fingerprint" in text or "repos_fingerprints" in text
    assert "stated cannot be provisioned" not in text
    assert "no entry for" not in text
