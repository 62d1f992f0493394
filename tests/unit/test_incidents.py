"""`toolkit incidents`: what is drained and what never is, in which order a server is mended, and who is left alone."""

from __future__ import annotations

import contextlib
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support import answers, gpu_health_case
from tests.support.incident_world import NAMES, READ, TOPOLOGY, Killed, World, begun
from toolkit.commands.incidents import incidents
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.incident import mending, watching
from toolkit.node.drain import drained_by_somebody
from validation.base import bounded
from validation.measures.gpu.health import GpuHealthFacts
from validation.measures.gpu.xid_table import POLICY
from validation.model import Node


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_dry_run_prints_and_changes_nothing(world: World) -> None:
    watch = world.watch(steps=())
    watch.look()
    world.xid("gpu3", 95)
    for _ in range(3):
        watch.look()
    assert world.log == []
    assert [line for line in world.lines if line.startswith("gpu3: Xid 95")] == [
        "gpu3: Xid 95 of 0000:1a:00.0: an uncontained memory error; cure: reset; would be drained (dry run: nothing is "
        "done without --do)"
    ]


def test_only_xids_that_ask_for_it_drain_and_nobody_else_is_drained(world: World) -> None:
    """The whole table, on servers by chance, over many looks."""
    chance = random.Random(43)
    for code, row in sorted(POLICY.items()):
        watch, name = world.watch(most_percent=100.0), chance.choice(NAMES)
        watch.look()
        world.xid(name, code)
        watch.look()
        wanted = [f"drain {name}"] if row.meaning in ("replace", "reset") else []
        assert world.log == wanted, f"Xid {code}"
        for path in (world.folder / "elastic-ai-toolkit").rglob("gpu*.json"):
            path.unlink()
        world.log.clear()
        world.reasons.clear()


def test_the_drain_comes_in_the_look_that_sees_it_with_the_reason(world: World) -> None:
    watch = world.watch()
    watch.look()
    world.xid("gpu7", 79)
    (found,) = watch.look()
    assert found.node == "gpu7"
    assert world.reasons == {"gpu7": "toolkit incidents: Xid 79 of 0000:1a:00.0: the GPU has fallen off the bus"}
    assert drained_by_somebody("IDLE+DRAIN", world.reasons["gpu7"]), "an upgrade leaves it drained"
    assert 2 * watching.EVERY_LIMIT_S + watching.READ_S <= 60, "a state, which two looks have to show"


def test_what_was_in_the_log_before_the_first_look_is_left_alone(world: World) -> None:
    world.xid("gpu1", 79)
    watch = world.watch()
    assert watch.look() == []
    assert world.watch().look() == [], "nor by the next process"
    world.xid("gpu1", 95)
    assert [one.faults[0].words[:6] for one in world.watch().look()] == ["Xid 95"]


@pytest.mark.parametrize("change", [{"unread": "Driver Not Loaded"}, {"lost": ["GPU 3 is lost"], "gpus": []}])
def test_a_state_counts_when_two_looks_show_it(world: World, change: dict[str, Any]) -> None:
    watch, well = world.watch(), world.said["gpu2"]
    assert isinstance(well, dict)
    watch.look()
    world.said["gpu2"] = {**well, **change}
    assert watch.look() == []
    world.said["gpu2"] = well
    watch.look()
    world.said["gpu2"] = {**well, **change}
    assert watch.look() == [], "it was well in between"
    assert [one.node for one in watch.look()] == ["gpu2"]
    assert world.log == ["drain gpu2"]


def test_a_node_that_does_not_answer_is_not_drained(world: World) -> None:
    watch = world.watch()
    world.said["gpu5"] = "gpu5 (10.0.0.5) does not answer by ssh"
    for _ in range(4):
        assert watch.look() == []
    assert world.log == []
    assert len([line for line in world.lines if "gpu5 was not read" in line]) == 1


def test_never_more_than_the_share_is_out_at_once(world: World) -> None:
    world.reasons["gpu20"] = "fan, called Dell"
    watch = world.watch()
    watch.look()
    for name in NAMES[:6]:
        world.xid(name, 95)
    watch.look()
    assert world.log == ["drain gpu1"], "two of twenty, and one is out by another's hand"
    assert (
        len([line for line in world.lines if "NOT drained" in line and "out of service 2 of 20 servers" in line]) == 5
    )
    assert world.reasons["gpu20"] == "fan, called Dell"


def test_a_fault_that_was_not_acted_on_is_not_forgotten(world: World) -> None:
    world.watch(steps=()).look()
    world.xid("gpu3", 95)
    world.watch(steps=()).look()
    world.reasons |= {"gpu19": "fan", "gpu20": "fan"}
    world.watch().look()
    assert world.log == [], "a dry run, and a full share"
    world.reasons.clear()
    world.watch().look()
    assert world.log == ["drain gpu3"]
    watch = world.watch()
    watch.look()
    watch.look()
    assert world.log == ["drain gpu3"]


