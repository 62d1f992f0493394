"""Leases whose program runs on the GPU server itself: no engine, whole GPUs, and the server's device files.

Whoever may open a GPU's device file has all of that GPU. So such a lease has whole GPUs and no MIG instances, and its
owner is let in as the owner of a native job is (module native), if the pool's policy has native jobs for him.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.lease import LeaseError
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.job_comment import parse_comment
from toolkit.lease.slurm_text import SlurmJob

#: Host memory of an agent without an engine; beside what the lease's job asked Slurm for, which is its program's.
AGENT_MIB = 128


def on_server(job: SlurmJob) -> bool:
    """Whether a lease's program runs on the server itself. False for a request that is none: its start says why."""
    try:
        return parse_comment(job.comment).where == "server"
    except LeaseError:
        return False


def refuse_parts(devices: Sequence[LeasedGpu]) -> None:
    """LeaseError where a program on the server itself would have more than its lease."""
    if not all(device.whole and not device.mig for device in devices):
        raise LeaseError("a program on the server itself gets whole GPUs: nothing would hold it to a part")
