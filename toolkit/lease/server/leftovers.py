"""Whether everything of an instance that has ended is gone: processes, ports, memory of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.machine.host import Host
from toolkit.lease.machine.processes import started
from toolkit.lease.machine.unit import name_of
from toolkit.lease.server.journal import tell_all
from toolkit.lease.server.ports import still_ours

#: How long an ended instance may take until nothing of it is left.
GONE_S = 5.0


def kept_uids(path: Path, uids: set[int]) -> set[int]:
    """Under which uids an instance's unit ran, as they are seen now or were when its end was begun (in that file)."""
    with suppress(FileNotFoundError, ValueError):
        uids = uids | set(map(int, path.read_text().split()))
    with suppress(OSError):  # no room: the end goes on, which makes some
        path.write_text(" ".join(map(str, sorted(uids))))
    return uids


def verify_gone(host: Host, job_id: str, ours: Mapping[int, str], ports: list[int], uids: set[int]) -> list[str]:
    """What is left of an instance after its unit was stopped, in words. What others have on its ports is no part of it:
    any user may sit down on any port."""
    until = host.clock.monotonic() + GONE_S
    while True:
        left = [f"process {pid} still runs" for pid in host.systemd.pids(job_id)]
        listening, others = still_ours(host, ports, uids, ours)
        left += listening
        left += [f"{name_of(job_id)} is still active"] if host.systemd.active(job_id) else []
        if ours:
            left += still_on_gpus(host, ours)
        if not left or host.clock.monotonic() > until:
            tell_all(f"job {job_id}", others)
            return left
        host.clock.sleep(0.1)


def still_on_gpus(host: Host, ours: Mapping[int, str]) -> list[str]:
    """Which of an ended instance's processes still have memory on a GPU. ours: when each started, for their numbers may
    be others' by now."""
    try:
        seen = host.gpus.processes()
    except LeaseError as fault:
        return [f"cannot check that GPU memory is free: {fault}"]
    return [
        f"process {pid} still has memory on {uuid}"
        for uuid, pids in seen.items()
        for pid in pids
        if pid in ours and started(pid) == ours[pid]
    ]
