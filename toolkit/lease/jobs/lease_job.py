"""A job that asks a GPU server for an instance: what the server is told of it, by Slurm or by an administrator."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.lease.jobs.slurm_text import Held, SlurmJob


@dataclass(frozen=True)
class LeaseJob:
    """comment: the request, as its owner wrote it. held: what it has of this server. until: when its time is over, None
    without an end; slurm_end: Slurm's record of that, far away where there is none. memory_mib: host memory that it
    asked for, None without a job. cpus: its processors on this server, 0 where they are not known. account: its owner's
    class of users. problem: why it cannot be told what it holds. nodes: all that it is on; submitted: when it was, None
    where Slurm does not say.
    """

    job: str
    lease: int
    uid: int
    comment: str
    held: tuple[Held, ...]
    until: float | None = None
    slurm_end: float | None = None
    memory_mib: int | None = None
    cpus: int = 0
    account: str = ""
    problem: str = ""
    nodes: tuple[str, ...] = ()
    submitted: float | None = None

    @classmethod
    def of(cls, job: SlurmJob, node: str) -> LeaseJob:
        """As Slurm says it."""
        held = tuple(part for part in job.held if part.node == node)
        mps = "a lease takes its parts of GPUs as shards, and this job has some by CUDA MPS"
        return cls(
            job=str(job.id),
            lease=job.lease,
            uid=job.uid,
            comment=job.comment,
            held=held,
            until=job.until,
            slurm_end=job.end,
            memory_mib=job.memory_mib or 0,
            # Its processors are shared among its servers as its GPUs are.
            cpus=-(-(job.cpus or 0) * len(held) // max(len(job.held), 1)),
            account=job.account,
            problem=job.problem or (mps if any(part.of for part in job.held) else ""),
            nodes=job.nodes,
            submitted=job.submitted,
        )
