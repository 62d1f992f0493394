"""What an upgrade says and leaves when this machine stops it: a full disk, another deployment of the site, a defect."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import answers
from tests.support.upgrade_world import NAMES, NEW, Answering, World, busy, ran
from toolkit.deploy.site_state import SiteState
from toolkit.errors import UsageFault
from toolkit.node import leave, playbooks
from toolkit.upgrade import deploying, held, rolling
from toolkit.upgrade import state as upgrade_state
from toolkit.upgrade.state import Kept, State
from validation.base.errors import ToolkitError
from validation.execute.store import Store

FULL = OSError(errno.ENOSPC, "No space left on device", "/state/x.log")
SAID = "stopped at batch 2 of 3 (gpu1, gpu2), in deploy; gpu1, gpu2 stay drained; continue with: toolkit upgrade --to"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def goes_on(world: World) -> None:
    """The same command ends it, and nothing is left drained."""
    done = ran(world)
    assert done.exit_code == 0, done.output
    assert world.nodes("release") == dict.fromkeys(NAMES, NEW)
    assert set(world.nodes("drained").values()) == {""}


def at_gpu1(monkeypatch: pytest.MonkeyPatch, fault: BaseException) -> None:
    real = playbooks.run

    def run(playbook: Path, inventory: Path, limit: str | None, arguments: Sequence[str] = ()) -> Any:
        if "gpu1" in (limit or ""):
            raise fault
        return real(playbook, inventory, limit, arguments)

    monkeypatch.setattr(playbooks, "run", run)


def test_a_full_disk_in_a_batch_is_no_bad_batch_and_says_who_is_drained_and_how_to_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        at_gpu1(patched, FULL)
        done = ran(world, "--json")
    assert SAID in done.stderr
    assert isinstance(done.exception, ToolkitError)
    assert done.exception.code == 3
    assert "/state/x.log: No space left on device" in str(done.exception)
    assert world.nodes("drained")["gpu1"] == "toolkit upgrade", "nothing is wrong with it"
    assert answers.check(done.stdout, "upgrade")["state"] == "stopped"
    goes_on(world)


def test_a_full_disk_under_the_validation_is_no_bad_batch_either(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        Store(tmp_path / "no" / "run")

    with monkeypatch.context() as patched:
        patched.setattr(held, "held", full)
        done = ran(world)
    assert "stopped at batch 1 of 3 (head), in validate; continue with: toolkit upgrade --to" in done.output
    assert "cannot be written" in str(done.exception)
    assert world.log.count("begins head") == 1
    goes_on(world)
    assert world.log.count("begins head") == 1, "it goes on where it was"


@pytest.mark.parametrize("step", ["drain", "deploy", "resume", "done"])
def test_a_state_that_cannot_be_written_says_who_is_drained_and_how_to_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    real, full = upgrade_state._replace, []

    def replace(path: Path, state: State) -> State:
        if full or any(batch.step == step and "gpu1" in batch.nodes for batch in state.batches):
            full.append(path)
            raise upgrade_state.Unkept(f"{path}: cannot be written: No space left on device")
        return real(path, state)

    with monkeypatch.context() as patched:
        patched.setattr(upgrade_state, "_replace", replace)
        done = ran(world)
    said = {
        "drain": "stopped at batch 2 of 3 (gpu1, gpu2), not begun; continue with: toolkit upgrade --to",
        "deploy": "stopped at batch 2 of 3 (gpu1, gpu2), in drain; gpu1, gpu2 stay drained; continue with: ",
        "resume": "stopped at batch 2 of 3 (gpu1, gpu2), in validate; gpu1, gpu2 stay drained; continue with: ",
        "done": "stopped at batch 2 of 3 (gpu1, gpu2), in resume; gpu1, gpu2 may still be drained; continue with: ",
    }
    assert said[step] in done.output
    assert isinstance(done.exception, ToolkitError)
    assert done.exception.code == 3
    assert "cannot be written: No space left on device" in str(done.exception)
    goes_on(world)


def test_a_bad_batch_that_cannot_be_written_down_is_named_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = upgrade_state._replace

    def replace(path: Path, state: State) -> State:
        if any(batch.failed for batch in state.batches):
            raise upgrade_state.Unkept(f"{path}: cannot be written: No space left on device")
        return real(path, state)

    with monkeypatch.context() as patched:
        patched.setattr(upgrade_state, "_replace", replace)
        world.left["breaks"] = "gpu2"
        done = ran(world)
    assert SAID in done.output
    assert "gpu2 failed" in str(done.exception)
    assert "No space left on device" in str(done.exception)
    world.left["breaks"] = ""
    goes_on(world)


def test_a_record_that_cannot_be_removed_is_a_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(upgrade_state, "_keep_names", fails)
    kept = Kept(world.inventory)
    kept.open.parent.mkdir(parents=True)
    for change in (kept.drop, kept.told):
        with pytest.raises(upgrade_state.Unkept, match=r"cannot be written: Input/output error"):
            change()


@pytest.mark.parametrize("fault", [RuntimeError("a defect"), KeyboardInterrupt()])
def test_whatever_stops_it_says_who_is_drained_and_how_to_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    with monkeypatch.context() as patched:
        at_gpu1(patched, fault)
        done = ran(world)
    assert SAID in done.output
    assert done.exit_code != 0
    goes_on(world)


def test_a_bad_batch_names_who_stays_drained(world: World) -> None:
    world.left["breaks"] = "gpu2"
    assert "gpu1, gpu2 stay drained; continue with: toolkit upgrade" in ran(world).output


def behind_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deployments of this world take the lock of the site's, as real ones do."""
    real = playbooks.run

    def run(playbook: Path, inventory: Path, limit: str | None, arguments: Sequence[str] = ()) -> Any:
        with SiteState(inventory).locked():
            return real(playbook, inventory, limit, arguments)

    monkeypatch.setattr(playbooks, "run", run)


