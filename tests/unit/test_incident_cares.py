"""`toolkit incidents` beside people, hanging servers, leases of days and files that are damaged."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support import gpu_health_case, site
from tests.support.incident_world import NAMES, World, begun
from toolkit.commands.incidents import incidents
from toolkit.errors import UsageFault
from toolkit.exits import Exit
from toolkit.incident import mending, watching
from toolkit.incident.state import Incident
from toolkit.lease.jobs.slurm_text import PoolNode
from validation.measures.gpu.health import GpuHealthFacts
from validation.model import Node


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def killed_before_its_drain(world: World, name: str) -> None:
    """The watch has written the incident, and was killed before its word to Slurm."""
    kept = watching.Kept(world.folder)
    faults = (watching.Fault(cure="reset", words="Xid 95 of 0000:1a:00.0: an uncontained memory error"),)
    kept.write(Incident(node=name, began=watching.now(), faults=faults))


def test_the_share_counts_when_a_killed_watch_left_the_drain_to_another_process(world: World) -> None:
    killed_before_its_drain(world, "gpu1")
    world.reasons |= {"gpu19": "fan", "gpu20": "fan"}
    assert world.mend("gpu1") == Exit.FAILED
    assert world.log == []
    assert "NOT drained, because --most allows no more: out of service 2 of 20 servers" in world.lines[-1]
    del world.reasons["gpu20"]
    watch = world.watch()
    watch.look()
    world.xid("gpu1", 95)
    watch.look()
    assert world.log == ["drain gpu1"], "it is not forgotten"


def test_the_share_counts_at_the_moment_of_the_drain(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have drained two more since the look began."""
    watch = world.watch()
    watch.look()
    world.xid("gpu1", 95)
    real, asked = world.nodes, [0]

    def nodes() -> Any:
        asked[0] += 1
        if asked[0] == 2:
            world.reasons.update(gpu19="fan", gpu20="fan")
        return real()

    monkeypatch.setattr(world, "nodes", nodes)
    assert watch.look() == []
    assert world.log == []


def test_the_share_goes_along_to_the_process_that_mends(world: World) -> None:
    for percent in (5.0, 14.1, 100 / 3):
        words = world.watch(most_percent=percent)._words("gpu1")
        assert float(words[words.index("--most") + 1]) == percent


@pytest.mark.parametrize(
    ("servers", "percent", "wanted"),
    [(100, 29.0, 29), (100, 57.0, 57), (100, 58.0, 58), (200, 14.5, 29), (1000, 14.1, 141), (20, 10.0, 2), (20, 9.9, 1),
     (5, 10.0, 1), (2, 1.0, 1), (1, 10.0, 1), (1, 100.0, 1), (3, 100.0, 3), (0, 100.0, 0)],
)  # fmt: skip
def test_the_share_is_exact_and_one_server_at_least(servers: int, percent: float, wanted: int) -> None:
    serving = PoolNode("gpu1", "IDLE", "", 4, "v100", 0)
    pool = {f"gpu{number}": serving for number in range(servers)}
    assert watching.allowed(pool, percent) == wanted
    if servers:
        out = replace(serving, state="IDLE+DRAIN", reason="fan")
        assert watching.allowed({**pool, "gpu0": out}, percent) == wanted - 1


