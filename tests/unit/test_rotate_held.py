"""A scheduler or head that does not answer while jobs are held: they start again, or it is said that they do not."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support import rotation_world
from tests.support.rotation_world import OLD, Killed, World
from toolkit import inventory
from toolkit.cli import cli
from toolkit.deploy.site_state import SiteState
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.node import checks
from toolkit.node import head as node_head
from toolkit.rotate import holding, there
from toolkit.rotate.nodes import RotationFault

UP = {"all": "UP", "old": "DOWN", "v100": "UP"}
DOWN = dict.fromkeys(UP, "DOWN")
HELD = "no job starts meanwhile: run toolkit rotate munge-key again, or with --back"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(World, "_registry", lambda _world: None)
    monkeypatch.setattr(holding, "PATIENCE_S", 0.0)
    monkeypatch.setattr(holding, "PAUSE_S", 0.0)
    return World(tmp_path, monkeypatch)


def silent(world: World, monkeypatch: pytest.MonkeyPatch, when: Callable[[list[str], int], bool]) -> None:
    """Slurm does not answer a command where `when` says so of it and its number."""
    count = [0]

    def run_on(node: object, words: list[str], timeout_s: float = 0) -> subprocess.CompletedProcess[bytes]:
        count[0] += 1
        if when(words, count[0]):
            said = b"slurm_load_jobs error: Socket timed out on send/recv operation"
            return subprocess.CompletedProcess(words, 1, b"", said)
        return world.run_on(node, words, timeout_s)  # type: ignore[arg-type]  # as the one that it stands for

    monkeypatch.setattr(node_head, "run_on", run_on)


def test_one_question_without_an_answer_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "PATIENCE_S", 60.0)
    for number in range(2, 8):
        silent(world, monkeypatch, lambda _words, at, number=number: at == number)  # type: ignore[misc]
        assert world.munge().go().state == "done", f"question {number}"
        assert world.partitions == UP
        assert world.open() == []


def test_where_nothing_was_placed_jobs_start_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    silent(world, monkeypatch, lambda words, at: words[0] == "squeue" and at > 1)
    done = world.munge().go()
    assert (done.state, world.keys(), world.partitions, world.open()) == ("gone back", {OLD}, UP, [])
    assert "the pool's scheduler does not answer on head" in done.why


def test_a_refusal_before_anything_leaves_no_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    silent(world, monkeypatch, lambda _words, _at: True)
    with pytest.raises(UsageFault, match=r"the pool's scheduler does not answer on head: .*; nothing was changed"):
        world.munge().go()
    assert (world.open(), world.partitions) == ([], UP)


def test_a_scheduler_that_is_gone_is_said_with_what_to_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    silent(world, monkeypatch, lambda words, at: at > 5 or (words[0] == "squeue" and at > 1))
    with pytest.raises(RotationFault, match=HELD) as fault:
        world.munge().go()
    assert fault.value.code == Exit.FAILED
    assert "DOWN" in world.partitions.values()
    silent(world, monkeypatch, lambda _words, _at: False)
    assert world.munge().go().state == "gone back"
    assert (world.keys(), world.partitions, world.open()) == ({OLD}, UP, [])


def test_a_scheduler_that_a_killed_call_left_mute_is_mended_by_the_old_key(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head's munge has no key in use any more: Slurm answers nothing until it has one again."""
    restarted, mute = there.VERBS["restart"], [False]

    def killed(asked: dict[str, object], root: Path) -> dict[str, object]:
        mute[0] = True
        raise Killed

    def again(asked: dict[str, object], root: Path) -> dict[str, object]:
        mute[0] = False
        return restarted(asked, root)

    silent(world, monkeypatch, lambda _words, _at: mute[0])
    with monkeypatch.context() as patch:
        patch.setitem(there.VERBS, "restart", killed)
        with pytest.raises(Killed):
            world.munge().go()
    monkeypatch.setitem(there.VERBS, "restart", again)
    done = world.munge().go()
    assert (done.state, world.keys(), world.partitions, world.open()) == ("gone back", {OLD}, UP, [])


