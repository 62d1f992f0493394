"""A node is read without Ansible's own code on it; what writes, and what is out of the ordinary, stays the module's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils import reading
from tests.support import node_modules
from tests.support.node_modules import OWNER
from tests.support.warm import ansible

pytestmark = pytest.mark.systems

SHORT = {"ansible_python_interpreter": "{{ ansible_playbook_python }}", "ansible_pipelining": True}


def answered(module: str, arguments: dict[str, Any], *needs: str) -> dict[str, Any]:
    """What the program that is sent to a node answers; nothing but the standard library is there."""
    text = reading.program(module, arguments, needs)
    done = subprocess.run([sys.executable, "-IS"], input=text, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"refused": done.stderr}
    return found


def play(folder: Path, tasks: list[dict[str, Any]], *options: str, **variables: Any) -> tuple[str, dict[str, int]]:
    """What ansible-playbook said of tasks on this machine, and its counts."""
    book = {"hosts": "localhost", "gather_facts": False, "vars": {**SHORT, **variables}, "tasks": tasks}
    (folder / "play.yml").write_text(yaml.safe_dump([book]), encoding="utf-8")
    done = ansible("ansible-playbook", str(folder / "play.yml"), "-i", "localhost,", "-c", "local", "-vvv", *options)
    said = done.stdout + done.stderr
    counts = {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", said.partition("PLAY RECAP")[2])}
    return said, counts


def modules(said: str) -> list[str]:
    """The modules that Ansible sent to the node."""
    return [Path(path).stem for path in re.findall(r"Using module file (\S+)", said)]


def test_the_program_answers_as_the_module_does(tmp_path: Path) -> None:
    (tmp_path / "one.conf").write_text("ä\n", encoding="utf-8")
    asked = {
        "packages": ["bash", "no-such-package"], "files": [f"{tmp_path}/*"], "contents": [f"{tmp_path}/one.conf"],
        "sysctls": ["kernel.pid_max"], "users": ["root", "nobody-here"], "modules": ["loop"], "pci": True,
        "own_addresses": ["127.0.0.1"], "links": ["lo"],
    }  # fmt: skip
    module = node_modules.run("node_state", asked)
    module.pop("invocation")
    assert answered("node_state", asked, "container") == module
    assert module["contents"][f"{tmp_path}/one.conf"] == "ä\n"


def test_the_program_observes_as_preflight_does() -> None:
    asked = {"controller_time_s": 1.5, "disk_paths": ["/"]}
    module, found = node_modules.run("node_preflight", asked), answered("node_preflight", asked, "container", "network")
    for answer in (module, found):
        assert answer.pop("node_time_s") == pytest.approx(answer.pop("offset_at_most_s") + 1.5, abs=0.01)
        answer["disks"]["/"].pop("free_mib")  # it changes meanwhile
    module.pop("invocation")
    assert found == module


def test_a_container_is_not_asked_for_headers_of_its_hosts_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    preflight = node_modules.load("plugins/modules/node_preflight.py")
    monkeypatch.setattr(preflight.platform, "release", lambda: "0.0.0-of-no-machine")
    asked: list[list[str]] = []

    class Module:
        def run_command(self, words: list[str]) -> tuple[int, str, str]:
            asked.append(words)
            return 0, "", ""

    assert preflight.read_headers(Module(), in_container=True) == "unknown"
    assert asked == []


def test_what_installs_is_only_asked_so_in_check_mode(tmp_path: Path) -> None:
    task = {"name": "Look", "elastic_ai.toolkit.engine_artefact": {"sha256": "0" * 64, "root": str(tmp_path / "none")}}
    said, counts = play(tmp_path, [task], "--check")
    assert (counts["changed"], modules(said)) == (1, []), said
    said, counts = play(tmp_path, [task])
    assert (counts["failed"], modules(said)) == (1, ["engine_artefact"]), said


def entries(folder: Path) -> dict[str, Any]:
    """Files and folders as a role asks for them."""
    return {
        "owner_role": "one",
        "state_dir": str(folder / "state"),
        "directories": [{"path": str(folder / "made"), **OWNER}],
        "files": [
            {"path": str(folder / "made/plain"), "content": "plain\n", **OWNER},
            {"path": str(folder / "made/data.json"), "content": {"number": 2}, "mode": "0600", **OWNER},
            {"path": str(folder / "gone"), "state": "absent"},
        ],
    }


def written(folder: Path) -> list[dict[str, Any]]:
    return [{"name": "Write", "elastic_ai.toolkit.managed_files": entries(folder), "register": "said"}]


def test_a_settled_node_is_only_read(tmp_path: Path) -> None:
    said, counts = play(tmp_path, written(tmp_path))
    assert (counts["changed"], modules(said)) == (1, ["managed_files"]), said
    said, counts = play(tmp_path, written(tmp_path))
    assert (counts["ok"], counts["changed"], modules(said)) == (1, 0, [])


@pytest.mark.parametrize("drift", ["content", "mode", "missing", "folder", "back"])
def test_what_was_changed_by_hand_is_put_right(tmp_path: Path, drift: str) -> None:
    (tmp_path / "gone").write_text("foreign", encoding="utf-8")
    play(tmp_path, written(tmp_path))
    made = tmp_path / "made"

    def change() -> None:
        if drift == "content":
            (made / "plain").write_text("by hand\n", encoding="utf-8")
        elif drift == "mode":
            (made / "data.json").chmod(0o644)
        elif drift == "missing":
            (made / "plain").unlink()
        elif drift == "folder":
            made.chmod(0o700)
        else:
            (tmp_path / "gone").write_text("back", encoding="utf-8")

    change()
    _, counts = play(tmp_path, written(tmp_path), "--check")
    assert counts["changed"] == 1
    said, counts = play(tmp_path, written(tmp_path))
    assert (counts["changed"], modules(said)) == (1, ["managed_files"]), said
    assert (made / "plain").read_text(encoding="utf-8") == "plain\n"
    assert ((made / "data.json").stat().st_mode & 0o777, made.stat().st_mode & 0o777) == (0o600, 0o755)
    assert not (tmp_path / "gone").exists()
    assert play(tmp_path, written(tmp_path))[1]["changed"] == 0


def test_the_ledger_forgets_a_file_that_somebody_else_removed(tmp_path: Path) -> None:
    asked = entries(tmp_path)
    play(tmp_path, written(tmp_path))
    ledger = tmp_path / "state/ledger/one.files.json"
    path = str(tmp_path / "made/plain")
    assert path in json.loads(ledger.read_text(encoding="utf-8"))["files"]
    Path(path).unlink()
    asked["files"] = [*asked["files"][1:], {"path": path, "state": "absent"}]
    said, counts = play(tmp_path, [{"name": "Write", "elastic_ai.toolkit.managed_files": asked}])
    assert (counts["changed"], modules(said)) == (0, ["managed_files"]), said
    assert path not in json.loads(ledger.read_text(encoding="utf-8"))["files"]


def test_what_a_role_owns_is_removed_by_the_module_and_then_only_looked_for(tmp_path: Path) -> None:
    play(tmp_path, written(tmp_path))
    arguments = {"owner_role": "one", "remove_owned": True, "state_dir": str(tmp_path / "state")}
    task = [{"name": "Remove", "elastic_ai.toolkit.managed_files": arguments}]
    (tmp_path / "made/plain").unlink()
    (tmp_path / "made/data.json").unlink()
    (tmp_path / "made").rmdir()  # nothing to remove is left, but the ledger
    said, counts = play(tmp_path, task)
    assert (counts["changed"], modules(said)) == (0, ["managed_files"]), said
    assert not (tmp_path / "state/ledger").exists()
    said, counts = play(tmp_path, task)
    assert (counts["ok"], counts["changed"], modules(said)) == (1, 0, [])


def test_an_answer_ends_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    reader = node_modules.load("plugins/module_utils/reading.py").Reader({}, supports_check_mode=True)
    with pytest.raises(SystemExit):
        reader.exit_json(changed=False)
    assert json.loads(capsys.readouterr().out) == {"changed": False}


def test_a_look_never_writes(tmp_path: Path) -> None:
    assert answered("managed_files", entries(tmp_path), "files")["changed"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"packages": "bash"},  # Ansible makes a list of it
        {"colour": "blue"},
        {"pci": "yes"},
        {"files": ["~/x"]},
        {"files": ["/$HOME/x"]},
        {"packages": [7]},
    ],
)
def test_what_ansible_would_convert_or_refuse_is_left_to_the_module(arguments: dict[str, Any]) -> None:
    assert "Unusual" in answered("node_state", arguments, "container")["refused"]


@pytest.mark.parametrize("entry", [{"mode": 644}, {"colour": "blue"}, {"state": "there"}, {"content": None}])
def test_an_odd_entry_is_left_to_the_module(tmp_path: Path, entry: dict[str, Any]) -> None:
    asked = {"files": [{"path": str(tmp_path / "x"), "content": "y", **entry}]}
    assert "Unusual" in answered("managed_files", asked, "files")["refused"]


READ = [{"name": "Read", "elastic_ai.toolkit.node_state": {"contents": ["/etc/hostname"]}, "register": "seen"}]


@pytest.mark.parametrize(
    ("task", "variables", "sent"),
    [
        ({}, {}, []),
        ({}, {"ansible_pipelining": False}, ["node_state"]),
        ({"environment": {"LANG": "C"}}, {}, ["node_state"]),
        ({"delegate_to": "localhost"}, {}, ["node_state"]),
        ({"elastic_ai.toolkit.node_state": {"packages": "bash"}}, {}, ["node_state"]),
    ],
)
def test_the_module_is_asked_where_the_short_way_will_not_do(
    tmp_path: Path, task: dict[str, Any], variables: dict[str, Any], sent: list[str]
) -> None:
    said, counts = play(tmp_path, [{**READ[0], **task}], **variables)
    assert (counts["ok"], counts["failed"]) == (1, 0), said
    assert modules(said) == sent


def test_a_fault_is_told_in_the_modules_words(tmp_path: Path) -> None:
    said, counts = play(tmp_path, [{"name": "Read", "elastic_ai.toolkit.node_state": {"colour": "blue"}}])
    assert counts["failed"] == 1
    assert "Unsupported parameters" in said


@pytest.mark.parametrize(
    "noise", ["", "motd\n", "{}\n", "[1]\n", '{"a":\n', '{"msg": "hello", "failed": true}\n', "null\n"]
)
def test_an_answer_is_known_by_its_form_whatever_login_files_print(noise: str) -> None:
    found = {"changed": False, "links": {}}
    line = f"{json.dumps(found)}\n"
    assert reading.answered(f"{noise}{line}") == reading.answered(f"{line}{noise}") == found
    assert reading.answered(noise) is None, "the module itself is asked"
    assert reading.answered(f'{noise}{{"changed": false, "failed": true}}') is None
