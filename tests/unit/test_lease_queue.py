"""The queue, when GPUs could be had, and what a user may have; Slurm's answers are constructed (lease_texts)."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.lease_host import FakeClock, FakeSlurm
from tests.support.lease_texts import START, jobs_of, node_text, slurm_job
from toolkit.commands import gpus as command
from toolkit.commands import gpus_queue
from toolkit.commands.gpus_queue import View
from toolkit.lease import LeaseError, pool
from toolkit.lease.fraction import GpuPart
from toolkit.lease.jobs import slurm as slurm_commands
from toolkit.lease.jobs.slurm import Pending
from toolkit.lease.jobs.slurm_text import parse_nodes
from toolkit.lease.lease_request import LeaseRequest
from toolkit.lease.machine.host import Host
from toolkit.lease.pool_file import PoolDescription
from toolkit.lease.queue.limits import GpuClass, limits
from toolkit.lease.queue.outlook import Outlook, later, outlook
from toolkit.lease.queue.waiting_list import waiting

POOL = node_text("gpu1", "IDLE") + node_text("gpu2", "IDLE")  # four GPUs of 140 parts each
NODES = parse_nodes(POOL)
HALF, WHOLE = GpuPart(70, 140), GpuPart(140, 140)
HOUR = 3600.0


def full(job: int, node: str, end: float | None, gres: str = "gpu:v100:4(IDX:0-3)", **more: Any) -> list[Any]:
    minutes = None if end is None else 60
    return slurm_job(job, node=node, gres=gres, end=None if end is None else round(end), minutes=minutes, **more)


def when(request: LeaseRequest, jobs: list[Any], now: float = START) -> Outlook:
    return outlook(request, pool.gpus_of(NODES, jobs_of(jobs), PoolDescription()), now)


def test_what_is_free_can_be_had_now() -> None:
    assert when(LeaseRequest(4, WHOLE), []) == Outlook(START, ("gpu1",))
    assert when(LeaseRequest(6, WHOLE), []).servers == ("gpu1", "gpu2")
    assert when(LeaseRequest(1, WHOLE), full(7, "gpu1", START + HOUR)) == Outlook(START, ("gpu2",))


def test_a_request_that_has_to_wait_starts_with_the_end_that_makes_room() -> None:
    busy = full(7, "gpu1", START + HOUR) + full(8, "gpu2", START + 2 * HOUR)
    assert when(LeaseRequest(1, WHOLE), busy) == Outlook(START + HOUR, ("gpu1",), (7,))
    assert when(LeaseRequest(5, WHOLE), busy) == Outlook(START + 2 * HOUR, ("gpu1", "gpu2"), (7, 8))


def test_parts_fit_beside_parts() -> None:
    beside = full(7, "gpu1", START + HOUR, "shard:v100:70(IDX:2)") + full(8, "gpu2", None)
    assert when(LeaseRequest(7, HALF), beside).at == START  # three whole GPUs, and half of the fourth
    assert when(LeaseRequest(8, HALF), beside).at == START + HOUR


def test_apart_needs_a_server_for_each() -> None:
    busy = full(8, "gpu2", START + HOUR)
    assert when(LeaseRequest(2, HALF, apart=True), busy) == Outlook(START + HOUR, ("gpu1", "gpu2"), (8,))
    assert when(LeaseRequest(2, HALF), busy).at == START


def test_a_program_on_the_server_needs_its_gpus_on_one() -> None:
    two_left = full(7, "gpu1", START + HOUR, "gpu:v100:2(IDX:0-1)") + full(8, "gpu2", None, "gpu:v100:2(IDX:0-1)")
    there = LeaseRequest(4, WHOLE, where="server")
    assert when(there, two_left) == Outlook(START + HOUR, ("gpu1",), (7,))


def test_what_has_no_end_and_a_server_that_takes_no_work_give_no_date() -> None:
    assert when(LeaseRequest(8, WHOLE), full(7, "gpu1", None)) == Outlook(None)
    drained = parse_nodes(node_text("gpu1", "IDLE+DRAIN") + node_text("gpu2", "IDLE"))
    found = outlook(LeaseRequest(5, WHOLE), pool.gpus_of(drained, [], PoolDescription()), START)
    assert found == Outlook(None)


def test_the_schedulers_later_estimate_counts() -> None:
    here = Outlook(START, ("gpu1",))
    assert later(here, START + 600).at == START + 600
    assert later(here, START + 5) == here  # its rounds
    assert later(here, START - 60) == here
    assert later(here, None) == here
    assert later(Outlook(None), START).at is None


def queued(*order: Pending, jobs: list[Any]) -> FakeSlurm:
    return FakeSlurm(queue=list(order), said=[jobs], node_text=POOL)


def pending(job: int, user: str = "alice", **more: Any) -> list[Any]:
    return slurm_job(job, gres="", state="PENDING", user=user, end=None, **more)


def test_the_queue_is_in_slurms_order_and_says_what_each_waits_for() -> None:
    jobs = pending(41) + pending(42, user="bob", name="train", comment="") + slurm_job(43)
    slurm = queued(Pending(42, START + 60, "Priority"), Pending(41, None, "Resources"), jobs=jobs)
    found = waiting(Host(slurm=slurm), jobs_of(jobs))
    assert [(one.place, one.lease, one.user, one.what, one.expected, one.why) for one in found] == [
        (1, 42, "bob", "", START + 60, "Priority"),
        (2, 41, "alice", "1/2 GPU", None, "Resources"),
    ]
    assert found[0].since == START


def test_where_nobody_waits_slurm_is_not_asked_again(monkeypatch: Any) -> None:
    slurm = queued(jobs=[])
    monkeypatch.setattr(slurm, "pending", lambda: pytest.fail("asked"))
    assert waiting(Host(slurm=slurm), jobs_of(slurm_job())) == []


def answering(monkeypatch: Any, stdout: str, code: int = 0, stderr: str = "") -> None:
    done = CompletedProcess(["squeue"], code, stdout, stderr)
    monkeypatch.setattr(slurm_commands, "run", lambda *_, **__: done)


def test_squeues_rows_are_read_and_an_array_is_one(monkeypatch: Any) -> None:
    answering(monkeypatch, "42 1795273260 Priority\n41 N/A (null)\n42 N/A Priority\n")
    assert slurm_commands.pending() == [Pending(42, 1795273260.0, "Priority"), Pending(41, None, "(null)")]
    assert slurm_commands.turn(41).place == 2
    assert slurm_commands.turn(7).place is None


@pytest.mark.parametrize("line", ["what?", "x N/A Resources", "41 N/A"])
def test_an_answer_that_cannot_be_read_is_refused(monkeypatch: Any, line: str) -> None:
    answering(monkeypatch, line)
    with pytest.raises(LeaseError, match="squeue"):
        slurm_commands.pending()


def test_a_controller_that_is_away_is_reported(monkeypatch: Any) -> None:
    answering(monkeypatch, "", 1, "Unable to contact slurm controller")
    with pytest.raises(LeaseError, match="does not answer"):
        slurm_commands.pending()
    assert slurm_commands.turn(41).place is None


QOS = (
    "normal|0||||||\n"
    "research|100|billing=1120|billing=350|1000|1-00:00:00|teaching\n"
    "teaching|0||billing=20|10|04:00:00|\n"
)
PARTITIONS = (
    "PartitionName=v100 AllowQos=normal,research,teaching MaxTime=UNLIMITED Nodes=gpu1\n"
    "PartitionName=h100 AllowQos=normal,research MaxTime=08:00:00 Nodes=gpu2\n"
    "PartitionName=all AllowQos=ALL MaxTime=UNLIMITED Nodes=gpu[1-2]\n"
)
ANSWERS: dict[str, Any] = {
    "sacctmgr --noheader --parsable2 show user": "alice|research\n",
    "sacctmgr --noheader --parsable2 show assoc": (
        "teaching|alice|teaching\nresearch|alice|research\nresearch||research\n"
    ),
    "sacctmgr --noheader --parsable2 show qos": QOS.replace("||||||", "|||||"),
    "scontrol --oneliner show partition": PARTITIONS,
    "scontrol show config": "AccountingStorageEnforce = associations,limits,qos\n",
}


def test_what_a_user_may_have_with_what_is_in_use() -> None:
    jobs = jobs_of(
        slurm_job(41, account="research", gres="shard:v100:70(IDX:2)")
        + slurm_job(42, account="research", user="bob", uid=2, gres="gpu:v100:2(IDX:0-1)")
        + slurm_job(43, account="teaching", gres="", state="PENDING", end=None)
    )
    first, second = limits(Host(slurm=FakeSlurm(answers=ANSWERS)), "alice", NODES, jobs)
    assert (first.name, first.default, second.name, second.default) == ("research", True, "teaching", False)
    assert (first.gpus, first.used) == (Fraction(5, 2), Fraction(1, 2))
    assert (first.together, first.used_together) == (8, Fraction(5, 2))
    assert (first.longest_s, first.jobs, first.jobs_now, first.priority) == (86_400, 1000, 1, 100)
    assert first.preempts == ("teaching",)
    assert first.classes == (GpuClass("v100", None), GpuClass("h100", 28_800))
    assert (second.gpus, second.together, second.jobs_now) == (Fraction(1, 7), None, 1)
    assert second.classes == (GpuClass("v100", None),)


def shown(monkeypatch: Any, tmp_path: Path, slurm: FakeSlurm, *words: str, user: str = "alice") -> Any:
    monkeypatch.setattr(command, "on_head", lambda *_: False)
    monkeypatch.setattr(gpus_queue, "me", lambda: user)
    clock = FakeClock()
    monkeypatch.setattr(command, "this_host", lambda: Host(slurm=slurm, clock=clock, pool_conf=tmp_path / "pool.json"))
    return CliRunner().invoke(command.gpus, list(words))


def test_the_command_shows_limits(monkeypatch: Any, tmp_path: Path) -> None:
    slurm = FakeSlurm(answers=ANSWERS, node_text=POOL, said=[slurm_job(account="research")])
    said = shown(monkeypatch, tmp_path, slurm, "--limits").output
    assert "research (yours if you name none)" in said
    assert "GPUs at a time       2.5, you have 0.5" in said
    assert "v100, h100 (at most 8 hours)" in said
    assert "priority             100; may take GPUs back from teaching" in said
    data = json.loads(shown(monkeypatch, tmp_path, slurm, "--limits", "--json").output)
    assert data["classes"][1]["gpus"] == pytest.approx(1 / 7)


def test_who_is_in_no_class_hears_it_and_a_pool_without_classes_has_no_limits(monkeypatch: Any, tmp_path: Path) -> None:
    none = {
        **ANSWERS,
        "sacctmgr --noheader --parsable2 show assoc": "",
        "sacctmgr --noheader --parsable2 show user": "",
    }
    done = shown(monkeypatch, tmp_path, FakeSlurm(answers=none, node_text=POOL), "--limits")
    assert "alice is in no class of users" in str(done.exception)
    free = {"scontrol show config": "AccountingStorageEnforce = none\n"}
    said = shown(monkeypatch, tmp_path, FakeSlurm(answers=free, node_text=POOL), "--limits").output
    assert said == "alice: no limits; the pool has no classes of users\n"


def test_the_pool_is_shown_with_its_queue(monkeypatch: Any, tmp_path: Path) -> None:
    said = shown(monkeypatch, tmp_path, queued(Pending(41, None, "Resources"), jobs=pending(41))).output.splitlines()
    assert said[-2].split()[:3] == ["PLACE", "USER", "WAITS"]
    assert said[-1].split()[:4] == ["1", "alice", "1/2", "GPU"]
    assert "not known" in said[-1]
    slurm = queued(Pending(41, None, "Resources"), jobs=pending(41))
    data = json.loads(shown(monkeypatch, tmp_path, slurm, "--json").output)
    assert data["waiting"][0]["what"] == "1/2 GPU"
    assert data["waiting"][0]["expected"] is None


def test_watch_shows_it_again_until_it_is_interrupted(monkeypatch: Any, tmp_path: Path) -> None:
    class Interrupted(FakeClock):
        def sleep(self, seconds: float) -> None:
            self.slept = getattr(self, "slept", 0) + 1
            if self.slept == 3:
                raise KeyboardInterrupt

    slurm = queued(jobs=[])
    monkeypatch.setattr(command, "on_head", lambda *_: False)
    clock = Interrupted()
    monkeypatch.setattr(command, "this_host", lambda: Host(slurm=slurm, clock=clock, pool_conf=tmp_path / "pool.json"))
    done = CliRunner().invoke(command.gpus, ["--watch"])
    assert done.output.count("SERVER") == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--when", "--limits"], "give one of them"),
        (["--watch", "--json"], "--watch prints text"),
        (["-n", "2"], "go with --when"),
        (["--when", "-p", "2"], "at most 1"),
        (["--when", "-p", "1/2", "-m", "5"], "give one of them"),
    ],
)
def test_what_contradicts_itself_is_refused(monkeypatch: Any, tmp_path: Path, words: list[str], told: str) -> None:
    done = shown(monkeypatch, tmp_path, queued(jobs=[]), *words)
    assert isinstance(done.exception, LeaseError)
    assert told in str(done.exception)


def test_the_head_is_asked_for_the_same_view() -> None:
    asked = View.checked(
        count=2, part="1/2", memory_mib=None, apart=True, servers=None, gpu_class="v100", seconds=90, engine="",
        up_to=None, when=True, as_json=True,
    )  # fmt: skip
    assert asked.words() == [
        "gpus", "--when", "--gpus", "2", "--part", "1/2", "--class", "v100", "--apart", "--time", "90s", "--json",
    ]  # fmt: skip


@pytest.mark.parametrize("more_s", [0, 7200])
def test_when_is_answered_without_asking_for_anything(monkeypatch: Any, tmp_path: Path, more_s: int) -> None:
    (tmp_path / "pool.json").write_text(json.dumps({"servers": {"gpu1": {"address": "127.0.0.1"}}}))
    start = round(FakeClock().time()) + more_s
    told = (0, f"sbatch: Job 9 to start at {start} using 2 processors on nodes gpu1 in partition v100")
    slurm = FakeSlurm(answers={"sbatch --test-only": told}, node_text=POOL, said=[[]])
    data = json.loads(shown(monkeypatch, tmp_path, slurm, "--when", "-n", "2", "--json").output)
    assert data | {"start": ""} == {
        "schema": "elastic-ai/gpus-when/1", "what": "2 GPUs", "start": "", "now": not more_s, "servers": ["gpu1"],
        "after": [], "waiting": 0,
    }  # fmt: skip
    said = shown(monkeypatch, tmp_path, slurm, "--when", "-n", "2").output
    assert said.startswith("2 GPUs: ")
    assert said.startswith("2 GPUs: now, on gpu1") is not bool(more_s)
    assert slurm.submitted == []


def test_what_the_policy_refuses_is_refused_in_a_sentence(monkeypatch: Any, tmp_path: Path) -> None:
    (tmp_path / "pool.json").write_text(json.dumps({"servers": {"gpu1": {"address": "127.0.0.1"}}}))
    refusal = (1, "allocation failure: Invalid account or account/partition combination specified")
    slurm = FakeSlurm(answers={"sbatch --test-only": refusal}, node_text=POOL, said=[[]])
    done = shown(monkeypatch, tmp_path, slurm, "--when", "--class", "v100")
    assert "class v100: you may not use it" in str(done.exception)