def test_a_head_that_goes_away_while_jobs_are_held_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = there.VERBS["note"]

    def full(asked: dict[str, object], root: Path) -> dict[str, object]:
        if world.partitions == DOWN:
            raise there.Refusal("no space left on device")
        return noted(asked, root)

    monkeypatch.setitem(there.VERBS, "note", full)
    with pytest.raises(RotationFault, match=f"head: no space left on device; {HELD}"):
        world.munge().go()


@pytest.mark.parametrize("fault", [OSError("Too many open files"), ValueError("a fault of the toolkit's own")])
def test_any_other_fault_while_jobs_are_held_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def fails(*_given: object) -> None:
        raise fault

    monkeypatch.setattr(holding.Pool, "settle", fails)
    said: list[str] = []
    work = world.munge()
    work.say = said.append
    with pytest.raises((RotationFault, ValueError)) as raised:
        work.go()
    assert HELD in " ".join([*said, str(raised.value)])


def test_jobs_that_cannot_be_read_afterwards_do_not_undo_the_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    silent(world, monkeypatch, lambda words, _at: words[0] == "squeue" and world.keys() != {OLD})
    done = world.munge().go()
    assert (done.state, world.partitions, world.open()) == ("done", UP, [])
    assert "was not read" in done.unread
    assert "was not read" in str(done.document()["why"])


def test_ctrl_c_when_the_new_key_is_tried_everywhere_takes_nothing_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, pressed = holding.Pool.set_all, [False]

    def press(pool: holding.Pool, names: tuple[str, ...], state: str) -> None:
        if state == "UP" and not pressed[0]:
            pressed[0] = True
            raise KeyboardInterrupt
        real(pool, names, state)

    monkeypatch.setattr(holding.Pool, "set_all", press)
    done = world.munge().go()
    assert (done.state, done.interrupted, world.partitions, world.open()) == ("done", True, UP, [])
    assert world.keys() != {OLD}


def command(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of it, for a site that is the world's."""
    site = type("Site", (), {"topology": rotation_world.topology()})
    monkeypatch.setattr(inventory, "read_site", lambda _path: site)
    monkeypatch.setattr(checks, "refuse_joined", lambda *_given: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return ["rotate", "munge-key", "-i", str(tmp_path)]


def test_a_second_ctrl_c_says_that_jobs_are_held(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_given: object) -> None:
        raise KeyboardInterrupt

    words = command(world, tmp_path, monkeypatch)
    monkeypatch.setitem(there.VERBS, "place", pressed)
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == Exit.INTERRUPTED, done.output
    assert f"interrupted; {HELD}" in done.output


def test_the_command_ends_with_a_code_that_can_be_trusted(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = command(world, tmp_path, monkeypatch)
    silent(world, monkeypatch, lambda words, _at: words[0] == "squeue" and world.keys() != {OLD})
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == Exit.INCOMPLETE, done.output
    assert "whether jobs ended meanwhile was not read" in done.output
    silent(world, monkeypatch, lambda words, at: words[0] == "squeue" and at > 1)
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == Exit.FAILED, done.output


def test_no_rotation_while_the_site_is_deployed_and_no_deployment_while_it_rotates(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deployment that has passed its check would read a key in the middle of an exchange, and place it later."""
    words = command(world, tmp_path, monkeypatch)
    state = SiteState(tmp_path)
    with state.locked():
        done = CliRunner().invoke(cli, words)
    assert done.exit_code == Exit.USAGE, done.output
    assert f"a deployment of this site is running; its log is in {state.folder}" in done.output
    assert world.log == []
    settled, refused = holding.Pool.settle, list[str]()

    def meanwhile(pool: holding.Pool) -> tuple[int, ...]:
        with pytest.raises(UsageFault) as fault, SiteState(tmp_path).locked():
            pass
        refused.append(str(fault.value))
        refused.append(CliRunner().invoke(cli, words).output)
        return settled(pool)

    monkeypatch.setattr(holding.Pool, "settle", meanwhile)
    assert CliRunner().invoke(cli, words).exit_code == Exit.OK
    assert refused[0] == "a rotation (toolkit rotate) of this site is running; wait for its end"
    assert "another rotation (toolkit rotate) of this site is running; wait for its end" in refused[1]
    with state.locked(), pytest.raises(UsageFault, match="another deployment of this site"), state.locked():
        pass
