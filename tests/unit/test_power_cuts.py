"""Power cuts at random moments of upgrades and rollbacks, several in a row, of controller, head and nodes, with changes
of mind between: over a simulated site; tests/support/power_cuts.py does so in a lab."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.upgrade_world import NAMES, NEW, OLD, Answering, World, ran
from toolkit.errors import UsageFault
from toolkit.upgrade.state import Kept

CHAINS = int(os.environ.get("ELASTIC_AI_POWER_CUTS", "15"))
"""Sites, of up to four cuts each; more by hand, for a record."""
SEED, MOMENTS, ASKED = 43, 45, 40


def controller_off(world: World, verb: str, moment: int) -> None:
    """The command's process is killed; no other has a part of it."""
    child = os.fork()
    if child == 0:
        world.kill_at = moment
        try:
            ran(world, verb=verb)
        finally:
            os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)


def head_off(world: World, verb: str, moment: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """From some question on it answers no more; what the command prints then."""
    asked, real = [0], Answering.run

    def run(head: Any, words: Sequence[str], timeout_s: float = 0.0) -> subprocess.CompletedProcess[bytes]:
        asked[0] += 1
        if asked[0] >= moment:
            raise UsageFault("head (10.0.0.1) does not answer by ssh: no route to host")
        return real(head, words, timeout_s)

    with monkeypatch.context() as patched:
        patched.setattr(Answering, "run", run)
        done = ran(world, verb=verb)
    return done.output + str(done.exception or "")


def node_off(world: World, verb: str, node: str) -> str:
    """It is away while it is deployed."""
    world.left["breaks"] = node
    done = ran(world, verb=verb)
    world.left["breaks"] = ""
    return done.output + str(done.exception or "")


def cut(world: World, verb: str, chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> str:
    """One, and what was cut."""
    victim = chance.choice(("controller", "controller", "head", *NAMES[1:]))
    if victim == "controller":
        controller_off(world, verb, chance.randrange(1, MOMENTS))
    elif victim == "head":
        said = head_off(world, verb, chance.randrange(1, ASKED), monkeypatch)
        assert "Traceback" not in said
    else:
        assert "Traceback" not in node_off(world, verb, victim)
    return victim


def test_after_every_cut_the_next_command_prints_where_things_are_and_the_last_one_ends_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(SEED)
    for number in range(CHAINS):
        folder = tmp_path / str(number)
        folder.mkdir()
        world, story, verb = World(folder, monkeypatch), list[str](), "upgrade"
        for _ in range(chance.randrange(1, 5)):
            if chance.random() < 0.3 and (Kept(world.inventory).read_open() or Kept(world.inventory).read_last()):
                verb = "rollback" if verb == "upgrade" else "upgrade"
            story.append(f"{verb}: {cut(world, verb, chance, monkeypatch)}")
            open_ = Kept(world.inventory).read_open()
            drained = {name for name, reason in world.nodes("drained").items() if reason}
            half = {name for name, is_half in world.nodes("half").items() if is_half}
            named = {name for batch in open_.batches for name in batch.nodes} if open_ is not None else set[str]()
            assert drained | half <= named, f"{story}: {drained | half} and no record names them"
            if open_ is not None:
                shown = ran(world, "--dry-run", verb=open_.verb)
                assert open_.where() in shown.output or "had changed no node" in shown.output, story
        if verb == "rollback" and not (Kept(world.inventory).read_open() or Kept(world.inventory).read_last()):
            continue  # the rollback came to its end before it was cut, and nothing is left of it
        done = ran(world, verb=verb)
        assert done.exit_code == 0, f"{story}: {done.output}{done.exception}"
        assert set(world.nodes("release").values()) == {NEW if verb == "upgrade" else OLD}, story
        assert set(world.nodes("drained").values()) == {""}, story
        assert not any(world.nodes("half").values()), story
        assert Kept(world.inventory).read_open() is None, story