def test_a_drain_by_a_person_while_nodes_are_read_stays(world: World) -> None:
    watch = world.watch()
    watch.look()
    world.xid("gpu3", 95)

    def read(node: Node) -> GpuHealthFacts | str:
        world.reasons["gpu3"] = "fan, called Dell"
        return world.read(node)

    watch.read = read
    assert watch.look() == []
    assert world.reasons["gpu3"] == "fan, called Dell"


def test_one_node_that_says_too_much_is_a_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> None:
        raise bounded.TooMuch("\x1b[31mgpu1\n" + "x" * 10_000)

    monkeypatch.setattr(watching, "run_on", run)
    said = READ(TOPOLOGY.nodes[1])
    assert isinstance(said, str)
    assert said.isprintable()
    assert len(said) == watching.MOST_WORDS


def test_one_node_without_steps_is_refused(world: World) -> None:
    begun(world)
    kept = watching.Kept(world.folder).read("gpu1")
    world.reasons.clear()
    done = CliRunner().invoke(incidents, ["-i", str(world.folder), "--node", "gpu1", "--runs-dir", str(world.folder)])
    assert "name what may be done with --do" in str(done.exception) + done.output
    assert (world.log, watching.Kept(world.folder).read("gpu1")) == (["drain gpu1"], kept)


def test_who_is_drained_by_somebody_else_is_left_alone(world: World) -> None:
    watch = world.watch()
    watch.look()
    world.reasons["gpu1"] = "toolkit upgrade"
    world.xid("gpu1", 95)
    assert watch.look() == []
    assert world.log == []
    assert "it takes no work already (toolkit upgrade) and is left alone" in world.lines[-1]


@pytest.mark.parametrize("reason", ["Epilog error", "Prolog error", "Kill task failed [root@2026-11-28T12:00:00]"])
def test_a_drain_by_slurm_itself_is_taken_over_with_the_fault(world: World, reason: str) -> None:
    """A GPU that falls off the bus under a lease: its Epilog fails, and Slurm is quicker than two looks."""
    watch = world.watch()
    watch.look()
    world.reasons["gpu1"] = reason
    world.xid("gpu1", 95)
    [incident] = watch.look()
    assert incident.drained
    assert world.reasons["gpu1"] == incident.reason
    assert world.mend("gpu1") is Exit.OK
    assert world.log == ["drain gpu1", "support", "empty", "reset", "accept", "resume"]


def test_a_drain_by_slurm_without_a_fault_is_left_alone(world: World) -> None:
    watch = world.watch()
    world.reasons["gpu1"] = "Epilog error"
    assert watch.look() == watch.look() == []
    assert world.reasons == {"gpu1": "Epilog error"}
    assert world.log == []


def test_one_that_slurm_drained_takes_no_place_in_the_share(world: World) -> None:
    """It is out of service already: no more of the pool goes."""
    watch = world.watch()
    watch.look()
    world.reasons |= dict.fromkeys(("gpu1", "gpu2", "gpu3"), "Epilog error")
    world.xid("gpu1", 95)
    assert [one.node for one in watch.look()] == ["gpu1"]


def test_a_watch_that_was_killed_leaves_the_taking_over_to_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.reasons["gpu1"] = "Epilog error"
    watch = world.watch()
    watch.look()
    world.xid("gpu1", 95)

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(world, "drain", killed)
        with pytest.raises(Killed):
            watch.look()
    assert world.mend("gpu1") is Exit.OK
    assert world.log[:2] == ["drain gpu1", "support"]


def test_a_reset_mends_after_the_file_and_an_acceptance_gives_back(world: World) -> None:
    begun(world)
    assert world.mend("gpu1") == Exit.OK
    assert world.log == ["drain gpu1", "support", "empty", "reset", "accept", "resume"]
    assert world.reasons == {}
    assert world.lines[-1] == "gpu1: takes work again, mended by a reset of the GPUs"
    assert world.mend("gpu1") == Exit.OK, "it is over"
    assert world.log[-1] == "resume"


@pytest.mark.parametrize("how", ["refused", "of no use"])
def test_a_restart_comes_after_a_reset_that_did_not_help(world: World, how: str) -> None:
    if how == "refused":
        world.reset_code = 255
    else:
        world.heals["reset"] = False
        said = world.said["gpu1"]
        assert isinstance(said, dict)
    begun(world)
    if how != "refused":
        said = world.said["gpu1"]
        assert isinstance(said, dict)
        world.said["gpu1"] = {**gpu_health_case.facts(ecc_uncorrected=2), "kernel_log": said["kernel_log"]}
    assert world.mend("gpu1") == Exit.OK
    assert world.log == ["drain gpu1", "support", "empty", "reset", "reboot", "accept", "resume"]
    assert world.lines[-1].endswith("mended by a restart")


def test_a_part_that_is_to_be_replaced_stays_out(world: World) -> None:
    begun(world, 79)
    assert world.mend("gpu1") == Exit.FAILED
    assert world.log == ["drain gpu1", "support", "empty"]
    assert "a part is to be replaced; its file for support: " in world.lines[-1]
    watch = world.watch()
    world.xid("gpu1", 79)
    assert [one.step for one in watch.look()] in ([], ["waits"])
    assert world.log == ["drain gpu1", "support", "empty"], "once"


