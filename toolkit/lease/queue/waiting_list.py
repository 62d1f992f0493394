"""Who waits for GPUs of the pool, in the order in which Slurm looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.lease import LeaseError
from toolkit.lease.jobs.job_comment import JobComment
from toolkit.lease.jobs.slurm import Pending, reason_of
from toolkit.lease.jobs.slurm_text import SlurmJob
from toolkit.lease.machine.host import Host
from toolkit.lease.pool import is_lease


@dataclass(frozen=True)
class Waiting:
    """A request in the queue. place: 1 for the next; since, expected: seconds since the epoch, None where Slurm does
    not say; what: of a lease what was asked for, "" of another job; why: in Slurm's word."""

    place: int
    lease: int
    user: str
    what: str
    gpu_class: str
    since: float | None
    expected: float | None
    why: str


def _what(job: SlurmJob) -> str:
    if not is_lease(job):
        return ""
    try:
        return JobComment.read(job.comment).what
    except LeaseError:
        return ""


def waiting(host: Host, jobs: Sequence[SlurmJob]) -> list[Waiting]:
    """The queue. jobs: all that Slurm knows; where none of them waits, it is not asked again."""
    return in_order(jobs, host.slurm.pending()) if any(job.state == "PENDING" for job in jobs) else []


def in_order(jobs: Sequence[SlurmJob], order: Sequence[Pending]) -> list[Waiting]:
    """The queue of jobs that are known, in a known order."""
    known = {job.id: job for job in jobs if job.state == "PENDING"}
    found: list[Waiting] = []
    for number, expected, why in order:
        job = known.get(number)
        if job is not None:
            place = len(found) + 1
            found.append(Waiting(place, job.lease, job.user, _what(job), job.partition, job.submitted, expected, why))
    return found


def order_of(jobs: Sequence[SlurmJob]) -> list[Pending]:
    """The same order from the jobs alone, for one question less: by priority, then by number (squeue --sort=-p,i)."""
    pending = sorted((job for job in jobs if job.state == "PENDING"), key=lambda job: (-job.priority, job.id))
    return [Pending(job.id, job.start, reason_of(job)) for job in pending]
