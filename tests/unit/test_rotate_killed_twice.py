"""An exchange of the munge key that is stopped more than once: what was placed is never forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lease_texts import slurm_job
from tests.support.rotation_world import NAMES, OLD, Killed, World
from toolkit.rotate import holding, there


@pytest.fixture(autouse=True)
def without_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of it here, and its certificates take time."""
    monkeypatch.setattr(World, "_registry", lambda _world: None)


def killed(world: World, request: int) -> bool:
    """A command that is killed before that request of its own; False where it came to its end before."""
    world.kill_at = world.asked + request
    try:
        world.munge().go()
    except Killed:
        return True
    finally:
        world.kill_at = -1
    return False


def placing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Killed with the new key on some nodes and the old one on others."""
    world = World(folder, monkeypatch)
    placed, calls = there.VERBS["place"], []

    def some(asked: dict[str, object], root: Path) -> dict[str, object]:
        calls.append(1)
        if len(calls) == 3:
            raise Killed
        return placed(asked, root)

    with monkeypatch.context() as patch:
        patch.setitem(there.VERBS, "place", some)
        with pytest.raises(Killed):
            world.munge().go()
    assert len({world.path(name, there.MUNGE_KEY).read_text() for name in NAMES}) == 2, "mixed"
    return world


def as_before(world: World, old: str = OLD) -> None:
    """The old key everywhere, jobs start, and nothing is left."""
    assert world.keys() == {old}
    assert world.partitions == {"all": "UP", "old": "DOWN", "v100": "UP"}
    assert world.open() == []


def test_a_job_that_does_not_come_to_rest_takes_back_what_an_earlier_command_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = placing(tmp_path, monkeypatch)
    world.jobs = slurm_job(9, state="COMPLETING")
    monkeypatch.setattr(holding, "SETTLED_S", -1.0)
    assert world.munge().go().state == "gone back"
    as_before(world)


def test_ctrl_c_while_jobs_are_held_takes_back_what_an_earlier_command_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = placing(tmp_path, monkeypatch)

    def pressed(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(holding.Pool, "settle", pressed)
    assert world.munge().go().state == "gone back"
    as_before(world)


def test_a_node_that_is_away_meanwhile_keeps_the_rotation_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = placing(tmp_path, monkeypatch)
    world.silent.add("gpu2")
    world.jobs = slurm_job(9, state="COMPLETING")
    monkeypatch.setattr(holding, "SETTLED_S", -1.0)
    assert world.munge().go().state == "open"
    world.silent.clear()
    assert world.munge().go().state == "gone back"
    as_before(world)


def test_a_note_of_an_earlier_release_is_taken_for_one_that_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no word of it, and may say hold after a second call."""
    world = placing(tmp_path, monkeypatch)
    [note] = [path for path in world.open() if path.name == "rotation"]
    (note / "rotation.json").write_text(
        '{"began": "2026-11-28T12:00:00+00:00", "step": "hold", "direction": "forward", "partitions": ["all", "v100"]}'
    )
    assert world.munge().go(back=True).state == "gone back"
    as_before(world)


@pytest.mark.parametrize("back", [False, True])
def test_killed_twice_before_any_requests_the_third_call_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    plain = World(tmp_path / "plain", monkeypatch)
    plain.munge().go()
    for first in range(4 + back, plain.asked + 1, 2):  # both together are all
        second = 0
        while True:
            second += 5
            world = World(tmp_path / f"{first}-{second}", monkeypatch)
            assert killed(world, first)
            old = OLD if world.open() else world.key("head")  # killed after its end, so that the next is another one
            more = killed(world, second)
            done = world.munge().go(back)
            assert done.state in ("done", "gone back", "nothing to do")
            assert len(world.keys()) == 1, f"killed before request {first}, then before request {second}"
            if done.state == "gone back":
                as_before(world, old)
            assert world.open() == []
            assert world.partitions == {"all": "UP", "old": "DOWN", "v100": "UP"}
            if not more:
                break
