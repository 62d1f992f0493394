"""Leases that are there: listed, extended, released; Slurm's answers are constructed (lease_texts)."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from tests.support.lease_host import FakeClock, FakeHost, FakeSlurm
from tests.support.lease_texts import COMMENT, jobs_of, slurm_job
from toolkit.commands import lease as commands
from toolkit.lease import LeaseError
from toolkit.lease.client import endings, manage, running
from toolkit.lease.jobs.slurm_text import SlurmError


def test_a_lease_of_another_is_not_released() -> None:
    class Denies(FakeSlurm):
        def cancel(self, lease: int) -> None:
            raise SlurmError("Kill job error on job id 41: Access/permission denied")

    (lease,) = manage.leases(jobs_of(slurm_job()))
    with pytest.raises(LeaseError, match="lease 41 was not released: it is alice's"):
        manage.release(FakeHost(slurm=Denies()), lease)


def test_an_administrators_end_is_in_the_record_and_may_have_a_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    (lease,) = manage.leases(jobs_of(slurm_job()))  # alice's, and we are not
    host = FakeHost()
    manage.release(host, lease)
    note = 'AdminComment={"elastic-ai-lease-ended": "the administrator ended it"}'
    assert (host.slurm.commands, host.slurm.cancelled) == ([["scontrol", "update", "JobId=41", note]], [41])
    host = FakeHost()
    manage.release(host, lease, 120)
    assert host.slurm.commands == [["scontrol", "update", "JobId=41", w] for w in (note, "EndTime=now+120")]
    assert host.slurm.cancelled == []
    host = FakeHost(slurm=FakeSlurm(answers={"scontrol": (1, "Access/permission denied for job 41")}))
    with pytest.raises(LeaseError, match="lease 41 was not released: it is alice's"):
        manage.release(host, lease, 120)
    monkeypatch.setattr(manage, "me", lambda: "alice")
    with pytest.raises(LeaseError, match="lease 41 was not released: only an administrator gives notice"):
        manage.release(host, lease, 120)


def test_leases_are_listed_with_all_their_jobs() -> None:
    parts = slurm_job(43, array=41, task=0) + slurm_job(42, array=41, task=1, gres="shard:v100:70(IDX:3)")
    other = slurm_job(50, name="train", comment=None)
    (item,) = manage.leases(jobs_of(parts + other))
    assert (item.id, item.what, item.where, item.state) == (41, "1/2 GPU", "gpu1:2-3", "running")


def test_a_lease_that_lost_a_part_still_has_the_others_and_can_be_released() -> None:
    parts = slurm_job(43, array=41, task=0, state="PREEMPTED") + slurm_job(42, array=41, task=1, gres="gpu:1(IDX:3)")
    (item,) = manage.leases(jobs_of(parts))
    assert (item.state, item.where) == ("in part", "gpu1:3")
    assert item.over is not None
    assert "higher priority" in endings.ended_words(item.over)
    (item,) = manage.leases(jobs_of(slurm_job(43, array=41, state="PREEMPTED")))
    assert item.state == "ended"


def test_a_part_that_slurm_has_forgotten_is_still_lost() -> None:
    """Slurm forgets a job some minutes after its end: the rest must not pass for the whole."""
    two = COMMENT.replace('"memory_mib":0', '"memory_mib":0,"parts":2')
    jobs = slurm_job(42, array=41, task=1, comment=two)
    (item,) = manage.leases(jobs_of(jobs))
    assert (item.state, item.lost) == ("in part", 1)
    with pytest.raises(LeaseError, match="lease 41 has ended in part: 1 of its 2 parts"):
        running.run_on(FakeHost(slurm=FakeSlurm(said=[jobs])), 41, ["true"], print)
    waiting = jobs_of(slurm_job(41, array=41, comment=two, state="PENDING", gres=""))
    assert manage.leases(waiting)[0].state == "waiting"


def test_what_is_left_of_a_lease_is_listed_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is still counted as its owner's, so he has to see it and to get rid of it."""
    parts = slurm_job(43, array=41, task=0, state="NODE_FAIL") + slurm_job(42, array=41, task=1, gres="gpu:1(IDX:3)")
    host = FakeHost(slurm=FakeSlurm(said=[parts]))
    monkeypatch.setattr(commands, "this_host", lambda: host)
    monkeypatch.setattr(commands, "on_head", lambda *_: False)
    monkeypatch.setattr(manage, "me", lambda: "alice")
    run = CliRunner().invoke
    rows = run(commands.lease, ["list"], catch_exceptions=False).output.splitlines()
    assert re.split("  +", rows[1])[:5] == ["41", "alice", "1/2 GPU", "gpu1:3", "in part"]
    assert "gpu1 failed" in run(commands.lease, ["show", "41"], catch_exceptions=False).output
    for words in (["41"], ["--all"]):
        host.slurm.cancelled.clear()
        assert run(commands.lease, ["release", *words], catch_exceptions=False).output == "lease 41: released\n"
        assert host.slurm.cancelled == [41]


