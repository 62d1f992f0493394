"""`toolkit incidents` that may give servers back needs an accepted run, and is refused without one before anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.incident_world import MEND, World, begun
from toolkit.cli import cli
from toolkit.exits import Exit
from toolkit.incident import watching

ROOT = Path(__file__).parents[2]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(tmp_path, monkeypatch)
    found.unaccepted = True
    return found


@pytest.mark.parametrize("more", [["--once"], ["--node", "gpu1"]], ids=["watch", "one"])
def test_without_an_accepted_run_nothing_is_begun(world: World, more: list[str]) -> None:
    world.unaccepted = False
    begun(world)
    kept = watching.Kept(world.folder).read("gpu1")
    world.unaccepted = True
    world.log.clear()
    words = ["incidents", "-i", str(world.folder), "--runs-dir", str(world.folder / "runs"), *more, "--do", "all"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == Exit.USAGE, done.output
    assert f"{world.folder}/runs: no accepted run of site rack" in done.output
    assert "--runs-dir" in done.output
    assert "nothing was changed" in done.output
    assert (world.log, watching.Kept(world.folder).read("gpu1")) == ([], kept)


@pytest.mark.parametrize("steps", ["", "drain,support,reset,reboot"])
def test_what_gives_no_server_back_needs_none(world: World, steps: str) -> None:
    words = ["incidents", "-i", str(world.folder), "--once", "--runs-dir", str(world.folder)]
    done = CliRunner().invoke(cli, [*words, *(["--do", steps] if steps else [])])
    assert done.exit_code == Exit.OK, done.output


def test_one_that_is_over_needs_none(world: World) -> None:
    world.unaccepted = False
    begun(world)
    assert world.mend("gpu1") == Exit.OK
    world.unaccepted = True
    assert world.mend("gpu1") == Exit.OK


def test_a_run_that_is_gone_meanwhile_is_said_once_and_nothing_is_restarted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stays drained, and goes on as soon as there is one."""
    started: list[list[str]] = []
    monkeypatch.setattr(watching.Watch, "_mend", MEND)
    monkeypatch.setattr(watching.subprocess, "Popen", lambda words, **_given: started.append(words))
    watch = world.watch()
    watch.look()
    world.xid("gpu1", 95)
    for _ in range(3):
        watch.look()
    assert world.log == ["drain gpu1"]
    assert started == []
    assert len([line for line in world.lines if "no accepted run of site rack" in line]) == 1
    world.unaccepted = False
    watch.look()
    assert [words[words.index("--node") + 1] for words in started] == ["gpu1"]


def test_units_on_pages_name_their_folder_of_runs() -> None:
    """Under systemd the folder is /, and the default of --runs-dir is one in the folder where a command is."""
    units = [
        unit
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for unit in re.findall(r"ExecStart=[^`\n]*", page.read_text(encoding="utf-8"))
    ]
    assert units
    assert [unit for unit in units if "toolkit incidents" in unit and "--runs-dir /" not in unit] == []
