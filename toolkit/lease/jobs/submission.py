"""What Slurm is asked for a lease: data until `options`, the one place where it becomes sbatch's command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from toolkit.lease import JOB_NAME
from toolkit.lease.jobs.job_comment import JobComment
from toolkit.lease.lease_request import LeaseRequest
from toolkit.lease.pool import PoolGpu

#: Host memory of the least that a job asks for, MiB: a shell that sleeps, and comes out of the instance's.
JOB_MEMORY_MIB = 16


@dataclass(frozen=True)
class JobGpus:
    """GPUs of a job on each of its servers: `count` whole ones, or so many shards of one. in_all: whole ones on all its
    servers together, in whatever numbers Slurm finds free."""

    kind: Literal["gpu", "shard"]
    count: int
    in_all: bool = False

    @property
    def devices(self) -> int:
        """How many GPUs it has a part of, on each of its servers."""
        return self.count if self.kind == "gpu" else 1

    def options(self, host_mib: int) -> list[str]:
        """sbatch's words for them, and for so much host memory (MiB) for each; in numbers that are not known, by the
        GPU."""
        if self.in_all:
            return [f"--mem-per-gpu={max(host_mib, JOB_MEMORY_MIB)}", f"--gpus={self.count}"]
        return [f"--mem={max(host_mib * self.devices, JOB_MEMORY_MIB)}", f"--gres={self.kind}:{self.count}"]


@dataclass(frozen=True)
class Submission:
    """A request as Slurm is asked for it: `jobs` jobs alike. clients: addresses of this machine, whose name is `host`.
    excluded: servers that may not take it. partition: in a cluster of the site's own the one of all leases, "" where
    Slurm's default is, and each class of GPU is one. In theirs a lease takes a core of its own: Slurm puts no job that
    shares cores on a node with one that does not, which are all the others there."""

    request: LeaseRequest
    gpus: JobGpus
    jobs: int
    clients: tuple[str, ...]
    host: str
    excluded: tuple[str, ...] = ()
    partition: str = ""

    @property
    def servers(self) -> int:
        """On how many servers each job is."""
        return self.request.count if self.request.spread else self.request.servers_there

    @property
    def comment(self) -> JobComment:
        """What each job says of itself, which its server reads."""
        request, seconds = self.request, self.request.seconds
        return JobComment(
            clients=self.clients,
            host=self.host,
            mode=request.mode,
            what=request.text,
            ttl_s=seconds if seconds is not None and seconds % 60 else 0,
            memory_mib=request.memory_mib,
            parts=self.jobs,
            where=request.where,
            engine=request.engine,
            up_to=request.up_to,
        )

    def device_by_device(self) -> Submission:
        """The same request, after a server could not start it: a job for each device. A program on the servers
        themselves stays one job."""
        if self.request.where == "server":
            return self
        gpus, jobs = _device_by_device(self.request)
        return replace(self, gpus=gpus, jobs=jobs)

    def options(self) -> list[str]:
        """sbatch's options."""
        request, partition = self.request, self.partition or self.request.gpu_class
        cpus = f"--cpus-per-task={request.cpus}"
        return [
            f"--job-name={JOB_NAME}",
            f"--comment={self.comment.text()}",
            f"--nodes={self.servers}",
            f"--ntasks={self.servers}",
            f"--cpus-per-gpu={request.cpus_per_gpu}" if request.cpus_per_gpu else cpus,
            "--no-requeue",
            *([] if self.partition else ["--oversubscribe"]),
            "--chdir=/",
            *(f"--{stream}=/dev/null" for stream in ("input", "output", "error")),
            *([] if request.seconds is None else [f"--time={max(-(-request.seconds // 60), 1)}"]),
            *([f"--partition={partition}"] if partition else []),
            *([f"--exclude={','.join(self.excluded)}"] if self.excluded else []),
            *self.gpus.options(request.host_mib),
            *([f"--array=0-{self.jobs - 1}"] if self.jobs > 1 else []),
        ]


def _device_by_device(request: LeaseRequest) -> tuple[JobGpus, int]:
    """One job for each device; one job on several servers where they are to be apart.

    A whole GPU is asked for as all its shards: Slurm 22.05 counts shards right, but takes a GPU for free of them as
    soon as one of several jobs on it has ended, and would then give it out as a whole.
    """
    if request.where == "server" and request.unequal:
        return JobGpus("gpu", request.count, in_all=True), 1
    if request.where == "server" and request.on_each > 1:
        return JobGpus("gpu", request.on_each), 1
    one = JobGpus("shard", request.part.shards) if request.part.of > 1 else JobGpus("gpu", 1)
    return one, 1 if request.spread or request.where == "server" else request.count


def jobs_of(request: LeaseRequest, gpus: Sequence[PoolGpu]) -> tuple[JobGpus, int]:
    """GPUs of each job, and how many jobs: one for several whole GPUs where one server has them free, else one for each
    device."""
    free: dict[str, int] = {}
    for gpu in gpus:
        free[gpu.node] = free.get(gpu.node, 0) + (gpu.free == gpu.of)
    together = (
        request.where == "client"
        and not request.spread
        and request.part.whole
        and request.count > 1
        and any(count >= request.count for count in free.values())
    )
    return (JobGpus("gpu", request.count), 1) if together else _device_by_device(request)
