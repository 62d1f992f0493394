"""Leases whose program runs on the GPU server itself: no engine, and the server's device files.

Whoever may open a GPU's device file has all of that GPU, but for one that is divided by MIG: there the files of the
instances decide. So such a lease has whole GPUs or one instance, and its owner is let in as the owner of a native job
is (module native), if the pool's policy has native jobs for him. A part that nothing holds is for users alone whom the
policy trusts with the whole GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.lease import LeaseError
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.jobs.job_comment import JobComment
from toolkit.lease.jobs.slurm_text import SlurmJob
from toolkit.lease.pool_file import PoolDescription
from toolkit.lease.server_conf import ServerConf
from validation.base.counting import number_of

#: Host memory of an agent without an engine; beside what the lease's job asked Slurm for, which is its program's.
AGENT_MIB = 128


def on_server(job: SlurmJob) -> bool:
    """Whether a lease's program runs on the server itself. False for a request that is none: its start says why."""
    try:
        return JobComment.read(job.comment).where == "server"
    except LeaseError:
        return False


def servers_for(count: int, apart: bool, gpus: Sequence[int]) -> tuple[int, bool]:
    """On how many servers a program gets so many whole GPUs, and whether in unequal numbers: on the fewest that have
    them, or on one more where their numbers are equal then; with `apart` on as many as GPUs. gpus: those of each server
    that may be chosen. LeaseError where no number of servers can."""
    if apart and count > len(gpus):
        raise LeaseError(
            f"--apart: {number_of(count, 'GPU')} on servers of their own, and there are "
            f"{number_of(len(gpus), 'server')} with GPUs"
        )
    if apart:
        return count, False
    most = sorted(gpus, reverse=True)
    fewest = next((servers for servers in range(1, len(most) + 1) if sum(most[:servers]) >= count), 0)
    if not fewest:
        have = ", ".join(map(str, gpus)) or "none"
        raise LeaseError(f"the servers do not have {number_of(count, 'GPU')} (their GPUs: {have}); ask for fewer")
    for servers in range(fewest, min(fewest + 1, len(most)) + 1):
        if count % servers == 0 and most[servers - 1] >= count // servers:
            return servers, False
    return fewest, True


_NOT_HELD = {
    "engine": "the engine holds its own programs to a part, and no others",
    "mps": "MPS takes a program's limits from the program's own environment, and serves one user at a time",
    "mig": "this GPU is not divided by MIG",
}
_INSTEAD = "ask for whole GPUs"


def notes_on_devices(devices: Sequence[LeasedGpu], conf: ServerConf, account: str) -> list[str]:
    """What the owner ought to know of how his part is held; LeaseError where a program on the server itself would have
    more than its lease, and the policy does not trust him with it. account: his class of users."""
    parts = [device for device in devices if device.mig or not device.whole]
    if not parts:
        return []
    if len(devices) > 1:
        raise LeaseError("a program on the server itself gets one part of one GPU, or whole GPUs")
    device = parts[0]
    if device.mig and device.emulated:
        return [
            "the emulated GPUs of a server are one device file: nothing but its environment keeps the program to it"
        ]
    if device.mig:
        return []
    if conf.enforcement == "engine" and account and account in (conf.native_jobs or ()):
        return [f"its part is not enforced for the program: the pool's policy trusts {account} with it (native_jobs)"]
    raise LeaseError(
        f"{conf.node} cannot hold a program on the server itself to a part of a GPU: {_NOT_HELD[conf.enforcement]}; "
        f"{_INSTEAD}"
    )


def part_refusal(pool_file: PoolDescription, count: int, memory: int | None) -> str:
    """Why no server can hold a program on it to a part, as far as this machine was told; "" where one may, and decides
    for itself."""
    if memory is not None:
        return "a part for a program there is given by -p, not by its memory (-m)"
    if count > 1:
        return f"a program there gets one part of one GPU; {_INSTEAD}, or for one part"
    ways = {server.enforcement for server in pool_file.servers.values()}
    trusted = pool_file.native_jobs == "classes" and "engine" in ways
    if not ways or "" in ways or "mig" in ways or trusted:
        return ""
    return f"no server can hold a program there to a part: {'; '.join(_NOT_HELD[way] for way in sorted(ways))}"
