"""What `toolkit run` says between the start of a lease and that of its program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support import lease_forms
from tests.support.lease_host import FakeHost, FakeSlurm
from tests.support.lease_texts import START, slurm_job
from toolkit.lease import LeaseError
from toolkit.lease.client import ask, running
from toolkit.lease.endpoint import LeaseEndpoint
from toolkit.lease.fraction import GpuPart
from toolkit.lease.jobs.job_comment import ended_text
from toolkit.lease.jobs.slurm_text import SlurmError
from toolkit.lease.jobs.submission import JobGpus, Submission
from toolkit.lease.lease_request import LeaseRequest

ONE = Submission(LeaseRequest(1, GpuPart(140, 140)), JobGpus("gpu", 1), 1, ("10.0.0.2",), "client1")
TWO = Submission(LeaseRequest(2, GpuPart(70, 140)), JobGpus("shard", 70), 2, ("10.0.0.2",), "client1")


def served(node: str, *notes: str) -> LeaseEndpoint:
    return lease_forms.endpoint(node, address="10.0.0.1", devices=(lease_forms.leased_gpu(0, 70),), notes=notes)


def test_what_a_lease_is_not_stands_before_its_program_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that finds no kernels on its GPU may go on, without a word, on the processor."""
    kernels, part = "moves memory and runs no kernels", "1/7 of 256 MiB is 36.57 MiB: you get 36"
    ends = [served("gpu1", kernels, part), served("gpu2", kernels)]
    monkeypatch.setattr(running.ask, "obtain", lambda *_: (41, ends))
    told: list[str] = []

    def start(*_: Any) -> int:
        told.append("the program starts")
        return 3

    monkeypatch.setattr(running, "start_and_wait", start)
    host = FakeHost()
    assert running.run(host, TWO, ["true"], told.append) == 3
    assert told[1:] == [f"lease 41: {kernels}", f"lease 41: {part}", "the program starts"]
    assert host.slurm.cancelled == [41]


COMPLETING = SlurmError("srun: error: Unable to create step for job 41: Job/step already completing or completed")


def test_a_lease_taken_for_another_before_its_program_started_is_asked_for_again() -> None:
    taken = slurm_job(41, state="PREEMPTED", preempt_time=START)
    endpoint = replace(served("gpu1"), lease=43, job="43").text()
    jobs = [slurm_job(41), taken, slurm_job(42, state="PREEMPTED"), slurm_job(43)]
    host, told = FakeHost(slurm=FakeSlurm(said=jobs, files=[COMPLETING, endpoint])), list[str]()
    lease, _endpoints = ask.obtain(host, ONE, told.append)
    assert (lease, host.slurm.cancelled) == (43, [41, 42])
    why = "a job of higher priority needs its GPUs; it is released and requested again"
    assert told == [f"lease 41: {why}", f"lease 42: {why}"]


def test_what_ended_a_lease_before_its_program_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = slurm_job(41, state="CANCELLED", admin_comment=ended_text("the administrator ended it"))
    host = FakeHost(slurm=FakeSlurm(said=[slurm_job(41), ended], files=[COMPLETING]))
    with pytest.raises(LeaseError, match="lease 41 has ended: the administrator ended it"):
        ask.obtain(host, ONE, print)
    monkeypatch.setattr(running.ask, "obtain", lambda *_: (41, [served("gpu1")]))
    for said, words in (
        (ended, "the administrator ended it"),
        (slurm_job(41), "does not answer"),
        ([], "does not answer"),
    ):
        host = FakeHost(slurm=FakeSlurm(said=[said]))
        monkeypatch.setattr(
            running, "start_and_wait", lambda *_: (_ for _ in ()).throw(LeaseError("gpu1 does not answer"))
        )
        with pytest.raises(LeaseError, match=words):
            running.run(host, ONE, ["true"], lambda _words: None)
