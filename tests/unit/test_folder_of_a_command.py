"""A command that is run in a folder that its user cannot enter, or that is gone, ends with a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from toolkit import entry, pool_cli
from toolkit.entry import ToolkitGroup
from toolkit.exits import Exit


@click.group(cls=ToolkitGroup)
def commands() -> None:
    """One command that looks at a file here."""


@commands.command()
def look() -> None:
    """Look."""
    Path("train.py").stat()


def test_a_folder_that_the_user_cannot_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root enters every folder, so what another user meets is put in the place of the system's answer."""
    monkeypatch.chdir(tmp_path)
    real = os.stat

    def stat(path: object, **more: object) -> os.stat_result:
        if not str(path).startswith("/"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **more)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(os, "stat", stat)
    for group, words in ((commands, ["look"]), (pool_cli.cli, ["run", "train.py"])):
        done = CliRunner().invoke(group, words)
        assert done.exit_code == Exit.USAGE, (done.output, done.exception)
        assert f"error: {tmp_path}: this user cannot enter the folder in which this runs" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = CliRunner().invoke(commands, ["look"])
    assert done.exit_code == Exit.USAGE
    assert "does not exist any more; change to another one" in done.stderr


def test_any_other_fault_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands, ["look"])
    assert isinstance(done.exception, FileNotFoundError)
    assert entry.no_folder() == ""
