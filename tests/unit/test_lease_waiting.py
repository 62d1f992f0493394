"""A lease that waits for its turn."""

from __future__ import annotations

import pytest

from tests.support.lease_host import FakeClock, FakeHost, FakeSlurm
from tests.support.lease_texts import slurm_job
from toolkit.lease import Exit, LeaseError
from toolkit.lease.client import waiting
from toolkit.lease.jobs.job_comment import ended_text
from toolkit.lease.jobs.slurm_text import JobState


def test_the_wait_says_what_it_waits_for_and_why_it_ended() -> None:
    pending = slurm_job(state="PENDING", gres="")
    texts = [pending, pending, slurm_job(state="CONFIGURING"), slurm_job()]
    queue = FakeSlurm(said=texts, queue_place=3, start="2026-11-21 16:00:00")
    told: list[str] = []
    (job,) = waiting.wait(FakeHost(slurm=queue, clock=FakeClock(step_s=2)), 41, "1/2 GPU", told.append)
    assert job.state == "RUNNING"
    assert told == ["lease 41: waits for 1/2 GPU, place 3 in the queue, expected 2026-11-21 16:00:00"]
    ended = slurm_job(state="CANCELLED", admin_comment=ended_text("its client is gone"))
    for said, words in ((ended, "lease 41 has ended: its client is gone"), ([], "lease 41")):
        with pytest.raises(LeaseError, match=words) as over:
            waiting.wait(FakeHost(slurm=FakeSlurm(said=[said])), 41, "", told.append)
        assert over.value.code == Exit.RETRY


def test_a_controller_that_starts_again_costs_nobody_his_place() -> None:
    pending = slurm_job(state="PENDING", gres="")
    host = FakeHost(slurm=FakeSlurm(said=[pending, slurm_job()], queue_place=3, away=20), clock=FakeClock())
    told: list[str] = []
    assert waiting.wait(host, 41, "1/2 GPU", told.append)[0].state == "RUNNING"
    assert told[0] == "lease 41: Slurm does not answer: Unable to contact slurm controller; it keeps its place"
    gone = FakeHost(slurm=FakeSlurm(said=[pending], away=10**6), clock=FakeClock())
    with pytest.raises(LeaseError, match="Unable to contact"):
        waiting.wait(gone, 41, "1/2 GPU", told.append)
    assert waiting.AWAY_S < gone.clock.now < waiting.AWAY_S + waiting.POLL_FAR_S


def test_who_is_far_back_in_the_queue_asks_seldom() -> None:
    class InAnHour(FakeSlurm):
        def next_states(self, lease: int) -> list[JobState]:
            if clock.now > 3600:
                self.said = [slurm_job()]
            return super().next_states(lease)

    pending, clock = slurm_job(state="PENDING", gres=""), FakeClock()
    host = FakeHost(slurm=InAnHour(said=[pending], queue_place=300), clock=clock)
    waiting.wait(host, 41, "1/2 GPU", lambda _words: None)
    questions = 2 * (host.slurm.stated + host.slurm.turns)  # of Slurm 22.05's squeue for each command (sdiag)
    assert questions / (clock.now / 60) <= 4  # a minute
    clock = FakeClock()  # now next in the queue
    host = FakeHost(slurm=InAnHour(said=[pending], queue_place=1), clock=clock)
    waiting.wait(host, 41, "1/2 GPU", lambda _words: None)
    assert host.slurm.stated > 1700


def test_who_is_in_a_queue_that_moves_knows_soon_that_he_runs() -> None:
    """Far back, after a long wait, a place a second: asked at the pace of the queue, and not once in 40 s."""

    class Moves(FakeSlurm):
        def next_states(self, lease: int) -> list[JobState]:
            self.queue_place = min(50, int(350 - clock.now)) or None
            if clock.now >= 350:
                self.said = [slurm_job()]
            return super().next_states(lease)

    pending, clock = slurm_job(state="PENDING", gres=""), FakeClock()
    waiting.wait(FakeHost(slurm=Moves(said=[pending], queue_place=50), clock=clock), 41, "1/2 GPU", lambda _words: None)
    assert clock.now - 350 <= 5


def test_who_has_room_is_not_kept_waiting_by_those_who_wait_for_other_gpus() -> None:
    """Slurm starts him in one of its next rounds, though his place is behind theirs."""

    class NextRound(FakeSlurm):
        def next_states(self, lease: int) -> list[JobState]:
            if clock.now > 6:
                self.said = [slurm_job()]
            return super().next_states(lease)

    pending, clock = slurm_job(state="PENDING", gres=""), FakeClock()
    host = FakeHost(slurm=NextRound(said=[pending], queue_place=51), clock=clock)
    waiting.wait(host, 41, "1/2 GPU", lambda _words: None)
    assert clock.now <= 6 + waiting.POLL_LAST_S


def test_a_start_that_failed_on_its_server_is_not_waited_for_again_and_again() -> None:
    """Slurm puts a job that it could not start (its user is unknown there) back into the queue, for ever."""
    for reason in ("BeginTime", "launch failed requeued held"):
        failed = slurm_job(state="PENDING", gres="", state_reason=reason, restart_cnt=1, uid=1042)
        with pytest.raises(waiting.HeldBack) as held:
            waiting.wait(FakeHost(slurm=FakeSlurm(said=[failed])), 41, "1 GPU", lambda _words: None)
        words = f"its server could not start it, and Slurm has put it back into the queue ({reason})"
        assert str(held.value).startswith(f"lease 41: {words}; is user alice (uid 1042) known there")
    later = slurm_job(state="PENDING", gres="", state_reason="BeginTime", restart_cnt=0)  # by the site's own policy
    host = FakeHost(slurm=FakeSlurm(said=[later, later, later, slurm_job()]))
    assert waiting.wait(host, 41, "1 GPU", lambda _words: None)[0].state == "RUNNING"


def test_of_several_jobs_that_ended_the_one_with_the_reason_is_heard() -> None:
    why = ended_text("user alice (uid 1042) is not known on gpu2")
    jobs = slurm_job(42, array=41, task=0, state="CANCELLED")
    jobs += slurm_job(41, array=41, task=1, state="CANCELLED", admin_comment=why)
    with pytest.raises(LeaseError, match=r"lease 41 has ended: user alice \(uid 1042\) is not known on gpu2$"):
        waiting.wait(FakeHost(slurm=FakeSlurm(said=[jobs])), 41, "2 GPUs", lambda _words: None, parts=2)


def test_a_lease_that_starts_in_part_only_is_not_waited_for() -> None:
    half = slurm_job(42, array=41, task=0) + slurm_job(41, array=41, task=1, state="PENDING", gres="")
    host = FakeHost(slurm=FakeSlurm(said=[half]))
    with pytest.raises(waiting.StartedInPart):
        waiting.wait(host, 41, "2 x 1/2 GPU", lambda _words: None, parts=2)
    assert host.clock.now > waiting.PART_S
