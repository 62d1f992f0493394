"""No real site is taken back without consent: whatever stands beside a lab, behind --, or for a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.functional.test_deploy_run import ROOT, Site
from toolkit.deploy import running
from toolkit.lab_inventory import is_of_a_lab

pytestmark = pytest.mark.systems

LAB = "plugin: elastic_ai.toolkit.lab\n"
SITE = "all:\n  hosts:\n    one: {ansible_connection: local}\n"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, "['true']")


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "words",
    [("-i", "x"), ("-ix",), ("-vi", "x"), ("-vvvCix",), ("--inventory=x",), ("--inv", "x"), ("--inventory-file", "x")],
)
@pytest.mark.parametrize("command", ["teardown", "deploy"])
def test_a_second_inventory_behind_the_dashes_is_refused(site: Site, command: str, words: tuple[str, ...]) -> None:
    assert running.second_inventory(words) == words[0]
    if words[0] not in ("-i", "-vi"):
        return
    run = site.teardown if command == "teardown" else lambda *more: site.deploy("-i", "inventory", *more)
    done = run("--", *words)
    assert done.returncode == 2
    assert f"{words[0]}: give the inventory before the --" in done.stderr
    assert not list(site.folder.rglob("*.log"))


@pytest.mark.parametrize(
    "words", [("--check",), ("-v",), ("--diff",), ("-e", "a=-i"), ("--tags", "i"), ("--skip-tags=i",)]
)
def test_other_options_go_to_ansible(words: tuple[str, ...]) -> None:
    assert running.second_inventory(words) is None
    assert running.asks(words) is None


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("-k",), "-k"), (("-bK",), "-bK"), (("-vvJ",), "-vvJ"), (("--ask-pass",), "--ask-pass"),
        (("--vault-id", "prompt"), "--vault-id prompt"), (("--vault-id=site@prompt",), "--vault-id=site@prompt"),
        (("--vault-id", "site@file"), None), (("--vault-password-file", "prompt"), None),
    ],
)  # fmt: skip
def test_what_ansible_would_ask_where_nobody_answers(words: tuple[str, ...], named: str | None) -> None:
    assert running.asks(words) == named


@pytest.mark.parametrize(
    ("make", "lab"),
    [
        (lambda at: put(at / "hosts.yml", LAB).parent, True),
        (lambda at: put(at / "hosts.yml", LAB), True),
        (lambda at: put(at / "group_vars/all.yml", "a: 1") and put(at / "hosts.yml", LAB).parent, True),
        (lambda at: put(at / "site.yml", SITE) and put(at / "hosts.yml", LAB).parent, False),
        (lambda at: put(at / "more", "[all]\nreal1") and put(at / "hosts.yml", LAB).parent, False),
        (lambda at: put(at / "host_vars/gpu1.yml", "ansible_host: real1") and put(at / "hosts.yml", LAB).parent, False),
        (lambda at: put(at / "hosts.yml", SITE).parent, False),
        (lambda at: put(at / "lab/hosts.yml", SITE), False),
    ],
    ids=["folder", "file", "group-vars", "hosts-beside", "ini-beside", "address-beside", "site", "called-lab"],
)
def test_a_lab_is_one_where_nothing_stands_beside_it(tmp_path: Path, make: Callable[[Path], Path], lab: bool) -> None:
    assert is_of_a_lab(make(tmp_path / "x")) == lab


def test_a_link_from_a_labs_folder_is_what_it_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path / "state"))
    real, link = put(tmp_path / "site/hosts.yml", SITE).parent, tmp_path / "state/labs/one/inventory"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    assert not is_of_a_lab(link)


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04", "maybe\n\x04"])
def test_whoever_does_not_say_yes_changes_nothing(tmp_path: Path, answer: str) -> None:
    put(tmp_path / "site/hosts.yml", SITE)
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state")}
    words = [sys.executable, "-m", "toolkit", "teardown", "-i", "site"]
    os.write(ours, answer.encode())
    done = subprocess.run(words, cwd=tmp_path, env=env, stdin=theirs, capture_output=True, text=True, check=False)
    os.close(ours), os.close(theirs)
    assert done.returncode == 130
    assert done.stdout == ""
    assert "nothing was changed" in done.stderr
    assert not (tmp_path / "state").exists()


def test_without_any_stdin_a_real_site_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "site/hosts.yml", SITE)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = ["sh", "-c", 'exec "$0" -m toolkit teardown -i site <&-', sys.executable]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "nobody can be asked here; nothing was changed" in done.stderr