def test_a_restart_that_did_not_help_and_a_bad_acceptance_stay_out(world: World) -> None:
    world.reset_code, world.heals["reboot"] = 255, False
    begun(world)
    said = world.said["gpu1"]
    assert isinstance(said, dict)
    world.said["gpu1"] = {**gpu_health_case.facts(ecc_uncorrected=2), "kernel_log": said["kernel_log"]}
    assert world.mend("gpu1") == Exit.FAILED
    assert "after a restart still: GPU 3 (0000:1d:00.0): uncorrectable memory errors" in world.lines[-1]
    assert "gpu1" in world.reasons


def test_a_bad_acceptance_stays_out(world: World) -> None:
    world.bad = ("pf.gpuhealth of gpu1 fails",)
    begun(world)
    assert world.mend("gpu1") == Exit.FAILED
    assert "pf.gpuhealth of gpu1 fails" in world.lines[-1]
    assert world.log[-1] == "accept"
    assert "gpu1" in world.reasons


@pytest.mark.parametrize(
    ("steps", "log"),
    [
        (("drain",), []),
        (("drain", "support"), ["support"]),
        (("drain", "reset"), ["empty", "reset"]),
        (("drain", "reset", "accept"), ["empty", "reset", "accept", "resume"]),
    ],
)
def test_each_step_is_optional(world: World, steps: tuple[Any, ...], log: list[str]) -> None:
    begun(world, steps=steps)
    code = world.mend("gpu1", steps=steps)
    assert world.log == ["drain gpu1", *log]
    assert (code == Exit.OK) == ("resume" in log)


def test_what_comes_back_within_a_day_is_left_to_a_person(world: World) -> None:
    begun(world)
    assert world.mend("gpu1") == Exit.OK
    begun(world)
    assert world.mend("gpu1") == Exit.FAILED
    assert "it was mended less than a day before" in world.lines[-1]
    assert world.log.count("reset") == 1


def test_who_resumes_a_node_that_waits_begins_anew(world: World) -> None:
    begun(world, 79)
    world.mend("gpu1")
    del world.reasons["gpu1"]
    world.log.clear()
    watch = world.watch()
    watch.look()
    world.xid("gpu1", 79)
    watch.look()
    assert world.log == ["drain gpu1"]


def test_somebody_who_resumed_it_meanwhile_is_not_overruled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(world)
    monkeypatch.setattr(mending, "wait_empty", lambda *_: world.reasons.clear())
    assert world.mend("gpu1") == Exit.FAILED
    assert "somebody else has resumed or drained it meanwhile" in world.lines[-1]
    assert "reset" not in world.log


@pytest.mark.parametrize("at", range(1, 26))
def test_one_that_is_killed_anywhere_goes_on(world: World, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(world)
    real, left = watching.Kept.write, [at]

    def write(kept: Any, incident: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        found = real(kept, incident)
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return found

    monkeypatch.setattr(watching.Kept, "write", write)
    with contextlib.suppress(Killed):  # one of fewer steps goes through
        world.mend("gpu1")
    assert "gpu1" in world.reasons or "resume" in world.log, "drained until it is accepted"
    assert world.mend("gpu1") == Exit.OK
    last = watching.Kept(world.folder).read("gpu1")
    assert last is not None
    assert (last.step, bool(last.ended)) == ("done", True), "what comes back within a day is known by it"
    assert world.reasons == {}
    order = [step for step in dict.fromkeys(world.log) if step != "drain gpu1"]
    assert order == ["support", "empty", "reset", "accept", "resume"]


def test_the_command(world: World) -> None:
    words = ["-i", str(world.folder), "--once", "--runs-dir", str(world.folder)]
    done = CliRunner().invoke(incidents, [*words, "--json"])
    assert done.exit_code == Exit.OK, done.output
    assert answers.check(done.stdout, "incidents")["incidents"] == []
    world.xid("gpu4", 95)
    done = CliRunner().invoke(incidents, words)
    assert done.exit_code == Exit.FAILED
    assert world.log == [], "dry run"
    world.xid("gpu4", 95)
    done = CliRunner().invoke(incidents, [*words, "--do", "drain,support", "--json"])
    assert done.exit_code == Exit.FAILED, done.output
    (found,) = answers.check(done.stdout, "incidents")["incidents"]
    assert (found["node"], found["step"]) == ("gpu4", "drain")
    for bad in ("reset", "drian"):
        done = CliRunner().invoke(incidents, [*words, "--do", bad])
        assert isinstance(done.exception, UsageFault) or done.exit_code == Exit.USAGE


def test_a_watch_that_is_stopped_ends_what_it_started(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = world.watch()
    child = subprocess.Popen(["sleep", "600"])
    watch.children["gpu1"] = child
    monkeypatch.setattr(watching, "ENDING_S", 0.1)
    monkeypatch.setattr(watch, "look", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        watch.run()
    assert child.poll() is not None
