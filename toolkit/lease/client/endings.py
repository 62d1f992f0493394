"""Why a lease is over, by Slurm's record of its jobs."""

from __future__ import annotations

from collections.abc import Iterable

from toolkit.lease import Exit, LeaseError
from toolkit.lease.jobs.job_comment import ended_reason
from toolkit.lease.jobs.slurm_text import SlurmJob
from toolkit.lease.machine.host import Host
from toolkit.lease.wire import WORDS, EndCode


class Over(LeaseError):
    """A lease that was waited for has ended, `why`. preempted: for another, so that it may be asked for again."""

    def __init__(self, lease: int, why: str, preempted: bool = False) -> None:
        """To be tried again."""
        super().__init__(f"lease {lease} has ended: {why}", Exit.RETRY)
        self.why, self.preempted = why, preempted


def _preempted(job: SlurmJob) -> bool:
    """Whether another job took its GPUs; what its server or an administrator noted comes first."""
    took = job.preempted and job.state not in ("CANCELLED", "NODE_FAIL")
    return not ended_reason(job.admin_comment) and (took or job.state == "PREEMPTED")


def ended_words(job: SlurmJob) -> str:
    """Why a lease's job is over."""
    by_state = {
        "TIMEOUT": WORDS[EndCode.TIME],
        "NODE_FAIL": f"{', '.join(job.nodes) or 'its server'} failed",
        "CANCELLED": WORDS[EndCode.TAKEN_BACK],
        "DEADLINE": WORDS[EndCode.TIME],
    }
    left = WORDS[EndCode.PREEMPTED] if _preempted(job) else ended_reason(job.admin_comment)
    return left or by_state.get(job.state, f"Slurm says {job.state.lower()}{f' ({job.reason})' if job.reason else ''}")


def over_of(jobs: Iterable[SlurmJob]) -> SlurmJob | None:
    """The first of a lease's jobs that has ended or is being taken back."""
    return next((job for job in jobs if job.ended or job.preempted or ended_reason(job.admin_comment)), None)


def ended_of(jobs: Iterable[SlurmJob]) -> SlurmJob | None:
    """The job of a lease that has ended; of several one of which its server says why."""
    return max((job for job in jobs if job.ended), key=lambda job: bool(ended_reason(job.admin_comment)), default=None)


def over(lease: int, job: SlurmJob) -> Over:
    """The end of a lease by the end of one of its jobs."""
    return Over(lease, ended_words(job), _preempted(job))


def cause_of(host: Host, lease: int) -> Over | None:
    """Why a lease that cannot be used is over; None where it is not, or where Slurm does not say."""
    try:
        job = over_of(host.slurm.job_parts(lease))
    except LeaseError:
        return None
    return over(lease, job) if job else None
