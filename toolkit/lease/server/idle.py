"""Leases whose GPUs nobody uses, on their server, as root: told first, taken back when their class's time is over.

What counts as use is measured here and taken from nobody's word: processor time of the engine's processes in the
lease's unit (every call of a program passes through them), and, where the lease has a GPU whole, what NVML says of it
at the time of a sweep. What cannot be measured is no idleness: such a lease is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.fields import DamagedDocument, Fields
from toolkit.lease.instance_record import DEADLINE, Instance
from toolkit.lease.machine.host import Host
from toolkit.lease.server.instance import known, write_deadline
from toolkit.lease.server.lease_locks import locked
from toolkit.lease.wire import Deadline, EndCode

FILE = "idle"
#: Less processor time of the engine since the last use is none: its processes wake up now and then by themselves.
LEAST_CPU_S = 0.05
#: How long before the end its owner is told: a fifth of the time, at most five minutes.
NOTICE_S, NOTICE_SHARE = 300.0, 0.2


@dataclass(frozen=True)
class Idle:
    """What is kept of a lease's job between two sweeps. since: by the monotonic clock, when it was last seen in use;
    cpu_s: the engine's processor time then; told: whether its owner was told."""

    since: float
    cpu_s: float = 0.0
    told: bool = False


def _write(folder: Path, idle: Idle) -> None:
    scratch = folder / f".{FILE}.new"
    scratch.write_text(json.dumps(asdict(idle)))
    scratch.replace(folder / FILE)


def _read(folder: Path, now: float) -> Idle:
    """What was kept; of a lease that is looked at for the first time, that its time runs from now."""
    try:
        fields = Fields.in_file(folder / FILE)
        return Idle(fields.seconds("since"), fields.seconds("cpu_s"), fields.flag("told"))
    except (FileNotFoundError, DamagedDocument):
        return Idle(now)


def _busy(instance: Instance, percent: Mapping[str, int | None]) -> bool | None:
    """Whether NVML says that a GPU which the lease has whole works now; None where it does not say. Of parts it
    says nothing: a neighbour's work is the same figure."""
    whole = [device for device in instance.devices if device.whole and not device.mig]
    seen = [percent.get(device.uuid) for device in whole]
    if any(seen):
        return True
    return False if None not in seen and len(whole) == len(instance.devices) else None


def _used(host: Host, instance: Instance, idle: Idle, percent: Mapping[str, int | None]) -> tuple[bool, float]:
    """Whether the job's GPUs were used since the last sweep (or that cannot be told), and the engine's time."""
    busy = _busy(instance, percent)
    if instance.native:  # its program is no process of the unit
        return busy is not False, 0.0
    cpu_s = host.systemd.engine_cpu_s(instance.job)
    return cpu_s is None or busy is True or cpu_s - idle.cpu_s > LEAST_CPU_S, cpu_s or 0.0


def _tell(folder: Path, idle: Idle, limit_s: float, now: float) -> None:
    """To the agent, by the file that it reads: when the lease goes, or that it does not."""
    before = Deadline.read(folder / DEADLINE)
    due = idle.since + limit_s if idle.told else None
    if before.idle_due != due:
        write_deadline(folder, replace(before, idle_due=due, idle_s=now - idle.since if idle.told else None))


def look(host: Host) -> dict[str, str]:
    """All leases of Slurm's here that a class limits: tell the owners of those that are about to be taken back for
    idleness, and end those that are due. What was done, by job. The jobs of one lease here count as one: it is idle
    where all of them are."""
    now = host.clock.monotonic()
    limited = {job_id: (one, one.idle_s) for job_id, one in known(host).by_job.items() if one.idle_s is not None}
    if not limited:
        return {}
    try:
        percent = host.gpus.utilisation()
    except LeaseError:
        percent = {}
    kept = {job_id: _read(host.run_dir / job_id, now) for job_id in limited}
    seen = {job_id: _used(host, one, kept[job_id], percent) for job_id, (one, _limit_s) in limited.items()}
    in_use = {limited[job_id][0].lease for job_id, (used, _) in seen.items() if used}
    done = {}
    with locked(host):
        for job_id, (one, limit_s) in limited.items():
            cpu_s = seen[job_id][1] if one.lease in in_use else None
            try:
                words = _one(host, job_id, kept[job_id], limit_s, now, cpu_s)
            except (OSError, LeaseError) as fault:  # its Epilog was here meanwhile
                words = "" if isinstance(fault, FileNotFoundError) else f"idleness cannot be measured: {fault}"
            if words:
                done[job_id] = words
    return done


def _one(host: Host, job_id: str, idle: Idle, limit_s: float, now: float, used_cpu_s: float | None) -> str:
    """One job, whose lease was used (with the engine's processor time by now) or not (None). What was done."""
    folder = host.run_dir / job_id
    if Deadline.read(folder / DEADLINE).early:
        return ""  # it ends already, and its owner knows why
    idle_s = now - idle.since
    minutes = f"{idle_s / 60:.0f} minutes"
    if used_cpu_s is not None:
        now_used = Idle(now, used_cpu_s)
        _write(folder, now_used)
        _tell(folder, now_used, limit_s, now)
        return f"its GPUs are used again after {minutes}" if idle.told else ""
    if idle_s >= limit_s:
        write_deadline(folder, Deadline(host.clock.time(), now, EndCode.IDLE))
        return f"its GPUs were not used for {minutes}: taken back"
    told = replace(idle, told=idle_s >= limit_s - min(NOTICE_S, NOTICE_SHARE * limit_s))
    _write(folder, told)
    _tell(folder, told, limit_s, now)
    if told.told and not idle.told:
        return f"its GPUs were not used for {minutes}; its owner is notified that they end at {limit_s / 60:.0f}"
    return ""
