"""What is no inventory: every command that takes -i says so with file and line, and does nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from toolkit.cli import cli
from toolkit.deploy.carried_out import found_inventory
from toolkit.handover import punch_file
from toolkit.inventory import read_site
from toolkit.mirror.asking import ask
from validation.base.errors import ToolkitError

BROKEN = "all:\n  children:\n    gpu_servers:\n   hosts: {gpu1: }\n"
FORMS: dict[str, tuple[str | None, str]] = {
    "no-hosts": (None, "/hosts.yml: no such file; "),
    "empty": ("", "/hosts.yml: is empty; list the site's machines in it"),
    "nothing": ("---\n", "/hosts.yml: is empty; list the site's machines in it"),
    "list": ("---\n- gpu1\n", "/hosts.yml:2: is a list, and no groups with hosts; "),
    "text": ("gpu1\n", "/hosts.yml:1: is a text, and no groups with hosts; "),
    "broken": (BROKEN, "/hosts.yml:4: not valid YAML: "),
}
COMMANDS: dict[str, list[str]] = {
    "points": ["handover", "points"],
    "open": ["handover", "open", "label", "--class", "C", "--owner", "B", "--due", "2099-12-31"],
    "close": ["handover", "close", "P1", "--why", "seen"],
    "deploy": ["deploy", "--check"],
    "teardown": ["teardown", "--yes"],
    "mirror": ["mirror", "plan"],
    "check": ["check"],
}


def made(folder: Path, text: str | None) -> Path:
    site = folder / "a-site"
    site.mkdir()
    if text is not None:
        (site / "hosts.yml").write_text(text)
    return site


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("read", [read_site, found_inventory, punch_file.file_of, lambda path: ask(path, None)])
def test_what_is_no_inventory_is_refused_with_file_and_line_before_ansible_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, read: Any
) -> None:
    from validation.base import bounded

    def asked(*_: Any, **__: Any) -> None:
        raise AssertionError("Ansible was asked")

    monkeypatch.setattr(bounded, "run", asked)
    text, words = FORMS[form]
    site = made(tmp_path, text)
    with pytest.raises(ToolkitError) as refused:
        read(site)
    assert f"{site}{words}" in str(refused.value)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_ends_with_2_and_writes_nothing(tmp_path: Path, command: str) -> None:
    site = made(tmp_path, None)
    (site / "notes.md").write_text("")
    done = CliRunner().invoke(cli, [*COMMANDS[command], "-i", str(site)])
    assert (done.exit_code, f"{site}/hosts.yml: no such file" in done.output) == (2, True), done.output
    assert [path.name for path in site.iterdir()] == ["notes.md"]


def test_a_site_in_another_form_than_yaml_has_a_punch_list_and_any_other_folder_has_none(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("[gpu_servers]\ngpu1 ansible_host=192.0.2.1\n")
    assert punch_file.file_of(tmp_path) == tmp_path / "punch.yml"
    (tmp_path / "hosts").write_text("gpu1 ansible_host=192.0.2.1\n")
    with pytest.raises(ToolkitError, match="no host in group gpu_servers"):
        punch_file.file_of(tmp_path)


def test_a_list_of_the_lab_is_read_whether_the_lab_is_up_or_not() -> None:
    lab = Path(__file__).resolve().parents[2] / "inventories/lab"
    assert punch_file.file_of(lab) == lab / "punch.yml"
