"""`toolkit upgrade` and `rollback`: the plan, what is done in which order, and what is left when it stops."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support import answers, site
from tests.support.upgrade_world import NAMES, NEW, OLD, Answering, World, busy, ran
from toolkit.commands import deploy as deploy_command
from toolkit.commands.upgrade import upgrade
from toolkit.deploy import carried_out
from toolkit.errors import UsageFault
from toolkit.exits import MEANINGS, Exit
from toolkit.upgrade import held, planning
from toolkit.upgrade.plan import Change, NodePlan, batch_sizes, batched, refuse_what_stays
from toolkit.upgrade.state import Kept, State
from validation.run.catalogue import load_criteria
from validation.verdict.addendum import faults_of


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


STEPS = [
    "begins head", "deployed head", "validated head as current",
    "drained gpu1", "drained gpu2", "begins gpu1,gpu2,head", "deployed gpu1,gpu2,head",
    "validated gpu1,gpu2 as current", "resumed gpu1", "resumed gpu2",
    "drained gpu3", "drained gpu4", "begins gpu3,gpu4,head", "deployed gpu3,gpu4,head",
    "validated gpu3,gpu4 as current", "resumed gpu3", "resumed gpu4",
]  # fmt: skip


def test_the_plan_names_each_change_and_changes_nothing(world: World) -> None:
    before = world.read()
    done = ran(world, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "gpu1  NVIDIA driver 570.1.2 to 580.173.02 (reboot)" in done.output
    assert "batch 1 of 3: head\nbatch 2 of 3: gpu1, gpu2\nbatch 3 of 3: gpu3, gpu4\n" in done.output
    assert "5 nodes to be rebooted; how long a batch takes is not known" in done.output
    assert "cannot go back: firmware" in done.output
    assert world.read() == before
    assert Kept(world.inventory).read_open() is None


def test_the_plan_is_an_answer_too(world: World) -> None:
    world.jobs = [busy("gpu2")]
    done = ran(world, "--dry-run", "--json")
    found = answers.check(done.stdout, "upgrade")
    assert found["state"] == "planned"
    assert next(one for one in found["nodes"] if one["node"] == "gpu2")["jobs"] == ["lease 41 of alice"]
    assert found["nodes"][0]["reboots"] == ["NVIDIA driver"]


def test_each_batch_is_drained_deployed_validated_and_resumed_with_the_head_first(world: World) -> None:
    done = ran(world)
    assert done.exit_code == 0, done.output
    assert world.log == STEPS
    assert set(world.nodes("release").values()) == {NEW}
    assert set(world.nodes("drained").values()) == {""}
    assert "next: write stack_release" not in done.output  # the inventory has `current`, as no other is named
    assert ran(world).exit_code == 0
    assert world.log == STEPS, "a second upgrade has nothing to do"


def test_rollback_gives_each_node_what_it_had_the_head_last(world: World) -> None:
    world.write({**world.read(), "nodes": {**world.read()["nodes"], "gpu2": {
        "release": OLD, "driver": "570.9.9", "drained": "", "half": False}}})  # fmt: skip
    before = world.nodes("driver")
    assert ran(world).exit_code == 0
    seen = len(world.log)
    done = ran(world, verb="rollback")
    assert done.exit_code == 0, done.output
    assert world.nodes("driver") == before, "gpu2 had another version than its release"
    assert set(world.nodes("release").values()) == {OLD}
    deployed = [entry for entry in world.log[seen:] if entry.startswith("deployed")]
    assert deployed == ["deployed gpu1,gpu2,head", "deployed gpu3,gpu4,head", "deployed head"]
    assert "validated gpu1,gpu2 as reference-2019" in world.log
    assert set(world.nodes("drained").values()) == {""}
    for words in (("--dry-run",), ()):
        again = ran(world, *words, verb="rollback")
        assert (again.exit_code, "the last upgrade was taken back already, 2" in again.output) == (0, True), (
            again.output
        )
    assert world.log[seen:].count("deployed head") == 1
    told = answers.check(ran(world, "--json", verb="rollback").stdout, "upgrade")
    assert (told["verb"], told["state"]) == ("rollback", "nothing to do")
    assert "taken back before: nothing to do" in MEANINGS["rollback"][Exit.OK]
    assert ran(world).exit_code == 0
    assert ran(world, verb="rollback").exit_code == 0, "an upgrade since can be taken back"
    assert world.log[seen:].count("deployed head") == 3


def test_a_rollback_where_nothing_was_upgraded_is_refused(world: World) -> None:
    assert isinstance(ran(world, verb="rollback").exception, UsageFault)


def test_a_rollback_of_one_node_leaves_the_others_for_another(world: World) -> None:
    assert ran(world).exit_code == 0
    assert ran(world, "--limit", "gpu3", verb="rollback").exit_code == 0
    assert world.nodes("release") == {**dict.fromkeys(NAMES, NEW), "gpu3": OLD}
    assert ran(world, verb="rollback").exit_code == 0
    assert set(world.nodes("release").values()) == {OLD}


@pytest.mark.parametrize(
    ("fault", "words"),
    [("bad", "pf.stack fails: driver"), ("waits", "still waits for a reboot"), ("breaks", "gpu2 failed")],
)
def test_the_first_bad_batch_stops_it_and_its_nodes_stay_drained(world: World, fault: str, words: str) -> None:
    world.left[fault] = "gpu2"
    done = ran(world)
    assert done.exit_code == 1
    assert words in done.output
    assert "continue with: toolkit upgrade --to current" in done.output
    drained = world.nodes("drained")
    assert drained["gpu1"].startswith("toolkit upgrade: failed in ")
    assert drained["gpu2"].startswith("toolkit upgrade: failed in ")
    assert drained["gpu3"] == "", "a later batch is untouched"
    assert world.nodes("release")["gpu3"] == OLD
    world.left[fault] = ""
    assert ran(world).exit_code == 0
    assert set(world.nodes("drained").values()) == {""}
    assert set(world.nodes("release").values()) == {NEW}


def test_a_bad_batch_can_be_taken_back(world: World) -> None:
    world.left["breaks"] = "gpu2"
    assert ran(world).exit_code == 1
    assert world.nodes("half")["gpu2"], "packages are changed and the record is not"
    world.left["breaks"] = ""
    assert ran(world, verb="rollback").exit_code == 0
    assert not any(world.nodes("half").values())
    assert set(world.nodes("release").values()) == {OLD}
    assert set(world.nodes("drained").values()) == {""}


def test_after_the_budget_no_batch_begins_and_the_same_command_goes_on(world: World) -> None:
    done = ran(world, "--budget", "0")
    assert done.exit_code == 3, done.output
    assert world.log == []
    assert ran(world).exit_code == 0
    assert set(world.nodes("release").values()) == {NEW}


def test_the_same_command_with_the_same_limit_goes_on_and_another_limit_is_refused(world: World) -> None:
    for verb, release in (("upgrade", NEW), ("rollback", OLD)):
        assert ran(world, "--limit", "head,gpu1", "--budget", "0", verb=verb).exit_code == 3
        done = ran(world, "--limit", "head,gpu2", verb=verb)
        assert done.exit_code != 0
        assert "run the same command with --limit head,gpu1, or without to continue" in f"{done.exception}{done.output}"
        assert ran(world, "--limit", "head,gpu1", verb=verb).exit_code == 0
        assert world.nodes("release")["gpu1"] == release
        assert world.nodes("release")["gpu2"] == OLD


def test_what_somebody_else_drained_stays_drained(world: World) -> None:
    data = world.read()
    data["nodes"]["gpu2"]["drained"] = "maintenance: fan"
    world.write(data)
    assert ran(world).exit_code == 0
    assert world.nodes("drained")["gpu2"] == "maintenance: fan"
    assert world.nodes("release")["gpu2"] == NEW


def test_leases_are_waited_for_before_anything_is_changed_and_told_with_grace(world: World) -> None:
    empty = world.jobs[0]
    world.jobs = [empty, busy("gpu1"), busy("gpu1"), empty]
    assert ran(world, "--limit", "head,gpu1", "--grace", "8").exit_code == 0
    told, deployed = world.log.index("toolkit lease release 41 --grace 8"), world.log.index("begins gpu1,head")
    assert told < deployed


def test_a_limit_without_the_head_is_refused(world: World) -> None:
    done = ran(world, "--limit", "gpu1")
    assert "the head is upgraded first" in str(done.exception or done.output) + done.output
    assert done.exit_code != 0
    assert world.log == []


def test_another_release_or_verb_is_refused_while_one_is_open(world: World) -> None:
    world.left["bad"] = "gpu1"
    ran(world)
    log = world.log
    done = CliRunner().invoke(upgrade, ["--to", OLD, "-i", str(world.inventory)])
    assert "is not finished: batch 2 of 3 (gpu1, gpu2), in deploy, bad" in done.output + str(done.exception)
    assert ran(world, "--dry-run").exit_code == 0
    assert ran(world, "--limit", "gpu3").exit_code != 0
    assert world.log == log


def test_a_node_without_versions_on_record_is_refused(world: World) -> None:
    data = world.read()
    data["nodes"]["gpu3"]["recorded"] = False
    world.write(data)
    done = ran(world)
    assert "gpu3 has no record of the versions" in done.output + str(done.exception)
    assert world.log == []


def test_a_deployment_meanwhile_is_warned_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_out, "carry_out", lambda job, as_json: None)
    world.inventory.mkdir()
    (world.inventory / "hosts.yml").write_text("gpu_servers: {hosts: {gpu1: }}\n")
    assert "warning" not in CliRunner().invoke(deploy_command.deploy, ["-i", str(world.inventory)]).output
    world.left["bad"] = "gpu1"
    ran(world)
    done = CliRunner().invoke(deploy_command.deploy, ["-i", str(world.inventory)])
    assert "warning: the upgrade to current is not finished (batch 2 of 3 (gpu1, gpu2), in deploy" in done.output


def test_a_pool_in_a_slurm_of_the_sites_own_is_refused_before_anything_is_asked(world: World) -> None:
    world.policy = {"join": {"cluster": "prod"}}
    refused = ran(world)
    assert isinstance(refused.exception, UsageFault)
    assert "prod" in str(refused.exception)
    assert world.read()["log"] == []


def test_an_unknown_release_is_refused_with_those_that_there_are(world: World) -> None:
    done = CliRunner().invoke(upgrade, ["--to", "curent", "-i", str(world.inventory)])
    assert "did you mean current?" in done.output + str(done.exception)


def killed_at(world: World, moment: int, verb: str) -> bool:
    """The command in a process that is killed at that moment; whether it came to it."""
    child = os.fork()
    if child == 0:
        world.kill_at = moment
        try:
            ran(world, verb=verb)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("verb", ["upgrade", "rollback"])
def test_killed_at_every_moment_the_same_command_goes_on_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    moment = 0
    while True:
        moment += 1
        folder = tmp_path / str(moment)
        folder.mkdir()
        world = World(folder, monkeypatch)
        if verb == "rollback":
            assert ran(world).exit_code == 0
        if not killed_at(world, moment, verb):
            break
        open_ = Kept(world.inventory).read_open()
        assert open_ is not None, f"killed at moment {moment}: nothing on record"
        drained = {name for name, reason in world.nodes("drained").items() if reason}
        assert drained <= set(open_.begun), f"moment {moment}: a node is drained that no record names"
        shown = ran(world, "--dry-run", verb=verb)
        assert open_.where() in shown.output
        done = ran(world, verb=verb)
        assert done.exit_code == 0, f"moment {moment}: {done.output}"
        assert set(world.nodes("release").values()) == {NEW if verb == "upgrade" else OLD}, f"moment {moment}"
        assert set(world.nodes("drained").values()) == {""}, f"moment {moment}"
        assert not any(world.nodes("half").values()), f"moment {moment}"
        assert Kept(world.inventory).read_open() is None
    assert moment > 30, "it was killed at every moment"


def test_an_upgrade_killed_at_every_moment_can_be_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment, taken = 0, 0
    while True:
        moment += 1
        folder = tmp_path / str(moment)
        folder.mkdir()
        world = World(folder, monkeypatch)
        if not killed_at(world, moment, "upgrade"):
            break
        done = ran(world, verb="rollback")
        taken += done.exit_code == 0
        assert done.exit_code == 0, f"moment {moment}: {done.output} {done.exception}"
        assert set(world.nodes("release").values()) == {OLD}, f"moment {moment}"
        assert set(world.nodes("drained").values()) == {""}, f"moment {moment}"
        assert not any(world.nodes("half").values()), f"moment {moment}"
    assert taken > 30


def test_ctrl_c_says_where_it_stopped_and_how_to_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(self: Answering, name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Answering, "resume", pressed)
    done = ran(world)
    assert "stopped at batch 2 of 3 (gpu1, gpu2), in resume" in done.output
    assert "continue with: toolkit upgrade --to current" in done.output
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("spec", "count", "sizes"),
    [(2, 5, [2, 2, 1]), ("25%", 8, [2, 2, 2, 2]), ("25%", 3, [1, 1, 1]), ([1, "50%"], 5, [1, 2, 2]), ("3", 2, [2]),
     ("100%", 4, [4]), (2, 0, [])],
)  # fmt: skip
def test_batches_are_as_large_as_ansible_makes_them(spec: object, count: int, sizes: list[int]) -> None:
    assert batch_sizes(spec, count) == sizes


@pytest.mark.parametrize("spec", [0, "x", "0%", [], True, -1, 1.5])
def test_a_batch_that_is_none_is_refused(spec: object) -> None:
    with pytest.raises(UsageFault, match="reboot_batch: "):
        batch_sizes(spec, 4)


def test_the_head_is_alone_first_and_last() -> None:
    assert batched(["gpu2", "head", "gpu1"], "head", 2, "upgrade") == (("head",), ("gpu1", "gpu2"))
    assert batched(["gpu2", "head", "gpu1"], "head", 2, "rollback") == (("gpu1", "gpu2"), ("head",))
    assert batched(["gpu1"], "head", 2, "upgrade") == (("gpu1",),)
    # A batch is validated by one release: nodes that go back to different ones are in different batches
    releases = {"gpu1": "b", "gpu2": "a", "gpu3": "b", "gpu4": "a", "head": "a"}
    found = batched(releases, "head", 3, "rollback", releases.__getitem__)
    assert found == (("gpu2", "gpu4"), ("gpu1",), ("gpu3",), ("head",))


def test_a_rollback_validates_no_batch_by_the_release_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "declared", lambda *_: "100%")
    monkeypatch.setattr(planning, "expected_s", lambda _: (None, ""))
    earlier = {"gpu1": "b", "gpu2": "a", "head": "a"}
    nodes = [NodePlan(node=name, release="c", to=to, changes=()) for name, to in earlier.items()]
    head: Any = SimpleNamespace(node=SimpleNamespace(name="head"))
    found = planning._plan("rollback", "a", nodes, nodes, Path("hosts.yml"), head, earlier)
    assert found.batches == (("gpu2",), ("gpu1",), ("head",))


@pytest.mark.parametrize(("part", "why"), [("kernel", "no role removes a kernel"), ("Slurm", "database was converted")])
def test_what_cannot_go_back_is_refused_in_words(part: str, why: str) -> None:
    change = Change(part=part, before="1", after="2", key=(), pin="", reboot=False)
    node = NodePlan(node="gpu1", release=OLD, to=NEW, changes=(change,))
    with pytest.raises(UsageFault, match=f"cannot go back: {part} of gpu1: .*{why}"):
        refuse_what_stays([node], {"gpu1": [change]})


def test_a_state_that_cannot_be_read_is_not_guessed(world: World) -> None:
    kept = Kept(world.inventory)
    kept.open.parent.mkdir(parents=True, exist_ok=True)
    kept.open.write_text("torn {")
    with pytest.raises(UsageFault, match=r"upgrade\.json: cannot be read"):
        kept.read_open()
    assert ran(world).exit_code != 0
    assert world.log == []


def test_a_state_is_on_the_disk_before_and_after_it_gets_its_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def synced(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        seen.append(
            path.name if path.is_file() else f"folder with {', '.join(sorted(one.name for one in path.iterdir()))}"
        )

    monkeypatch.setattr(os, "fsync", synced)
    kept = Kept(world.inventory)
    kept.write(State(verb="upgrade", to=NEW, began="", nodes=(), batches=()))
    assert seen == ["upgrade.new", "folder with upgrade.json"]
    kept.finish(State(verb="upgrade", to=NEW, began="", nodes=(), batches=()))
    assert seen[2:] == ["upgrade.new", "folder with upgrade.json", "folder with upgrade-last.json"]


def test_a_batch_of_one_owes_what_one_node_can_show() -> None:
    """No pair is there: seen of pf.mtu, in a lab. What the node itself does not show stays a fault."""
    lab = site.lab(("head", "gpu1", "gpu2"))
    whole = site.plan_of(lab)
    before = site.verdict_of(lab, whole, site.results_of(whole))
    alone = lab.model_copy(update={"nodes": (lab.node("gpu1"),)})
    plan = site.plan_of(alone, held.SUITES)
    now = site.verdict_of(alone, plan, site.results_of(plan))
    catalogue = {one.id: one for one in load_criteria()}
    assert any(fault.startswith("pf.mtu passed in") for fault in faults_of(before, now, catalogue, held.SUITES))
    assert faults_of(before, now, held.shown(catalogue, alone, before), held.SUITES) == ()
    assert held.shown(catalogue, lab, before) == catalogue
    silent = site.verdict_of(alone, plan, list(site.results_of(plan))[1:])
    assert faults_of(before, silent, held.shown(catalogue, alone, before), held.SUITES) != ()


def test_a_head_without_a_gpu_does_not_owe_what_gpu_servers_showed() -> None:
    """Seen in a lab: the head is a batch by itself, and the accepted run has judged GPUs of the servers."""
    lab = site.lab(("head", "gpu1"))
    whole = site.plan_of(lab)
    before = site.verdict_of(lab, whole, site.results_of(whole))
    (like,) = (
        j for j in site.criterion(before, "pf.state").judgements if {end.node for end in j.about.ends} == {"gpu1"}
    )
    shows = [
        c.model_copy(update={"verdict": "pass", "judgements": (like,)}) if c.id == "pf.gpuhealth" else c
        for c in before.criteria
    ]
    before = before.model_copy(update={"criteria": tuple(shows)})
    catalogue = {one.id: one for one in load_criteria()}

    def faults(name: str) -> list[str]:
        """Of a batch of this node, whose run has nothing of a GPU."""
        alone = lab.model_copy(update={"nodes": (lab.node(name),)})
        plan = site.plan_of(alone, held.SUITES)
        now = site.verdict_of(alone, plan, site.results_of(plan))
        silent = [
            c.model_copy(update={"verdict": "not-measured"}) if c.id == "pf.gpuhealth" else c for c in now.criteria
        ]
        now = now.model_copy(update={"criteria": tuple(silent)})
        return [fault.split()[0] for fault in faults_of(before, now, held.shown(catalogue, alone, before), held.SUITES)]

    assert faults("head") == []
    assert faults("gpu1") == ["pf.gpuhealth"]
