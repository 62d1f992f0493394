"""managed_files in a role: what its entries hold is filled in on the controller."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.elastic_ai.toolkit.plugins.action import managed_files
from tests.support.warm import ansible

pytestmark = pytest.mark.systems

FILES: list[dict[str, Any]] = [
    {"path": "plain", "template": "plain.j2", "vars": {"own": "entry"}},
    {"path": "next", "template": "next.j2"},
    {"path": "folder/", "template": ["a.conf.j2", "b.conf.j2"], "mode": "0600"},
    {"path": "code/", "src": ["{{ role_path }}/files/code/x.py", "{{ role_path }}/files/code/deep/y.py"],
     "relative_to": "{{ role_path }}/files"},
    {"path": "kept", "src": "kept.txt"},
    {"path": "left_out", "template": "broken.j2", "when": "{{ 1 > 2 }}"},
    {"path": "gone", "template": "broken.j2", "state": "absent"},
    {"path": "data.json", "content": {"number": "{{ 1 + 1 }}"}},
]  # fmt: skip


class Site:
    """A role with one task, in a folder of its own."""

    def __init__(self, folder: Path, files: list[dict[str, Any]]) -> None:
        self.folder, role = folder, folder / "roles/one"
        self.at = folder / "node"
        texts = {
            "templates/plain.j2": "{{ own }} of {{ inventory_hostname }}\n",
            "templates/next.j2": "{{ own | default('nothing') }} {{ template_path | basename }}\n",
            "templates/a.conf.j2": "a\n",
            "templates/b.conf.j2": "b\n",
            "templates/broken.j2": "{{ nowhere }}\n",
            "files/code/x.py": "x = 1\n",
            "files/code/deep/y.py": "y = 2\n",
            "files/kept.txt": "{{ no template }}\n\n",
        }
        owned = [{"owner": "{{ me }}", "group": "{{ my_group }}", **entry, "path": f"{self.at}/{entry['path']}"}
                 for entry in files]  # fmt: skip
        texts["tasks/main.yml"] = yaml.safe_dump(
            [{"name": "Write", "elastic_ai.toolkit.managed_files": {"files": owned}}]
        )
        for name, text in texts.items():
            (role / name).parent.mkdir(parents=True, exist_ok=True)
            (role / name).write_text(text, encoding="utf-8")
        play = {"hosts": "localhost", "gather_facts": False, "roles": [str(role)]}
        (folder / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")

    def play(self, *options: str) -> str:
        """What ansible-playbook said."""
        import grp
        import os
        import pwd

        me, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
        done = ansible(
            "ansible-playbook", str(self.folder / "play.yml"), "-i", "localhost,", "-c", "local", *options,
            "-e", f"me={me} my_group={group}", "-e", "ansible_python_interpreter={{ ansible_playbook_python }}",
        )  # fmt: skip
        return done.stdout + done.stderr


def counted(said: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", said.partition("PLAY RECAP")[2])}


def test_entries_are_filled_in_on_the_controller(tmp_path: Path) -> None:
    site = Site(tmp_path, FILES)
    site.at.mkdir()
    (site.at / "gone").write_text("old", encoding="utf-8")
    assert counted(site.play("--check"))["changed"] == 1
    assert [path.name for path in site.at.rglob("*")] == ["gone"]

    said = site.play()
    assert counted(said)["failed"] == 0, said
    found = {str(path.relative_to(site.at)): path.read_text() for path in site.at.rglob("*") if path.is_file()}
    assert found == {
        "plain": "entry of localhost\n",
        "next": "nothing next.j2\n",
        "folder/a.conf": "a\n",
        "folder/b.conf": "b\n",
        "code/code/x.py": "x = 1\n",
        "code/code/deep/y.py": "y = 2\n",
        "kept": "{{ no template }}\n\n",
        "data.json": '{\n  "number": 2\n}\n',
    }
    assert (site.at / "folder/a.conf").stat().st_mode & 0o777 == 0o600
    assert counted(site.play())["changed"] == 0


def test_variables_of_a_template_are_not_copied_in_depth() -> None:
    deep: dict[str, Any] = {"facts": {"many": []}}
    copied = copy.deepcopy(managed_files.Variables(deep))
    copied["template_path"] = "of this template alone"
    assert copied["facts"] is deep["facts"]
    assert set(deep) == {"facts"}


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ({"path": "x", "template": "a.conf.j2", "content": "y"}, "exclude each other"),
        ({"path": "x", "template": "none.j2"}, "none.j2"),
        ({"path": "x", "src": "none.txt"}, "none.txt"),
        ({"path": "x", "content": "y", "colour": "blue"}, "colour"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(tmp_path: Path, entry: dict[str, Any], fault: str) -> None:
    site = Site(tmp_path, [entry])
    said = site.play()
    assert counted(said)["failed"] == 1
    assert fault in said
    assert not site.at.exists()