def test_only_its_owner_extends_a_lease_and_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = "PartitionName=v100\n   AllowGroups=ALL QoS=N/A\n   MaxNodes=UNLIMITED MaxTime=04:00:00 MinNodes=0\n"
    answers = {"scontrol show partition": partition, "sacctmgr": "02:00:00\n"}
    host = FakeHost(slurm=FakeSlurm(said=[slurm_job()], answers=answers))
    monkeypatch.setenv("SUDO_UID", "1001")
    assert manage.extend_as_root(["41", "60"], host) == "lease 41: 2 hours in all"
    assert host.slurm.commands[-1] == ["scontrol", "update", "JobId=41", "TimeLimit=120"]
    with pytest.raises(LeaseError, match=r"the pool allows 2 hours in all, this would be 2\.02"):
        manage.extend_as_root(["41", "61"], host)
    monkeypatch.setenv("SUDO_UID", "1002")
    with pytest.raises(LeaseError, match="lease 41 is alice's"):
        manage.extend_as_root(["41", "60"], host)
    for argv in ([], ["41"], ["41", "-1"], ["41; id", "1"], ["41", "1", "2"]):
        with pytest.raises(LeaseError, match="usage"):
            manage.extend_as_root(argv, host)


def test_no_lease_is_extended_into_a_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server is promised to others from then on; whoever has a reservation that has begun is in it."""
    now = 1795273200
    line = "ReservationName=class StartTime={} EndTime={} Duration=04:00:00 Nodes={} NodeCnt=1 Users=(null)\n"
    answers = {"scontrol show partition": "PartitionName=v100 MaxTime=UNLIMITED\n"}
    slurm_ = FakeSlurm(said=[slurm_job(start_time=now, end=now + 3600)], answers=answers)
    host = FakeHost(slurm=slurm_, clock=FakeClock(wall=lambda: now))
    monkeypatch.setenv("SUDO_UID", "1001")
    slurm_.answers["scontrol --oneliner"] = "No reservations in the system\n"
    assert manage.extend_as_root(["41", "60"], host) == "lease 41: 2 hours in all"
    slurm_.answers["scontrol --oneliner"] = (
        line.format(now + 7000, now + 9000, "gpu[1-2]")
        + line.format(now + 10, now + 20, "gpu2")
        + line.format(now - 10, now + 9000, "gpu1")
    )
    assert manage.extend_as_root(["41", "30"], host) == "lease 41: 1.5 hours in all"
    with pytest.raises(LeaseError, match=r"lease 41: its server is reserved from (\w{3} )?\d\d:\d\d$"):
        manage.extend_as_root(["41", "60"], host)
    monkeypatch.setenv("SUDO_UID", "0")
    assert manage.extend_as_root(["41", "60"], host) == "lease 41: 2 hours in all"  # root may
