"""What a timer runs as root on a GPU server: leases that nobody ended, ends that moved, and what is left over."""

from __future__ import annotations

import time
from collections.abc import Container
from pathlib import Path

from toolkit.lease import JOB_NAME, LeaseError
from toolkit.lease.instance_record import Instance, is_static
from toolkit.lease.jobs.job_comment import ended_reason
from toolkit.lease.jobs.slurm_text import epoch
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.server import ages, ceiling, container, idle, instance, native
from toolkit.lease.server.hooks import freed, give_back, had, take_back
from toolkit.lease.server.journal import tell, tell_all
from toolkit.lease.server.lease_locks import Busy, locked, turn
from toolkit.lease.server.native_records import read_records
from toolkit.lease.server_conf import read_server_conf
from toolkit.lease.wire import WORDS, EndCode

#: A lease that could not start is read by its owner within this time, and then taken out of the queue.
ERROR_READ_S = 30
#: A lease's job that runs for so long without an instance never gets one: Slurm ends a Prolog after 120 s
#: (PrologEpilogTimeout, role slurm).
PROLOG_S = 150.0

#: Number, state, end, and when Slurm began to take it back for another job, each "N/A" or "NONE" where there is none.
COLUMNS = "JobID:20,State:20,EndTime:20,PreemptTime:20"


def _jobs_here(host: Host, node: str) -> dict[str, float | None] | None:
    """Jobs on this server and their ends; None when Slurm does not answer."""
    try:
        done = host.slurm.run(
            ["squeue", "--noheader", f"--nodelist={node}", "--states=all", f"--Format={COLUMNS}"], timeout_s=20
        )
    except LeaseError:
        return None
    if done.returncode != 0:
        return None
    rows = [line.split() for line in done.stdout.splitlines() if len(line.split()) == 4]
    live = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED")
    return {number: _end(host, number, end, preempted) for number, state, end, preempted in rows if state in live}


def _end(host: Host, number: str, end: str, preempted: str) -> float | None:
    """When a job ends. squeue does not say it of one without a limit, not even once it is being taken back."""
    known = epoch(end)
    if known is not None or epoch(preempted) is None:
        return known
    try:
        job = host.slurm.job(int(number))
    except LeaseError:
        return None  # asked again next time
    return job.end if job is not None else None


def _never_started(host: Host, node: str, known: Container[str]) -> list[str]:
    """Leases' jobs that have been here without an instance for longer than any Prolog takes: they have lost it. By
    Slurm's own comparison of names, so that no text of a user's is read."""
    wanted = ["--states=RUNNING", f"--name={JOB_NAME}", "--format=%A"]
    try:
        done = host.slurm.run(["squeue", "--noheader", f"--nodelist={node}", *wanted], timeout_s=20)
    except LeaseError:
        return []
    without = [number for number in done.stdout.split() if number.isdigit() and number not in known]
    return [number for number, passed_s in ages.seen_for_s(host, without).items() if passed_s > PROLOG_S]


def _move_end(host: Host, job_id: str, one: Instance, end: float) -> None:
    """A lease whose end is another in Slurm's record; an earlier one has a reason, which Slurm is asked for."""
    until, code = end, EndCode.TIME
    if one.slurm_end is not None and end < one.slurm_end:
        until = min(end, one.deadline or end)
        try:
            job = host.slurm.job(int(job_id))
        except LeaseError as fault:
            tell(f"lease {one.lease}: ends earlier, and Slurm does not say why ({fault}); asked again next time")
            return
        if job is not None and job.preempted:
            code = EndCode.PREEMPTED
        elif job is not None and ended_reason(job.admin_comment):
            code = EndCode.ADMINISTRATOR
        elif job is not None and (job.ended or job.state == "COMPLETING"):
            code = EndCode.TAKEN_BACK  # Slurm has moved its end to now; the Epilog may come after this sweep
    instance.move_end(host, job_id, end, instance.due_at(host, until, code))
    why = "" if code is EndCode.TIME else f": {WORDS[code]}"
    tell(f"lease {one.lease}: goes on until {time.strftime('%F %T', time.localtime(until))}{why}")


