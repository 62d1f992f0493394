"""Leases that are there: list, show, extend, release."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolkit.lease import LeaseError
from toolkit.lease.display import clock
from toolkit.lease.jobs import slurm
from toolkit.lease.jobs.job_comment import JobComment, ended_text
from toolkit.lease.jobs.slurm_text import Complaint, SlurmError, SlurmJob, duration_s, expand_hosts
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.pool import is_lease, where_text
from toolkit.lease.wire import WORDS, EndCode

EXTEND = Path("/usr/lib/elastic-ai/lease/bin/extend")


@dataclass(frozen=True)
class Lease:
    """A lease with all its jobs."""

    id: int
    jobs: tuple[SlurmJob, ...]

    @property
    def what(self) -> str:
        """What was asked for, as the request says."""
        try:
            return JobComment.read(self.jobs[0].comment).what
        except LeaseError:
            return "?"

    @property
    def where(self) -> str:
        """gpu1:0-3, '' while it waits."""
        return where_text((held.node, held.index) for job in self.jobs if not job.ended for held in job.held)

    @property
    def lost(self) -> int:
        """How many of its jobs Slurm has forgotten: they ended minutes ago, while others keep their GPUs."""
        try:
            parts = JobComment.read(self.jobs[0].comment).parts
        except LeaseError:
            return 0
        waiting = any(job.state == "PENDING" for job in self.jobs)  # those that wait are one job
        return 0 if waiting else max(parts - len(self.jobs), 0)

    @property
    def state(self) -> Literal["running", "waiting", "starting", "ending", "ended", "in part"]:
        """running, waiting, starting, ending, ended, or in part: some jobs have ended, others keep their GPUs."""
        states = {job.state for job in self.jobs}
        if any(job.ended for job in self.jobs) or self.lost:
            return "ended" if all(job.ended for job in self.jobs) else "in part"
        if states == {"RUNNING"}:
            return "running"
        if "PENDING" in states:
            return "waiting"
        return "ending" if "COMPLETING" in states else "starting"

    @property
    def reason(self) -> str:
        """Why it waits, in Slurm's word; '' where there is none."""
        reason = self.jobs[0].reason
        return "" if reason == "None" else reason

    @property
    def over(self) -> SlurmJob | None:
        """The first of its jobs that has ended."""
        return next((job for job in self.jobs if job.ended), None)

    @property
    def end(self) -> float | None:
        """When its time is over, None without a limit."""
        left = [job for job in self.jobs if not job.ended] or self.jobs
        ends = [job.until for job in left if job.until is not None]
        return min(ends, default=None)


def leases(jobs: Sequence[SlurmJob]) -> list[Lease]:
    """Jobs that are leases, put together."""
    found: dict[int, list[SlurmJob]] = {}
    for job in jobs:
        if is_lease(job):
            found.setdefault(job.lease, []).append(job)
    return [Lease(k, tuple(sorted(v, key=lambda j: j.task))) for k, v in sorted(found.items())]


def me() -> str:
    """Whose leases are meant."""
    return getpass.getuser()


def find(host: Host, lease: int) -> Lease:
    """The lease of that number; LeaseError when Slurm knows none."""
    found = leases(host.slurm.job_parts(lease))
    if not found:
        raise LeaseError(f"lease {lease}: no such lease (any more); toolkit lease list shows yours")
    return found[0]


def _update(host: Host, job: SlurmJob, words: str) -> None:
    done = host.slurm.run(["scontrol", "update", f"JobId={job.id}", words])
    if done.returncode != 0:
        raise SlurmError(slurm.said(done))


def release(host: Host, lease: Lease, grace_s: int = 0) -> None:
    """Give a lease back. LeaseError when it is another's. An administrator's word is left in its record, and with
    `grace_s` its program is told and goes on for so many seconds."""
    left = [job for job in lease.jobs if not job.ended]
    ours = lease.jobs[0].user == me()
    try:
        if not ours or grace_s:
            for job in left:
                _update(host, job, f"AdminComment={ended_text(WORDS[EndCode.ADMINISTRATOR])}")
        if grace_s and all(job.state == "RUNNING" for job in left):
            for job in left:
                _update(host, job, f"EndTime=now+{grace_s}")
        else:
            host.slurm.cancel(lease.id)
    except LeaseError as fault:
        others = isinstance(fault, SlurmError) and fault.kind is Complaint.NOT_PERMITTED
        denied = "only an administrator gives notice" if ours else f"it is {lease.jobs[0].user}'s"
        words = denied if others else str(fault)
        raise LeaseError(f"lease {lease.id} was not released: {words}") from None


