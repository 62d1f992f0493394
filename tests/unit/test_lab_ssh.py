"""`toolkit lab ssh NODE -- COMMAND`: what the node's shell makes of the command is what was written."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from toolkit.commands import lab as command

SHOW = "import json,sys; print(json.dumps(sys.argv[1:]))"


def line_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """What ssh is given after the node's address."""
    called: list[list[str]] = []
    monkeypatch.setattr(command, "become_root", lambda: None)
    monkeypatch.setattr(command.labs, "load", lambda _: SimpleNamespace(node=lambda name: name))
    monkeypatch.setattr(command.labs, "ssh_words", lambda _, node: ["ssh", f"root@{node}"])
    monkeypatch.setattr(command.os, "execvp", lambda _, given: called.append(given))
    done = CliRunner().invoke(command.lab, ["ssh", "client1", *(["--", *words] if words else [])])
    assert done.exit_code == 0, done.output
    assert called[0][:2] == ["ssh", "root@client1"]
    return called[0][2:]


@pytest.mark.parametrize("words", [["two words", "it's", "$HOME", "*", ""], ['"', "a;b", "|", ">", "\\", "é\n"]])
def test_each_word_arrives_as_it_was_written(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    line = line_of(monkeypatch, sys.executable, "-c", SHOW, *words)
    there = subprocess.run(["sh", "-c", " ".join(line)], capture_output=True, text=True, check=True)  # as sshd has it
    assert json.loads(there.stdout) == words


def test_one_word_is_a_line_for_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert line_of(monkeypatch, "echo a | cat") == ["echo a | cat"]
    assert line_of(monkeypatch) == []


@pytest.mark.parametrize("words", [("ls", "-q", "-v", "--help"), ("journalctl", "-h"), ("cat", "--", "-x")])
def test_options_after_the_node_are_the_commands(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(command, "become_root", lambda: None)
    monkeypatch.setattr(command.labs, "load", lambda _: SimpleNamespace(node=lambda name: name))
    monkeypatch.setattr(command.labs, "ssh_words", lambda _, node: ["ssh", f"root@{node}"])
    monkeypatch.setattr(command.os, "execvp", lambda _, given: called.append(given))
    for between in ((), ("--",)):
        done = CliRunner().invoke(command.lab, ["ssh", "client1", *between, *words])
        assert done.exit_code == 0, done.output
    assert called == [["ssh", "root@client1", " ".join(words)]] * 2


@pytest.mark.parametrize("words", [("--name", "other"), ("--name=other", "true")])
def test_a_lab_that_is_named_after_the_node_is_refused(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.setattr(command, "become_root", lambda: pytest.fail("another lab would be entered"))
    done = CliRunner().invoke(command.lab, ["ssh", "client1", *words])
    assert "--name goes before NODE: toolkit lab ssh --name LAB client1" in str(done.exception)