def _sweep_one(host: Host, job_id: str, folder: Path, end: float | None) -> None:
    instances, age_s = instance.known(host), ages.age_s(host, folder)
    if not folder.exists():
        return  # its Epilog was here meanwhile
    one = instances.get(job_id)
    if one is None and job_id not in instances.lost:
        if age_s > ERROR_READ_S:
            give_back(host, job_id, int(job_id), "it could not start")
        return
    if one is None:
        tell(f"job {job_id}: its lease goes on as it is, and nothing else is given out: {instances.lost[job_id]}")
    elif end is not None and one.slurm_end is not None and abs(end - one.slurm_end) > 1:
        _move_end(host, job_id, one, end)
    if age_s > ERROR_READ_S and not host.systemd.active(job_id):
        give_back(host, job_id, one.lease if one else int(job_id), "its instance is gone")


def _sweep_away(host: Host, job_id: str) -> list[str] | None:
    """End a lease that nobody ended; what is left. None where somebody does it now."""
    try:
        with turn(host, job_id, wait_s=0):
            gpus, owners = had(host, [job_id])
            return take_back(host, job_id) + freed(host, gpus, owners)
    except Busy:
        return None


def _natives_over(host: Host, job_id: str, record: int) -> bool:
    """Take back what a native job had that nobody ended; True where something is left. Nothing where somebody ends it
    now, or has started it again since."""
    try:
        with turn(host, job_id, wait_s=0):
            if native.written(host).get(job_id) != record:
                return False
            before = read_records(host).had([job_id])
            return bool(native.revoke(host, job_id) + freed(host, *before))
    except Busy:
        return False


def _stray_containers(host: Host, jobs: Container[str]) -> bool:
    """Containers whose lease is gone, however they came to outlive it; True where some cannot be removed."""
    failed = False
    for job_id in container.labelled():
        if job_id in jobs and instance.lives(host, job_id):
            continue
        try:
            with turn(host, job_id, wait_s=0):
                if not instance.lives(host, job_id):
                    left = container.remove(host, job_id)
                    tell(f"job {job_id} is over and had containers here: " + ("; ".join(left) or "removed now"))
                    failed |= bool(left)
        except Busy:
            continue
    return failed


def sweep(host: Host | None = None) -> int:
    """Leases whose job is gone, jobs whose instance is gone, new ends, stray rules."""
    host = host or this_host()
    conf = read_server_conf(host.server_conf)
    instance.close_ports(host, conf)
    host.sockets.reserve(*conf.ports)
    tell_all("device files of GPUs", native.refresh(host, conf))
    for job_id in filter(is_static, instance.known(host).jobs):
        if ages.age_s(host, host.run_dir / job_id) > ERROR_READ_S and not host.systemd.active(job_id):
            left = _sweep_away(host, job_id)
            if left is not None:
                tell(f"static lease {job_id} is over: " + ("; ".join(left) or "gone"))
    # Before Slurm is asked: what starts after its answer is none of this sweep's business.
    known, running, natives = instance.known(host).jobs, host.systemd.running(), native.written(host)
    jobs = _jobs_here(host, conf.node)
    if jobs is None:
        return 0  # without Slurm's word nothing is taken from anybody; the agents keep the time
    ceiling.rebalance(host)
    for job_id, words in idle.look(host).items():
        tell(f"lease {instance.lease_number(host, job_id)}: {words}")
    failed = sum(_natives_over(host, job_id, natives[job_id]) for job_id in sorted(set(natives) - set(jobs)))
    for job_id in {*known, *running}:
        folder = host.run_dir / job_id
        if is_static(job_id):
            continue
        if job_id in jobs and folder.exists():
            _sweep_one(host, job_id, folder, jobs[job_id])
        elif job_id not in jobs and (not folder.exists() or ages.age_s(host, folder) > 5):
            left = _sweep_away(host, job_id)
            if left is not None:
                tell(f"job {job_id} is over and its lease was still here: " + ("; ".join(left) or "gone now"))
                failed += bool(left)
    failed += _stray_containers(host, jobs)
    if set(jobs) - set(known):
        for job_id in _never_started(host, conf.node, known):
            give_back(host, job_id, int(job_id), "its server never started it")
    with locked(host):
        tell_all("ports of leases that are over", instance.shut_strays(host))
    return 1 if failed else 0
