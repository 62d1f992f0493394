"""What is read of a tool is in English on a node of any language: real tools, and every call in the code and roles."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils import basic

from tests.support.node_modules import ROOT, load

apt = load("plugins/module_utils/apt.py")
node_preflight = load("plugins/modules/node_preflight.py")
node_state = load("plugins/modules/node_state.py")
plain = load("plugins/module_utils/plain.py")
reading = load("plugins/module_utils/reading.py")
GERMAN = {"LANG": "de_DE.UTF-8", "LANGUAGE": "de:en", "LC_ALL": "C.UTF-8", "LC_MESSAGES": "de_DE.UTF-8"}
TRANSLATED = Path("/usr/share/locale/de/LC_MESSAGES/apt.mo").is_file() and shutil.which("apt-cache")


class Recorder:
    """In place of AnsibleModule: runs nothing, and keeps the environment that a command would have."""

    def __init__(self, out: str = "", translated: str = "") -> None:
        self.run_command_environ_update: dict[str, str] = {}
        self.out, self.translated, self.seen = out, translated, []  # type: ignore[var-annotated]

    def run_command(self, command: list[str], environ_update: dict[str, str] | None = None) -> tuple[int, str, str]:
        env = {**GERMAN, **self.run_command_environ_update, **(environ_update or {})}
        self.seen.append((command, env))
        return 0, self.out if english(env) else self.translated, ""


def english(env: dict[str, str]) -> bool:
    """As gettext decides: the C locale has no translations, every other one follows LANGUAGE first."""
    return env["LC_ALL"] == "C" or (env["LC_ALL"].startswith("C") and not env["LANGUAGE"])


@pytest.mark.skipif(not TRANSLATED, reason="this machine has no German messages of apt")
@pytest.mark.parametrize("manager", ["reader", "module", "package_set"])
def test_the_real_apt_answers_in_english(manager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in GERMAN.items():
        monkeypatch.setenv(name, value)
    said = subprocess.run(["apt-cache", "policy", "apt"], capture_output=True, text=True, check=True).stdout
    assert "Installiert:" in said, "else this test shows nothing"
    if manager == "reader":
        monkeypatch.setattr(reading.Reader, "given", {})
        said = reading.Reader({}, supports_check_mode=True).run_command(["apt-cache", "policy", "apt"])[1]
    elif manager == "module":
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": {}}).encode())
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        module = basic.AnsibleModule(argument_spec={})
        said = plain.plain(module).run_command(["apt-cache", "policy", "apt"])[1]
    else:
        env = {**os.environ, **apt.ENVIRONMENT}
        said = subprocess.run(
            ["apt-cache", "policy", "apt"], capture_output=True, text=True, check=True, env=env
        ).stdout
    assert "Installed:" in said
    assert "Candidate:" in said


@pytest.mark.skipif(not Path("/usr/bin/apt-cache").exists(), reason="no apt here")
def test_headers_can_be_installed_in_every_language(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Recorder("  Installed: (none)\n  Candidate: 6.1.170-3\n", "  Installationskandidat: 6.1.170-3\n")
    monkeypatch.setattr(node_preflight.platform, "release", lambda: "6.1.0-37-none-such")
    monkeypatch.setattr(node_preflight.Path, "glob", lambda *_: iter([Path("x_Packages")]))
    assert node_preflight.read_headers(module, in_container=False) == "installable"


READERS: dict[str, Any] = {
    "packages": lambda module: node_state.read_packages(module, ["bash"]),
    "units": lambda module: node_state.read_units(module, ["ssh.service"]),
    "tuned": node_preflight.read_tuned,
    "network": lambda module: node_preflight.read_network(module, []),
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_asks_in_the_c_locale(name: str) -> None:
    module = Recorder()
    READERS[name](module)
    assert module.seen
    assert all(env["LC_ALL"] == "C" and env["LANGUAGE"] == "" for _, env in module.seen)


#: Calls without an environment of their own: programs of this toolkit, which print JSON, or words that nobody reads.
NO_WORDS_ARE_READ = {
    "roles/jupyterhub/files/collect.py": "pip and npm: their words are shown",
    "roles/jupyterhub/files/environments.py": "Python, which prints JSON",
    "toolkit/commands/lease_shared.py": "this toolkit on the head, between marks of its own",
    "toolkit/commands/lease_static.py": "ssh, whose words have no translations, of this toolkit",
    "toolkit/engine/build.py": "gcc: its words are shown",
    "toolkit/engine/host_modules.py": "gcc: its words are shown",
    "toolkit/engine/local_build.py": "gcc: its words are shown",
    "toolkit/engine/tensorflow_build.py": "Python, which prints JSON",
    "toolkit/lease/notebook/server_python.py": "Python, which prints JSON",
    "toolkit/here.py": "Python, which prints JSON",
    "toolkit/lab/drill_validation.py": "this toolkit",
    "toolkit/lease/server/container.py": "umount: nothing is read",
    "toolkit/lease/server/container_limits.py": "systemctl: its exit status alone",
    "toolkit/lease/client/images.py": "rm: nothing is read",
    "toolkit/lease/kept/afterwards.py": "the user's own command, and sendmail: their words are shown",
    "toolkit/lease/client/manage.py": "this toolkit",
    "toolkit/lease/server/mig.py": "nothing is read",
    "toolkit/lease/client/folder_copies.py": "nothing is read",
    "toolkit/lease/shell/door.py": "munge, whose words have no translations",
    "toolkit/lease/shell/forward.py": "ssh, whose words have no translations",
    "toolkit/lease/shell/keys.py": "ssh-keygen, whose words have no translations",
    "toolkit/lease/machine/unit.py": "the unit's own words are shown",
    "toolkit/backup/archive.py": "age, which has no translations",
    "toolkit/backup/making.py": "ssh with cat",
    "toolkit/backup/restoring.py": "ssh; the command itself begins with env LC_ALL=C",
    "toolkit/narrowing.py": "this toolkit",
    "toolkit/page/server.py": "openssl: its exit status alone",
    "toolkit/node/head.py": "ssh; the command itself begins with env LC_ALL=C",
    "validation/asbuilt/resolved.py": "Python, which prints JSON",
    "validation/probes/remoting.py": "this toolkit",
    "validation/probes/remoting_attempts.py": "this toolkit",
    "validation/probes/torch_attempts.py": "this toolkit",
    "validation/probes/torch_compute.py": "this toolkit",
}


def sources() -> Iterator[Path]:
    for folder in ("plugins", "roles", "toolkit", "validation"):
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if "lab" not in path.parts)


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def is_subprocess(call: ast.Call) -> bool:
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(of, ast.Name) and of.id == "subprocess" and call.func.attr in ("run", "Popen", "check_output")  # type: ignore[union-attr]


def test_every_command_of_a_module_is_run_in_a_locale_without_translations() -> None:
    open_ones = []
    for path in sources():
        for call in calls(path):
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "run_command":
                continue
            of = call.func.value
            by_helper = isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "plain"
            if not by_helper and not any(keyword.arg == "environ_update" for keyword in call.keywords):
                open_ones.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert open_ones == []


def test_every_environment_that_sets_the_locale_sets_language_too() -> None:
    """C.UTF-8 alone leaves the messages to LANGUAGE."""
    half = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Dict):
                continue
            pairs = zip(node.keys, node.values, strict=True)
            keys = {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
            value = keys.get("LC_ALL")
            if isinstance(value, ast.Constant) and value.value != "C" and "LANGUAGE" not in keys:
                half.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert half == []


def test_every_other_program_whose_words_are_read_is_run_so() -> None:
    open_ones = {
        str(path.relative_to(ROOT))
        for path in sources()
        for call in calls(path)
        if is_subprocess(call)
        and {"capture_output", "stdout"} & {keyword.arg for keyword in call.keywords}
        and "env" not in {keyword.arg for keyword in call.keywords}
    }
    assert open_ones <= set(NO_WORDS_ARE_READ), "pass env with LC_ALL and LANGUAGE, or say why not"


def tasks(of: Any) -> Iterator[dict[str, Any]]:
    for task in of or ():
        yield task
        for key in ("block", "rescue", "always"):
            yield from tasks(task.get(key))


ENGLISH = {"LC_ALL": "C", "LANGUAGE": ""}


def test_every_command_task_whose_output_is_kept_is_run_so() -> None:
    open_ones, seen = [], 0
    for path in sorted(ROOT.glob("roles/*/*/*.yml")):
        if path.parent.name not in ("tasks", "handlers"):
            continue
        for task in tasks(yaml.safe_load(path.read_text())):
            kept = "register" in task and {"ansible.builtin.command", "ansible.builtin.shell"} & set(task)
            seen += bool(kept)
            if kept and not ENGLISH.items() <= task.get("environment", {}).items():
                open_ones.append(f"{path.relative_to(ROOT)}: {task['name']}")
    assert seen > 25
    assert open_ones == []


def test_no_play_sets_an_environment_for_all() -> None:
    """With one, each reading would take the long way (plugins/plugin_utils/reading.py)."""
    for path in ROOT.glob("playbooks/*.yml"):
        assert not re.search(r"^  environment:", path.read_text(), re.MULTILINE), path.name


def test_the_version_of_a_module_that_is_not_loaded_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Recorder("570.133.20\n")
    said = {"modules.dep": "updates/dkms/nvidia-peermem.ko.zst: updates/dkms/nvidia.ko.zst"}
    monkeypatch.setattr(node_state, "word", lambda path: said.get(path.name, ""))
    monkeypatch.setattr(node_state.shutil, "which", lambda name: f"/usr/sbin/{name}")
    found = node_state.read_modules(module, ["nvidia-peermem", "nouveau"], tmp_path, "6.8.0")
    assert found["nvidia-peermem"] == {"loaded": False, "version": "570.133.20", "available": True}
    assert found["nouveau"] == {"loaded": False, "version": "", "available": False}
    assert [command for command, _ in module.seen] == [["modinfo", "-F", "version", "nvidia_peermem"]]