def test_another_deployment_of_the_site_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the restart of a node by `toolkit incidents`."""
    behind_the_lock(monkeypatch)
    other, slept = contextlib.ExitStack(), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            other.close()

    monkeypatch.setattr(time, "sleep", sleep)
    other.enter_context(SiteState(world.inventory).locked())
    done = ran(world)
    assert done.exit_code == 0, done.output
    assert done.output.count("another deployment of this site is running") == 1
    assert "waiting for it, 30m00s at most" in done.output
    assert not any("failed" in entry for entry in world.log)
    assert world.nodes("release") == dict.fromkeys(NAMES, NEW)


def test_another_deployment_that_does_not_end_is_no_bad_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(world, "--budget", "0").exit_code == 3
    behind_the_lock(monkeypatch)
    monkeypatch.setattr(deploying, "LOCK_LEAST_S", 0.0)
    with SiteState(world.inventory).locked():
        done = ran(world)
    assert "stopped at batch 1 of 3 (head), in deploy; continue with: toolkit upgrade --to" in done.output
    assert isinstance(done.exception, ToolkitError)
    assert done.exception.code == 3
    assert "another deployment of this site is running" in str(done.exception)
    goes_on(world)


def test_waiting_for_jobs_and_for_another_deployment_is_not_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the time of a batch, by which the next upgrade's is foretold."""
    behind_the_lock(monkeypatch)
    clock, other = [0.0], contextlib.ExitStack()
    asked, init = Answering.jobs_on, rolling.Rolling.__init__

    def sleep(_seconds: float) -> None:
        clock[0] += 1000.0
        other.close()

    def jobs_on(head: Answering, name: str) -> Any:
        found = asked(head, name)
        if found:
            clock[0] += 500.0
        elif clock[0]:
            other.enter_context(SiteState(world.inventory).locked())
        return found

    monkeypatch.setattr(rolling.Rolling, "__init__", lambda self, asked, say: init(self, asked, say, lambda: clock[0]))
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(leave, "PAUSE_S", 0.0)
    monkeypatch.setattr(Answering, "jobs_on", jobs_on)
    monkeypatch.setattr(Answering, "resume", _resumes_in(clock, Answering.resume))
    empty = world.jobs[0]
    world.jobs = [empty, busy("gpu1"), busy("gpu1"), empty]
    done = ran(world, "--limit", "head,gpu1")
    assert done.exit_code == 0, done.output
    assert clock[0] == 2007.0
    last = Kept(world.inventory).read_last()
    assert last is not None
    assert [batch.took_s for batch in last.batches] == [0.0, 7.0]


def _resumes_in(clock: list[float], real: Any) -> Any:
    def resume(head: Answering, name: str) -> None:
        clock[0] += 7.0
        real(head, name)

    return resume


def test_a_disk_that_refuses_a_deployments_log_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state = SiteState(tmp_path / "hosts.yml")
    words = r"/state/x\.log: No space left on device; .*give the same command again"
    with pytest.raises(UsageFault, match=words), state.locked():
        raise FULL
    with pytest.raises(BrokenPipeError), state.locked():  # of a reader of ours, not of the disk
        raise BrokenPipeError
