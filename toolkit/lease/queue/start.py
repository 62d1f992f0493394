"""When GPUs could be had: the ends of what runs now, and the scheduler's own estimate."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from toolkit.lease import LeaseError
from toolkit.lease.client.ask import against_pool, eligible_here, explain
from toolkit.lease.engines import all_installed
from toolkit.lease.jobs.slurm import SCRIPT, said
from toolkit.lease.jobs.slurm_text import SlurmError, epoch
from toolkit.lease.jobs.submission import Submission
from toolkit.lease.lease_request import LeaseWish, Where
from toolkit.lease.machine.host import Host
from toolkit.lease.pool import gpus_of
from toolkit.lease.pool_file import read_pool
from toolkit.lease.queue.outlook import Outlook, later, outlook

#: As `sbatch --test-only` says it, on stderr (src/sbatch/sbatch.c), with SLURM_TIME_FORMAT=%s.
_START = re.compile(r"\bJob \d+ to start at (\S+) using ")


@dataclass(frozen=True)
class Start:
    """what: the request in words. waiting: requests of the pool that wait before it. asked: when it was looked at."""

    what: str
    outlook: Outlook
    waiting: int
    asked: float


def expected(host: Host, submission: Submission) -> float | None:
    """When Slurm would start one such job, by what runs, reservations and limits; None where it does not say.
    LeaseError where it would refuse it."""
    done = host.slurm.run(["sbatch", "--test-only", *submission.options()], stdin=SCRIPT)
    if done.returncode != 0:
        raise LeaseError(explain(SlurmError(said(done)), submission.request, submission.partition))
    match = _START.search(done.stderr)
    return epoch(match[1]) if match else None


def start_of(host: Host, wish: LeaseWish, say: Callable[[str], None]) -> Start:
    """When the wish could be met; nothing is asked for. LeaseError where it never can."""
    where: Where = "client" if all_installed(host.engine_dir) else "server"
    submission = against_pool(host, wish, "run", say, where)
    nodes, jobs, now = host.slurm.nodes(), host.slurm.jobs(), host.clock.time()
    able = {node.name for node in eligible_here(host, submission.request, nodes)}
    gpus = [
        gpu
        for gpu in gpus_of(nodes, jobs, read_pool(host.pool_conf))
        if gpu.node in able and gpu.node not in submission.excluded
    ]
    found = later(outlook(submission.request, gpus, now), expected(host, submission))
    waiting = len({job.lease for job in jobs if job.state == "PENDING"})
    return Start(submission.request.text, found, waiting, now)
