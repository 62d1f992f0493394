"""What an upgrade or a rollback that cannot end as it was planned comes to, and what follows a finished one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support import answers
from tests.support.upgrade_world import DRIVER, NAMES, NEW, OLD, World, ran
from toolkit.commands import deploy as deploy_command
from toolkit.commands.node import node
from toolkit.deploy import carried_out
from toolkit.upgrade import held, rolling
from toolkit.upgrade.state import Kept


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def stopped_in_drain(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade of gpu nodes alone, the head being there already, that Ctrl-C ends while it waits for leases."""
    data = world.read()
    data["nodes"]["head"].update(release=NEW, driver=DRIVER[NEW])
    world.write(data)

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rolling, "wait_empty", pressed)
        ran(world)
    assert [name for name, reason in world.nodes("drained").items() if reason] == ["gpu1", "gpu2"]


def test_a_rollback_of_what_changed_nothing_gives_the_drained_nodes_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_in_drain(world, monkeypatch)
    shown = ran(world, "--dry-run", verb="rollback")
    assert "had changed no node and would be given up; gpu1, gpu2 take work again" in shown.output
    assert world.nodes("drained")["gpu1"]
    done = ran(world, "--json", verb="rollback")
    assert done.exit_code == 0, done.output
    assert "the upgrade to current had changed no node and is given up; gpu1, gpu2 take work again" in done.output
    assert answers.check(done.stdout, "upgrade")["state"] == "done"
    assert set(world.nodes("drained").values()) == {""}
    assert Kept(world.inventory).read_open() is None
    assert not any(entry.startswith("begins") for entry in world.log)


@pytest.mark.parametrize("verb", ["upgrade", "rollback"])
def test_a_node_that_does_not_come_back_is_left_out_and_holds_nobody_up(world: World, verb: str) -> None:
    world.left["breaks"] = "gpu2"
    assert ran(world).exit_code == 1
    assert ran(world, "--without", "head", verb=verb).exit_code != 0
    assert ran(world, "--without", "gpu9", verb=verb).exit_code != 0
    done = ran(world, "--without", "gpu2", verb=verb)
    assert done.exit_code == 0, done.output
    assert "left out: gpu2, which stays drained" in done.output
    release = NEW if verb == "upgrade" else OLD
    assert world.nodes("release") == {**dict.fromkeys(NAMES, release), "gpu2": OLD}
    assert world.nodes("half")["gpu2"], "nothing went to it any more"
    assert world.nodes("drained") == {**dict.fromkeys(NAMES, ""), "gpu2": f"toolkit {verb}: left out"}
    assert Kept(world.inventory).read_open() is None
    world.left["breaks"] = ""
    assert "no upgrade or rollback of this site is open" in str(ran(world, "--without", "gpu2").exception)


def test_a_node_once_left_out_stays_so_when_the_same_command_goes_on(world: World) -> None:
    world.left["breaks"] = "gpu2"
    ran(world)
    world.left["bad"] = "gpu3"
    assert ran(world, "--without", "gpu2").exit_code == 1
    world.left["bad"] = ""
    done = ran(world)
    assert done.exit_code == 0, done.output
    assert "left out: gpu2" in done.output
    assert world.nodes("drained")["gpu2"] == "toolkit upgrade: left out"


def test_an_upgrade_takes_the_place_of_a_rollback_that_cannot_end(world: World) -> None:
    before = world.nodes("driver")
    assert ran(world).exit_code == 0
    world.left["breaks"] = "gpu2"  # the old packages have gone, say
    assert ran(world, verb="rollback").exit_code == 1
    assert world.nodes("half")["gpu2"]
    world.left["breaks"] = ""
    assert ran(world, "--limit", "gpu1").exit_code != 0
    seen = len(world.log)
    done = ran(world)
    assert done.exit_code == 0, done.output
    deployed = [entry for entry in world.log[seen:] if entry.startswith("deployed")]
    assert deployed == ["deployed gpu1,gpu2,head"], "what the rollback had not come to is as it should be"
    assert not any(world.nodes("half").values())
    assert set(world.nodes("release").values()) == {NEW}
    assert set(world.nodes("drained").values()) == {""}
    assert Kept(world.inventory).read_open() is None
    assert ran(world, verb="rollback").exit_code == 0, "and all of it can be taken back later"
    assert world.nodes("driver") == before
    assert set(world.nodes("release").values()) == {OLD}