def test_the_only_server_of_a_pool_is_drained_and_mended_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs fail on it anyway; drained they wait until it is back."""
    real = world.nodes
    monkeypatch.setattr(world, "nodes", lambda: {"gpu1": real()["gpu1"]})
    begun(world)
    assert world.log == ["drain gpu1"]
    assert world.mend("gpu1") == Exit.OK
    assert world.reasons == {}


def test_who_resumed_it_before_the_mending_began_is_not_overruled(world: World) -> None:
    begun(world)
    world.reasons.clear()
    world.log.clear()
    assert world.mend("gpu1") == Exit.FAILED
    assert "drain gpu1" not in world.log
    assert world.reasons == {}


@pytest.mark.parametrize("more", ["; fan is loud, leave it to me (alice)", " (alice has it)"])
def test_who_adds_words_to_the_reason_has_the_node(world: World, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(world)
    monkeypatch.setattr(mending, "wait_empty", lambda *_: world.reasons.update(gpu1=world.reasons["gpu1"] + more))
    assert world.mend("gpu1") == Exit.FAILED
    assert "somebody else has resumed or drained it meanwhile" in world.lines[-1]
    assert "reset" not in world.log
    assert world.reasons["gpu1"].endswith(more)


def test_what_slurm_writes_over_the_reason_of_a_node_that_restarts_is_ours(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world)
    world.reset_code = 255
    real = world.rebooted

    def rebooted(*given: Any) -> tuple[str, ...]:
        world.reasons["gpu1"] = "Node unexpectedly rebooted"
        return real(*given)

    monkeypatch.setattr(mending.playbooks, "run", rebooted)
    assert world.mend("gpu1") == Exit.OK
    assert world.reasons == {}


def test_a_lease_that_is_waited_for_longer_than_a_day_leads_to_no_loop(world: World) -> None:
    begun(world)
    assert world.mend("gpu1") == Exit.OK
    kept = watching.Kept(world.folder)
    last = kept.read("gpu1")
    assert last is not None
    days = (datetime.now(timezone.utc) - timedelta(days=3)).isoformat(timespec="seconds")
    kept.write(last.model_copy(update={"began": days}))
    begun(world)
    assert world.mend("gpu1") == Exit.FAILED
    assert "it was mended less than a day before" in world.lines[-1]


@pytest.mark.parametrize("said", ["nan", "inf", "0", "101"])
def test_a_share_that_is_none_is_refused(world: World, said: str) -> None:
    done = CliRunner().invoke(incidents, ["-i", str(world.folder), "--once", "--most", said])
    assert isinstance(done.exception, UsageFault) or done.exit_code == Exit.USAGE, done.output
    assert "--most" in f"{done.output}{done.exception}"


@pytest.mark.parametrize("text", ["[]", "{", '{"gpu1": 5}', "null", "[" * 100_000])
def test_a_memory_that_is_damaged_is_a_sentence(world: World, text: str) -> None:
    world.watch().look()
    (seen,) = (world.folder / "elastic-ai-toolkit").rglob("seen.json")
    seen.write_text(text)
    watch = world.watch()
    assert [line for line in world.lines if "seen.json: cannot be read" in line]
    watch.look()
    world.xid("gpu1", 95)
    watch.look()
    assert world.log == ["drain gpu1"]


def test_one_damaged_file_holds_up_nobody(world: World) -> None:
    watch = world.watch()
    watch.look()
    (seen,) = (world.folder / "elastic-ai-toolkit").rglob("seen.json")
    (seen.parent / "gpu1.json").write_text("")
    world.xid("gpu1", 95)
    world.xid("gpu2", 95)
    watch.look()
    assert world.log == ["drain gpu1", "drain gpu2"]
    assert len([line for line in world.lines if "gpu1.json: cannot be read" in line]) == 1
    assert (seen.parent / "gpu1.json.unreadable").exists()


def test_a_drain_of_which_nothing_is_on_record_is_reported(world: World) -> None:
    world.reasons["gpu4"] = "toolkit incidents: Xid 79 of 0000:1a:00.0: the GPU has fallen off the bus"
    watch = world.watch()
    watch.look()
    watch.look()
    (line,) = [line for line in world.lines if line.startswith("gpu4 is drained")]
    assert "nothing of it is on record here" in line
    assert world.log == []


def test_servers_that_hang_hold_up_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty of them, before the one that fails."""
    silent = [f"h{number}" for number in range(40)]
    lab = site.lab(("head", *silent, *NAMES))
    monkeypatch.setattr(watching, "read_site", lambda _: SimpleNamespace(topology=lab))
    world.said |= {name: gpu_health_case.facts() for name in silent}
    free, waiting, looks = threading.Event(), set[str](), [0]

    def read(node: Node) -> GpuHealthFacts | str:
        if node.name not in silent:
            return world.read(node)
        if looks[0]:
            waiting.add(node.name)
            free.wait(20)
            waiting.discard(node.name)
        return f"{node.name} did not answer within 25 s"

    watch = world.watch()
    watch.read = read
    watch.look()
    looks[0] = 1
    world.xid("gpu20", 95)
    try:
        watch.look()
        assert world.log == ["drain gpu20"]
        assert waiting, "the look has waited for them"
    finally:
        free.set()


def test_what_is_on_record_is_on_the_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        "validation.base.files.os.fsync", lambda handle: synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
    )
    killed_before_its_drain(world, "gpu1")
    assert synced[:2] == [".gpu1.json.part", "incidents"]
    (log,) = (world.folder / "elastic-ai-toolkit").rglob("log.jsonl")
    assert json.loads(log.read_text())["node"] == "gpu1"


def test_the_next_command_prints_where_each_incident_is(world: World) -> None:
    """One of a killed command, of which the fault has gone meanwhile, and one that waits for a person."""
    begun(world)
    world.well("gpu1")
    words = ["-i", str(world.folder), "--once", "--runs-dir", str(world.folder)]
    done = CliRunner().invoke(incidents, words)
    assert done.exit_code == Exit.FAILED, done.output
    assert "gpu1: Xid 95 of 0000:1a:00.0: an uncontained memory error; its incident of " in done.output
    assert " would go on (dry run) in drain" in done.output
    assert world.mend("gpu1", steps=("drain", "support")) == Exit.FAILED
    done = CliRunner().invoke(incidents, words)
    assert done.exit_code == Exit.FAILED, done.output
    assert "gpu1 stays drained: Xid 95 of " in done.output
    world.reasons.clear()
    assert CliRunner().invoke(incidents, words).exit_code == Exit.OK, "a person has resumed it"
