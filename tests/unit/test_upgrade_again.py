"""A second upgrade after a finished one: what a rollback takes back then, and what is said of it before."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.upgrade_world import DRIVER, NAMES, NEW, OLD, World, ran
from toolkit.commands.upgrade import upgrade
from toolkit.upgrade.plan import Change, NodePlan
from toolkit.upgrade.state import Batch, Kept, State


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def set_node(world: World, name: str, **values: object) -> None:
    data = world.read()
    data["nodes"][name].update(values)
    world.write(data)


def test_one_node_at_first_and_then_the_others_are_taken_back_together(world: World) -> None:
    set_node(world, "gpu1", driver="570.9.9")
    before = world.nodes("driver")
    assert ran(world, "--limit", "head,gpu1").exit_code == 0
    done = ran(world)
    assert done.exit_code == 0, done.output
    assert "by rollback any more" not in done.output, "nothing is lost of what goes to the same release"
    taken = ran(world, verb="rollback")
    assert taken.exit_code == 0, taken.output
    assert world.nodes("release") == dict.fromkeys(NAMES, OLD)
    assert world.nodes("driver") == before, "gpu1 had another version than its release"
    assert (Kept(world.inventory).read_last(), Kept(world.inventory).read_open()) == (None, None)
    assert "taken back already" in ran(world, verb="rollback").output


@pytest.mark.parametrize("fault", ["breaks", "bad"])
def test_a_node_that_was_left_out_and_follows_by_the_printed_advice_is_taken_back_with_all(
    world: World, fault: str
) -> None:
    """`bad`: its record has the new release already, and only its validation failed."""
    before = world.nodes("driver")
    world.left[fault] = "gpu2"
    assert ran(world).exit_code == 1
    assert ran(world, "--without", "gpu2").exit_code == 0
    world.left[fault] = ""
    done = ran(world, "--limit", "head,gpu2")
    assert done.exit_code == 0, done.output
    assert "left out" not in done.output
    assert world.nodes("release") == dict.fromkeys(NAMES, NEW)
    assert set(world.nodes("drained").values()) == {""}, "the advice ends with a node that works"
    last = Kept(world.inventory).read_last()
    assert last is not None
    assert last.left_out == ()
    taken = ran(world, verb="rollback")
    assert taken.exit_code == 0, taken.output
    assert "left out" not in taken.output
    assert world.nodes("release") == dict.fromkeys(NAMES, OLD)
    assert world.nodes("driver") == before
    assert set(world.nodes("drained").values()) == {""}


def test_a_node_that_a_rollback_left_out_follows_by_the_printed_advice(world: World) -> None:
    world.left["bad"] = "gpu2"
    assert ran(world).exit_code == 1
    assert ran(world, verb="rollback").exit_code == 1
    done = ran(world, "--without", "gpu2", verb="rollback")
    assert f"toolkit upgrade --to {OLD}, with --limit of the head and gpu2" in done.output
    world.left["bad"] = ""
    where = ["-i", str(world.inventory), "--runs-dir", str(world.inventory.parent)]
    done = CliRunner().invoke(upgrade, ["--to", OLD, "--limit", "head,gpu2", *where])
    assert done.exit_code == 0, done.output
    assert world.nodes("release") == dict.fromkeys(NAMES, OLD)
    assert set(world.nodes("drained").values()) == {""}, "its record is right already, and it is not resumed unseen"


def test_an_upgrade_to_another_release_says_first_what_cannot_be_taken_back_then(world: World) -> None:
    assert ran(world).exit_code == 0
    first = Kept(world.inventory).read_last()
    assert first is not None
    where = ["-i", str(world.inventory), "--runs-dir", str(world.inventory.parent)]
    words = (
        f"the upgrade to {NEW} ({first.ended}) of {', '.join(('gpu1', 'gpu2', 'gpu3', 'gpu4', 'head'))} can then not "
        "be taken back by rollback any more, only this one"
    )
    shown = CliRunner().invoke(upgrade, ["--to", OLD, *where, "--dry-run"])
    assert words in shown.output
    done = CliRunner().invoke(upgrade, ["--to", OLD, *where])
    assert done.exit_code == 0, done.output
    assert done.output.index(words) < done.output.index("drain")
    assert ran(world, verb="rollback").exit_code == 0
    assert world.nodes("release") == dict.fromkeys(NAMES, NEW), "to what they had before the second"


def change(part: str, before: str, after: str) -> Change:
    return Change(part=part, before=before, after=after, key=(part, "version"), pin=before, reboot=False)


def test_a_node_of_two_upgrades_goes_back_to_what_it_had_before_the_first(world: World) -> None:
    """The release of one name may have moved in between: another version, and a part more."""
    kept = Kept(world.inventory)

    def finished(began: str, node: NodePlan) -> State | None:
        batch = Batch(nodes=("gpu1",), step="done", took_s=3.0)
        kept.finish(State(verb="upgrade", to=NEW, began=began, nodes=(node,), batches=(batch,)))
        return kept.read_last()

    finished("1", NodePlan(node="gpu1", release=OLD, to=NEW, changes=(change("driver", "1", "2"),)))
    last = finished(
        "2",
        NodePlan(
            node="gpu1",
            release=NEW,
            to=NEW,
            changes=(change("driver", "2", "3"), change("fabric", "7", "8")),
            pool=True,
        ),
    )
    assert last is not None
    (one,) = last.nodes
    assert (one.release, one.to, one.pool, last.began) == (OLD, NEW, True, "1")
    assert one.pins == {"driver": {"version": "1"}, "fabric": {"version": "7"}}
    assert [(c.before, c.after) for c in one.changes] == [("1", "3"), ("7", "8")]
    assert [batch.nodes for batch in last.batches] == [("gpu1",)]


def test_a_node_that_was_taken_back_meanwhile_goes_back_to_what_it_had_then(world: World) -> None:
    assert ran(world).exit_code == 0
    assert ran(world, "--limit", "gpu3", verb="rollback").exit_code == 0
    set_node(world, "gpu3", driver="575.5.5")  # by hand
    assert ran(world).exit_code == 0
    assert ran(world, verb="rollback").exit_code == 0
    assert world.nodes("driver") == {**dict.fromkeys(NAMES, DRIVER[OLD]), "gpu3": "575.5.5"}


@pytest.mark.parametrize("place", ["written", "renamed"])
def test_killed_while_the_records_become_one_nothing_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    assert ran(world, "--limit", "head,gpu1").exit_code == 0
    renamed, child = Path.replace, os.fork()
    if child == 0:  # dies as the record is to get, or has got, the name of a finished one

        def replace(self: Path, target: Path) -> Path:
            if target.name == "upgrade-last.json":
                if place == "renamed":
                    renamed(self, target)
                os._exit(9)
            return renamed(self, target)

        monkeypatch.setattr(Path, "replace", replace)
        ran(world)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    kept = Kept(world.inventory)
    last = kept.read_last()
    assert kept.read_open() is None, "all of it is done"
    assert last is not None
    assert {name for batch in last.batches for name in batch.nodes} == set(NAMES)
    shown = ran(world, "--dry-run", verb="rollback")
    assert "batch 3 of 3: head" in shown.output
    taken = ran(world, verb="rollback")
    assert taken.exit_code == 0, taken.output
    assert world.nodes("release") == dict.fromkeys(NAMES, OLD)
    assert "taken back already" in ran(world, verb="rollback").output


def test_a_record_of_an_older_toolkit_is_read(world: World) -> None:
    """As it was written before records had `back`."""
    assert ran(world, "--limit", "head,gpu1").exit_code == 0
    kept = Kept(world.inventory)
    data: dict[str, Any] = json.loads(kept.last.read_text())
    data.pop("back", None)
    kept.last.write_text(json.dumps(data))
    assert ran(world).exit_code == 0
    assert ran(world, verb="rollback").exit_code == 0
    assert world.nodes("release") == dict.fromkeys(NAMES, OLD)


@pytest.mark.parametrize("limit", ["head", "gpu1,head"])
def test_the_head_that_was_taken_back_before_stays_so_while_the_others_follow(world: World, limit: str) -> None:
    set_node(world, "head", driver="570.9.9")
    before = world.nodes("driver")
    assert ran(world).exit_code == 0
    assert ran(world, "--limit", limit, verb="rollback").exit_code == 0
    assert (world.nodes("release")["head"], world.nodes("driver")["head"]) == (OLD, "570.9.9")
    seen = len(world.consents)
    done = ran(world, verb="rollback")
    assert done.exit_code == 0, done.output
    assert world.nodes("release") == dict.fromkeys(NAMES, OLD)
    assert world.nodes("driver") == before
    for options in world.consents[seen:]:
        wanted = json.loads(options[1])
        assert (wanted["stack_releases"]["head"], wanted["stack_pins"]["head"]) == (
            OLD, {"nvidia_driver": {"version": "570.9.9"}},
        )  # fmt: skip


def test_the_head_keeps_the_new_release_while_others_go_back_before_it(world: World) -> None:
    assert ran(world).exit_code == 0
    assert ran(world, "--limit", "gpu1", verb="rollback").exit_code == 0
    assert world.nodes("release") == {**dict.fromkeys(NAMES, NEW), "gpu1": OLD}
    assert ran(world).exit_code == 0
    assert ran(world, "--limit", "head", verb="rollback").exit_code == 0
    assert ran(world, "--limit", "head,gpu1").exit_code == 0, "and the head goes on to it again"
    seen = len(world.consents)
    assert ran(world, "--limit", "gpu2", verb="rollback").exit_code == 0
    assert json.loads(world.consents[seen][1])["stack_releases"]["head"] == NEW
    assert ran(world, verb="rollback").exit_code == 0
    assert world.nodes("release") == dict.fromkeys(NAMES, OLD)


def test_a_head_whose_upgrade_after_its_rollback_did_not_come_to_it_stays_as_it_is(world: World) -> None:
    """An upgrade in place of a rollback, that is stopped before the head's batch and taken back."""
    assert ran(world).exit_code == 0
    assert ran(world, "--limit", "head", verb="rollback").exit_code == 0
    assert ran(world, "--budget", "0", verb="rollback").exit_code == 3
    assert ran(world, "--budget", "0").exit_code == 3
    assert world.nodes("release") == {**dict.fromkeys(NAMES, NEW), "head": OLD}
    done = ran(world, verb="rollback")
    assert done.exit_code == 0, done.output
    assert world.nodes("release") == dict.fromkeys(NAMES, OLD)
    again = ran(world, verb="rollback").output
    assert "taken back already" in again
    assert "the upgrade before it" not in again, "the same nodes of the same upgrade"


def test_a_node_that_a_rollback_left_out_is_taken_back_by_the_next_one_as_printed(world: World) -> None:
    assert ran(world).exit_code == 0
    world.left["bad"] = "gpu2"
    assert ran(world, verb="rollback").exit_code == 1
    done = ran(world, "--without", "gpu2", verb="rollback")
    assert done.exit_code == 0, done.output
    assert "left out: gpu2, which stays drained; once it is repaired: toolkit rollback" in done.output
    world.left["bad"] = ""
    done = ran(world, verb="rollback")
    assert done.exit_code == 0, done.output
    assert world.nodes("release") == dict.fromkeys(NAMES, OLD)
    assert set(world.nodes("drained").values()) == {""}
    assert Kept(world.inventory).read_last() is None