def drained_by(world: World, name: str, reason: str) -> None:
    data = world.read()
    data["nodes"][name]["drained"] = reason
    world.write(data)


def test_what_somebody_else_drained_after_the_plan_stays_drained(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(world, "--budget", "0").exit_code == 3
    drained_by(world, "gpu2", "maintenance: fan")
    measure = held.held

    def meanwhile(asked: tuple[tuple[str, ...], str], *rest: object) -> object:
        if "gpu3" in asked[0]:
            drained_by(world, "gpu3", "node health check: NVMe")
            drained_by(world, "gpu4", "Not responding")
        return measure(asked, *rest)

    monkeypatch.setattr(held, "held", meanwhile)
    done = ran(world)
    assert done.exit_code == 0, done.output
    assert "gpu2 was drained by somebody else meanwhile (maintenance: fan); it stays so" in done.output
    assert world.nodes("drained") == {
        **dict.fromkeys(NAMES, ""), "gpu2": "maintenance: fan", "gpu3": "node health check: NVMe",
    }  # fmt: skip
    assert "drained gpu2" not in world.log
    assert set(world.nodes("release").values()) == {NEW}


def test_a_node_that_was_given_back_before_its_batch_is_drained_like_the_others(world: World) -> None:
    drained_by(world, "gpu2", "maintenance: fan")
    assert ran(world, "--budget", "0").exit_code == 3
    drained_by(world, "gpu2", "")
    assert ran(world).exit_code == 0
    assert "drained gpu2" in world.log
    assert set(world.nodes("drained").values()) == {""}


def test_a_deployment_that_would_take_an_upgrade_back_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr(carried_out, "carry_out", lambda job, as_json: begun.append(job))
    where = ["-i", str(world.inventory)]
    world.inventory.mkdir()
    hosts = world.inventory / "hosts.yml"
    hosts.write_text(f"all:\n  hosts: {{gpu1: , gpu2: , head: }}\n  vars:\n    stack_release: {OLD}\n")
    assert CliRunner().invoke(deploy_command.deploy, where).exit_code == 0
    assert ran(world).exit_code == 0
    refused = [
        CliRunner().invoke(deploy_command.deploy, where),
        *(CliRunner().invoke(node, [verb, "gpu1", *where]) for verb in ("add", "replace", "remove")),
    ]
    for done in refused:
        said = done.output + str(done.exception)
        assert f"and the inventory still has {OLD}, so this would take it back; nothing was changed" in said
        assert f"Write stack_release: {NEW} into {hosts}:4" in said
    assert len(begun) == 1
    meant = CliRunner().invoke(deploy_command.deploy, [*where, "--", "-e", f"stack_release={OLD}"])
    assert meant.exit_code == 0, meant.output
    assert CliRunner().invoke(deploy_command.deploy, [*where, "--check"]).exit_code == 0
    hosts.write_text(hosts.read_text().replace(OLD, NEW))
    assert CliRunner().invoke(deploy_command.deploy, where).exit_code == 0
    assert len(begun) == 4


def test_taking_an_unfinished_upgrade_back_leaves_the_finished_one_before_it_to_be_taken_back(world: World) -> None:
    before = world.nodes("driver")
    assert ran(world).exit_code == 0
    first = Kept(world.inventory).read_last()
    assert first is not None
    data = world.read()
    for name in NAMES:
        data["nodes"][name]["release"] = OLD  # by hand, say: an upgrade has all of them to do again
    world.write(data)
    world.left["bad"] = "gpu3"
    assert ran(world).exit_code == 1
    world.left["bad"] = ""
    assert ran(world, verb="rollback").exit_code == 0
    kept, upgraded = Kept(world.inventory), world.nodes("driver")
    assert (kept.read_open(), kept.read_last()) == (None, first)
    for more in (["--dry-run"], ["--dry-run"], []):  # the same command, whose power was cut at its very end
        again = ran(world, *more, verb="rollback")
        assert (again.exit_code, world.nodes("driver")) == (0, upgraded)
        assert f"the upgrade before it, to {NEW} ({first.ended}), is not taken back" in again.output
    assert ran(world, verb="rollback").exit_code == 0
    assert world.nodes("driver") == before
    assert set(world.nodes("release").values()) == {OLD}