def extend(lease: Lease, seconds: int) -> str:
    """Let a lease go on longer; what the helper says. Slurm lets only its administrators do that, so a helper that
    checks owner and policy does it."""
    minutes = -(-seconds // 60)
    command = [str(EXTEND), str(lease.id), str(minutes)]
    if os.geteuid() != 0:
        command = ["sudo", "--non-interactive", *command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except FileNotFoundError as fault:
        raise LeaseError(f"{fault.filename} is not installed here; run site.yml, or ask the administrator") from None
    if done.returncode != 0:
        raise LeaseError((done.stderr.strip().splitlines() or ["it was not extended"])[-1])
    return done.stdout.strip()


def _words(host: Host, args: Sequence[str]) -> str:
    done = host.slurm.run(args)
    if done.returncode != 0:
        raise LeaseError(f"Slurm does not answer: {slurm.said(done)}")
    return done.stdout


def _named(kind: str, name: str) -> str:
    """A name out of Slurm's answer that may become a word of another command."""
    if not re.fullmatch(r"\w[\w.+-]*", name, re.ASCII):
        raise LeaseError(f"Slurm names the {kind} {name[:40]!r}, which is none")
    return name


def most_s(host: Host, job: SlurmJob) -> int | None:
    """The longest that policy lets this job run, from its partitions and its QOS; None without a limit."""
    limits, names = [], [job.qos]
    for partition in job.partition.split(","):
        words = _words(host, ["scontrol", "show", "partition", _named("partition", partition)])
        limits += [duration_s(word) for word in re.findall(r"\bMaxTime=(\S+)", words)]
        names += re.findall(r"\bQoS=(\S+)", words)
    for name in sorted({n for n in names if n not in ("", "N/A", "(null)")}):
        qos = _named("QOS", name)
        walls = _words(host, ["sacctmgr", "--noheader", "--parsable2", "show", "qos", qos, "format=MaxWall"])
        limits += [duration_s(word) for word in walls.split()]
    return min((limit for limit in limits if limit is not None), default=None)


def reserved_from(host: Host, job: SlurmJob) -> float | None:
    """When the next reservation of one of the job's servers begins, None where none is to come. Administrators alone
    name reservations, so that their text may be read."""
    now, starts = host.clock.time(), []
    for line in _words(host, ["scontrol", "--oneliner", "show", "reservation"]).splitlines():
        start, nodes = re.search(r" StartTime=(\d+) ", line), re.search(r" Nodes=(\S+) ", line)
        if start and nodes and float(start[1]) > now and set(expand_hosts(nodes[1])) & set(job.nodes):
            starts.append(float(start[1]))
    return min(starts, default=None)


def confirmed(host: Host, number: int, lease: int, caller: int) -> SlurmJob:
    """The job of that number, asked for anew, if it is the caller's (0: root's) and a part of the lease, or LeaseError.

    Root changes nothing else for a user: no list of jobs, however it came about, is enough.
    """
    job = host.slurm.job(number)
    if job is None or job.id != number or job.lease != lease or not is_lease(job):
        raise LeaseError(f"lease {lease}: job {number} is no part of it (any more)")
    if caller not in (0, job.uid):
        raise LeaseError(f"lease {lease} is {job.user}'s")
    return job


def extend_as_root(argv: Sequence[str], host: Host | None = None) -> str:
    """The helper: runs as root for the user who called sudo. Checks owner, kind and policy, then sets Slurm's limit."""
    host = host or this_host()
    if len(argv) != 2 or not all(re.fullmatch(r"[0-9]{1,9}", word) for word in argv):
        raise LeaseError("usage: extend LEASE MINUTES")
    lease, minutes = find(host, int(argv[0])), int(argv[1])
    caller = int(os.environ.get("SUDO_UID", "0"))
    parts = [confirmed(host, part.id, lease.id, caller) for part in lease.jobs]
    job = parts[0]
    if lease.state not in ("running", "waiting"):
        raise LeaseError(
            f"lease {lease.id} has ended{' in part' * (lease.state == 'in part')}"
            if lease.over or lease.lost
            else f"lease {lease.id} is {lease.state}"
        )
    if job.time_limit_s is None:
        raise LeaseError(f"lease {lease.id} has no end time to move")
    wanted = job.time_limit_s + minutes * 60
    most = most_s(host, job)
    if most is not None and wanted > most and caller != 0:
        raise LeaseError(
            f"lease {lease.id}: the pool allows {most / 3600:.3g} hours in all, this would be {wanted / 3600:.3g}"
        )
    reserved = [when for when in (reserved_from(host, part) for part in parts) if when is not None]
    ends = [part.start + wanted for part in parts if part.start is not None]
    if caller != 0 and lease.state == "running" and reserved and max(ends, default=0) > min(reserved):
        raise LeaseError(f"lease {lease.id}: its server is reserved from {clock(min(reserved), host.clock.time())}")
    for part in parts:
        done = host.slurm.run(["scontrol", "update", f"JobId={part.id}", f"TimeLimit={-(-wanted // 60)}"])
        if done.returncode != 0:
            raise LeaseError(f"lease {lease.id}: Slurm does not extend it: {slurm.said(done)}")
    return f"lease {lease.id}: {wanted / 3600:.3g} hours in all"
