"""--runs-dir: a folder that the caller named and that is not there is a mistake, the default one is not."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.command_tree import tree
from toolkit.cli import cli

NEW_RUNS = {
    "validate",
    "handover witness",
    "incidents",
    "node add",
    "node remove",
    "node replace",
    "upgrade",
    "rollback",
}
"""Commands that may make the folder."""


def taking() -> dict[str, click.Command]:
    """Commands with --runs-dir, by their words."""
    return {name: one for name, one in tree().items() if any(p.name == "runs_dir" for p in one.params)}


@pytest.mark.parametrize("name", sorted(taking().keys() - NEW_RUNS))
def test_a_folder_that_was_named_and_is_not_there_is_an_error(tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(cli, [*name.split(), "--runs-dir", str(tmp_path / "nope")])
    said = f"--runs-dir {tmp_path / 'nope'}: no such folder; "
    assert done.exit_code == 2
    assert said in done.output or "Missing " in done.output, done.output


@pytest.mark.parametrize("words", [["runs"], ["status"], ["report", "RUN"], ["verify", "RUN"], ["compare", "A", "B"]])
def test_such_a_folder_is_named(tmp_path: Path, words: list[str]) -> None:
    done = CliRunner().invoke(cli, [*words, "--runs-dir", str(tmp_path / "nope")])
    assert (done.exit_code, "nope: no such folder; " in done.output) == (2, True), done.output


def test_the_default_folder_comes_with_the_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["runs"])
    assert (done.exit_code, done.output) == (0, "runs: no run yet; toolkit validate makes one\n")
