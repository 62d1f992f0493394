"""Keys that a site shares, exchanged: on every node, or on none; killed before every single request."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support import answers
from tests.support.lease_texts import slurm_job
from tests.support.rotation_world import ADDRESS, OLD, Killed, World
from toolkit.errors import UsageFault
from toolkit.rotate import holding, there
from toolkit.rotate.nodes import RotationFault


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def whole(world: World) -> None:
    """One key on all nodes, in use and in its place; jobs start, and nothing is left."""
    assert len(world.keys()) == 1, world.keys()
    assert world.partitions == {"all": "UP", "old": "DOWN", "v100": "UP"}
    assert world.open() == []


def test_all_nodes_have_another_key_and_jobs_start_again(world: World) -> None:
    done = world.munge().go()
    assert (done.state, done.running, done.lost) == ("done", 1, {})
    whole(world)
    assert world.keys() != {OLD}
    (key,) = world.keys()
    assert len(key) == 129, "as role slurm writes it, with a line's end: a node that comes later gets the same bytes"
    assert world.path("gpu1", there.MUNGE_KEY).stat().st_mode & 0o777 == 0o400
    assert world.path("head", f"{there.SLURM}/munge.key").stat().st_mode & 0o777 == 0o600
    ledger = json.loads(world.path("gpu1", "/var/lib/elastic-ai/ledger/slurm.files.json").read_text())
    entry = ledger["files"][there.MUNGE_KEY]["sha256"]
    assert entry == hashlib.sha256(key.encode()).hexdigest(), "a teardown takes it for the role's"


def test_a_plan_changes_nothing_and_names_every_node(world: World) -> None:
    plan = world.munge().plan()
    assert plan.state == "planned"
    assert set(plan.changes) == {"head", "gpu1", "gpu2", "client1"}
    assert f"{there.SLURM}/munge.key" in plan.changes["head"]
    assert plan.running == 1
    assert world.keys() == {OLD}
    assert {verb for _, verb in world.log} == {"look", "seal", "unseal"}
    whole(world)


def test_jobs_wait_before_any_key_is_placed(world: World) -> None:
    seen = []
    placed = there.VERBS["place"]

    def place(asked: dict[str, object], root: Path) -> dict[str, object]:
        seen.append(dict(world.partitions))
        return placed(asked, root)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(there.VERBS, "place", place)
        world.munge().go()
    assert seen == [{"all": "DOWN", "old": "DOWN", "v100": "DOWN"}] * 4


@pytest.mark.parametrize("bad", ["silent", "deaf"])
def test_where_one_node_fails_all_have_the_old_key_again(world: World, bad: str) -> None:
    """One that goes away after the first look, and one whose munge keeps its key."""
    if bad == "deaf":
        world.deaf.add("gpu2")
        done = world.munge().go()
        assert done.state == "gone back"
        assert "gpu2: unmunge: Error: Invalid credential" in done.why
        assert world.keys() == {OLD}
        whole(world)
        return
    placed = there.VERBS["place"]

    def away(asked: dict[str, object], root: Path) -> dict[str, object]:
        world.silent.add("gpu2")
        return placed(asked, root)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(there.VERBS, "place", away)
        done = world.munge().go()
    assert done.state == "open"
    assert done.left == {"gpu2": "no route to host"}
    assert world.partitions["all"] == "UP", "the others work meanwhile"
    assert {world.key(name) for name in ("head", "gpu1", "client1")} == {OLD}
    world.silent.clear()
    assert world.munge().go().state == "gone back"
    whole(world)


def test_a_node_that_is_away_is_refused_before_anything_or_left_out(world: World) -> None:
    world.silent.add("gpu2")
    with pytest.raises(UsageFault, match="gpu2: no route to host; nothing was changed"):
        world.munge().go()
    whole(world)
    assert world.munge("gpu2").go().state == "done"
    assert world.key("gpu2") == OLD
    assert world.key("gpu1") == world.key("head") != OLD


def test_a_node_with_another_key_is_refused(world: World) -> None:
    world.path("gpu1", there.MUNGE_KEY).write_text("another")
    with pytest.raises(UsageFault, match="gpu1: it has another munge key than the head"):
        world.munge().go()


def test_a_job_that_does_not_come_to_rest_stops_it_with_nothing_changed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.jobs = slurm_job(9, state="CONFIGURING")
    monkeypatch.setattr(holding, "SETTLED_S", -1.0)
    done = world.munge().go()
    assert (done.state, world.keys()) == ("gone back", {OLD})
    assert "job 9 is starting or ending" in done.why
    whole(world)


@pytest.mark.parametrize("back", [False, True])
def test_killed_before_any_request_the_next_call_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    plain = World(tmp_path / "plain", monkeypatch)
    plain.munge().go()
    for request in range(1, plain.asked + 1):
        world = World(tmp_path / f"{request}", monkeypatch)
        world.kill_at = request
        with pytest.raises(Killed):
            world.munge().go()
        world.kill_at = -1
        begun = bool(world.open())
        if begun:
            assert world.munge().plan().state == "open"
        done = world.munge().go(back)
        wanted = "done" if not back else "gone back" if begun else "nothing to do"
        assert done.state == wanted, f"killed before request {request}"
        if wanted == "gone back":
            assert world.keys() == {OLD}
        whole(world)


def test_killed_while_it_goes_back_it_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = World(tmp_path / "plain", monkeypatch)
    plain.deaf.add("gpu2")
    plain.munge().go()
    for request in range(plain.asked - 30, plain.asked + 1):
        world = World(tmp_path / f"{request}", monkeypatch)
        world.deaf.add("gpu2")
        world.kill_at = request
        with pytest.raises(Killed):
            world.munge().go()
        world.kill_at = -1
        world.munge().go()
        assert world.keys() == {OLD}
        whole(world)


def test_ctrl_c_goes_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    placed, calls = there.VERBS["place"], []

    def interrupted(asked: dict[str, object], root: Path) -> dict[str, object]:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return placed(asked, root)

    monkeypatch.setitem(there.VERBS, "place", interrupted)
    done = world.munge().go()
    assert (done.state, done.why, world.keys()) == ("gone back", "interrupted", {OLD})
    whole(world)


def test_a_job_that_ended_meanwhile_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    restarted = there.VERBS["restart"]

    def fails(asked: dict[str, object], root: Path) -> dict[str, object]:
        world.jobs = slurm_job(7, user="bob", state="NODE_FAIL")
        return restarted(asked, root)

    monkeypatch.setitem(there.VERBS, "restart", fails)
    assert world.munge().go().lost == {7: "NODE_FAIL"}


def test_the_registry_has_another_authority_and_nobody_is_shut_out_at_any_time(world: World) -> None:
    before, seen = world.authorities(), []

    def watched(name: str) -> None:
        real = there.VERBS[name]

        def done(asked: dict[str, object], root: Path) -> dict[str, object]:
            said = real(asked, root)
            seen.append({node: why for node, why in world.pulls().items() if why})
            return said

        patch.setitem(there.VERBS, name, done)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("place", "restart", "begin", "end"):
            watched(name)
        assert world.registry().go().state == "done"
    assert len(seen) >= 10
    assert not any(seen), "every node pulls after each single change"
    assert len(world.authorities()) == 1
    assert world.authorities().isdisjoint(before)
    assert b"".join(world.authorities()).count(b"BEGIN CERTIFICATE") == 1, "the old authority is trusted no more"
    assert world.path("head", f"{there.REGISTRY}/ca.key").stat().st_mode & 0o777 == 0o600
    assert world.open() == []
    assert world.registry().go().state == "done", "and again"


def test_who_has_certificates_of_the_old_authority_does_not_get_in_afterwards(world: World) -> None:
    assert world.registry("gpu2").go().state == "done"
    assert {name: bool(why) for name, why in world.pulls().items()} == {"head": False, "gpu1": False, "gpu2": True}


@pytest.mark.parametrize("back", [False, True])
def test_a_registry_killed_before_any_request_is_ended_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    plain = World(tmp_path / "plain", monkeypatch)
    plain.registry().go()
    for request in range(1 + back, plain.asked + 1, 2):  # both together are all
        world = World(tmp_path / f"{request}", monkeypatch)
        before = world.authorities()
        world.kill_at = request
        with pytest.raises(Killed):
            world.registry().go()
        world.kill_at = -1
        assert not any(world.pulls().values()), f"killed before request {request}: nobody pulls"
        begun = world.open() != []
        ending = begun and json.loads(world.open()[0].joinpath("rotation.json").read_text())["step"] == "retire"
        if back and ending:  # the old authority may be gone on a node already
            with pytest.raises(UsageFault, match="run it without --back"):
                world.registry().go(back)
        done = world.registry().go(back and not ending)
        assert done.state in ("done", "gone back" if begun else "nothing to do")
        if done.state != "done":
            assert world.authorities() == before
        assert not any(world.pulls().values())
        assert len(world.authorities()) == 1
        assert world.open() == []


def test_a_site_without_a_registry_has_nothing_to_exchange(world: World) -> None:
    world.path("head", there.CONFIGURATION).unlink()
    assert world.registry().plan().state == world.registry().go().state == "nothing to do"


def test_a_node_that_does_not_reach_the_registry_is_refused(world: World) -> None:
    world.path("gpu1", f"{there.CLIENTS}/{ADDRESS}/client.cert").write_text("no certificate")
    with pytest.raises(UsageFault, match=r"the registry is not reached: gpu1: .*nothing was changed"):
        world.registry().go()


def test_a_head_that_goes_away_is_one_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(asked: dict[str, object], root: Path) -> dict[str, object]:
        raise there.Refusal("no space left on device")

    monkeypatch.setitem(there.VERBS, "note", gone)
    with pytest.raises(RotationFault, match="head: no space left on device; run the same command again"):
        world.munge().go()


def test_no_key_is_in_an_argument_or_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    work = world.munge()
    work.say = said.append
    done = work.go()
    (key,) = world.keys()
    text = json.dumps([said, done.document()])
    assert key.strip() not in text
    assert OLD.strip() not in text


def test_the_command_prints_what_is_done(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support import rotation_world
    from toolkit import inventory
    from toolkit.cli import cli
    from toolkit.node import checks

    site = type("Site", (), {"topology": rotation_world.topology()})
    monkeypatch.setattr(inventory, "read_site", lambda _path: site)
    monkeypatch.setattr(checks, "refuse_joined", lambda *_given: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    asked = ["rotate", "-i", str(tmp_path)]
    planned = CliRunner().invoke(cli, [*asked, "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert "gpu1        /etc/munge/munge.key, restarts munge" in planned.output
    assert "munge-key: nothing was changed" in planned.output
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 0, done.output
    assert "1 job went on" in done.output
    assert "registry: done" in done.output
    world.deaf.add("gpu1")
    failed = CliRunner().invoke(cli, [*asked, "munge-key", "--json"])
    assert failed.exit_code == 1
    assert answers.check(failed.stdout, "rotate")["rotations"][0]["state"] == "gone back"
