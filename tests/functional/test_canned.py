"""The canned connection: what it answers, what it refuses, and that its answers have the real modules' form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.module_docs import document
from tests.support.node_modules import load

pytestmark = pytest.mark.computes

REPO = Path(__file__).parents[2]
PLUGINS = REPO / "tests/plugins"
TOOLS = Path(sys.executable).parent


canned = load("tests/plugins/connection/canned.py")


def bare(**parts: Any) -> Any:
    return canned.Node({"modules": {"node_state": parts}, "ansible_facts": {"ansible_kernel": "6.1.0-41-amd64"}}, False)


@pytest.mark.parametrize(
    "module", ["node_state", "node_preflight", "managed_files", "package_set", "package_ledger", "kernel_values"]
)
def test_an_answer_has_every_key_that_the_module_documents(module: str) -> None:
    recording = json.loads((REPO / "tests/data/facts/os/debian12.json").read_text(encoding="utf-8"))
    answer = canned.Node(recording, False, "node1").answer(module, {})
    assert set(document(module, "RETURN")) <= set(answer), "the canned connection lags behind the module"


def test_node_state_is_answered_in_the_form_of_the_real_module() -> None:
    """Each option of the module, asked at once: a bare node has none of it, and says so in the same form."""
    options = document("node_state", "DOCUMENTATION")["options"]
    asked = {name: ["x"] for name, option in options.items() if option["type"] == "list"}
    answer = bare().answer("node_state", {**asked, "pci": True, "_ansible_check_mode": True})
    assert answer["packages"] == {"x": ""}
    assert answer["missing_packages"] == ["x"]
    assert answer["units"] == {"x": {"active": False, "enabled": False}}
    assert answer["kernels"] == ["6.1.0-41-amd64"]
    assert answer["files"] == {}
    assert answer["users"] == {"x": False}


def test_what_is_recorded_is_told_and_globs_find_it() -> None:
    node = bare(packages={"chrony": "4.3-2"}, files={"/etc/a/1.conf": "abc", "/etc/b": ""}, contents={"/etc/x": "y"})
    answer = node.answer(
        "node_state", {"packages": ["chrony", "git"], "files": ["/etc/a/*.conf"], "contents": ["/etc/*"]}
    )
    assert answer["missing_packages"] == ["git"]
    assert answer["files"] == {"/etc/a/1.conf": "abc"}
    assert answer["contents"] == {"/etc/x": "y"}


@pytest.mark.parametrize(
    ("module", "args", "words"),
    [
        ("nmcli", {}, "no answer for module nmcli"),
        ("node_state", {"colour": "red"}, "no option colour"),
        ("setup", {"gather_subset": ["!all", "hardware"]}, "subset hardware"),
        ("command", {"_raw_params": "nvidia-smi -L"}, "no recorded answer to the command: nvidia-smi -L"),
        (
            "systemd_service",
            {"name": "nvidia-dcgm.service", "state": "started"},
            "Could not find the requested service",
        ),
        ("managed_files", {"files": [{"path": "/etc/x", "content": None}]}, "/etc/x: content is required"),
    ],
)
def test_what_is_not_known_fails_and_is_named(module: str, args: dict[str, Any], words: str) -> None:
    answer = bare().answer(module, args)
    assert answer["failed"]
    assert words in answer["msg"]


def test_a_bare_node_changes_and_a_converged_one_does_not() -> None:
    recording: dict[str, Any] = {"modules": {"node_state": {}}}
    files = {"files": [{"path": "/etc/x", "content": "y"}]}
    assert canned.Node(recording, False).answer("managed_files", files)["changed_paths"] == ["/etc/x"]
    for module, args in (("managed_files", files), ("user", {"name": "x"}), ("package_set", {"wanted": {"x": ""}})):
        assert canned.Node(recording, False).answer(module, args)["changed"], module
        assert not canned.Node(recording, True).answer(module, args)["changed"], module


def run(tmp_path: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inventory = {
        "all": {
            "vars": {
                "ansible_connection": "canned",
                "canned_recording": str(tmp_path / "node.json"),
                "ansible_user": "u",
            },
            "hosts": {"node1": {}},
        }
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    places = {
        "ANSIBLE_CONNECTION_PLUGINS": str(PLUGINS / "connection"),
        "ANSIBLE_CALLBACK_PLUGINS": str(PLUGINS / "callback"),
    }
    return subprocess.run(
        [str(TOOLS / command[0]), "-i", str(tmp_path / "hosts.yml"), *command[1:]],
        cwd=REPO, env={**os.environ, **places, **environment}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_ansible_itself_takes_the_answers_with_sudo_too_and_a_run_can_be_recorded(tmp_path: Path) -> None:
    """Through the real ansible-playbook: module name and arguments are read from what it really sends."""
    recording = {
        "subsets": ["min"],
        "ansible_facts": {"ansible_distribution": "Ubuntu", "ansible_pkg_mgr": "apt"},
        "modules": {"node_state": {"packages": {"chrony": "4.5"}}},
        "commands": {"uname -r": {"stdout": "6.8.0"}},
    }
    (tmp_path / "node.json").write_text(json.dumps(recording), encoding="utf-8")
    play = [
        {
            "hosts": "all",
            "become": True,
            "gather_facts": True,
            "gather_subset": ["!all", "min"],
            "tasks": [
                {"elastic_ai.toolkit.node_state": {"packages": ["chrony", "git"]}, "register": "state"},
                {"ansible.builtin.command": "uname -r", "register": "kernel", "changed_when": False},
                {"ansible.builtin.copy": {"content": "it's ün\n", "dest": "/etc/x"}, "check_mode": True},
                {"ansible.builtin.assert": {"that": ["state.missing_packages == ['git']", "kernel.stdout == '6.8.0'",
                                                     "ansible_facts.distribution == 'Ubuntu'"]}},
            ],
        }
    ]  # fmt: skip
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play), encoding="utf-8")
    again = {"ANSIBLE_CALLBACKS_ENABLED": "record_nodes", "RECORD_NODES": str(tmp_path / "out")}
    ran = run(tmp_path, "ansible-playbook", str(tmp_path / "play.yml"), **again)
    assert "failed=0" in ran.stdout, ran.stdout + ran.stderr
    recorded = json.loads((tmp_path / "out/node1.json").read_text(encoding="utf-8"))
    assert recorded["modules"]["node_state"]["packages"] == {"chrony": "4.5", "git": ""}
    assert recorded["commands"]["uname -r"]["stdout"] == "6.8.0"
    assert recorded["ansible_facts"]["ansible_distribution"] == "Ubuntu"
