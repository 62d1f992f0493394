"""Native jobs: work that runs on a GPU server itself, beside leases, and which of them may open the server's GPUs.

Slurm gives a job its GPUs; the device files open to the job's owner while it runs, by the pool's policy: those of whole
GPUs where nothing is said (nobody else has such a GPU meanwhile), all that the job has for the classes of users in
`native_jobs`, none for others. Slurm counts shards and fences nothing: who has one natively has the whole GPU.

One record for each job, so that the end of one takes nothing from another of the same user.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Sequence
from contextlib import suppress

from toolkit.lease.jobs.slurm_text import SlurmJob
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.server.instance import known as instances_of
from toolkit.lease.server.lease_locks import locked
from toolkit.lease.server.native_records import NativeRecord, folder_of, paths, read_records
from toolkit.lease.server_conf import ServerConf, read_server_conf


def refusal(job: SlurmJob, conf: ServerConf) -> str:
    """Why the owner of a job that is no lease may not open its GPUs, '' where he may."""
    if conf.native_jobs is None:
        part = any(part.shards for part in job.held if part.node == conf.node)
        return "it has shards, and parts of GPUs are leased (toolkit run -p)" if part else ""
    if job.account in conf.native_jobs:
        return ""
    return f"the pool's policy gives native jobs of {job.account or 'no class'} no GPUs (native_jobs)"


def native_users(host: Host) -> tuple[dict[int, set[int]], dict[str, set[int]]]:
    """Who may open which GPU while his jobs run, by its index, and by the file of a MIG instance."""
    users: dict[int, set[int]] = {}
    instances: dict[str, set[int]] = {}
    for record in read_records(host).by_job.values():
        for index in record.gpus:
            users.setdefault(index, set()).add(record.uid)
        for path in record.files:
            instances.setdefault(path, set()).add(record.uid)
    return users, instances


def service_uids(conf: ServerConf) -> set[int]:
    """Users of services that may open all GPUs."""
    found = set()
    for name in conf.device_users:
        try:
            found.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            continue  # a service that is not installed here
    return found


def refresh(host: Host, conf: ServerConf) -> list[str]:
    """Bring the device files in line with the records. What could not be done, in words."""
    with locked(host):
        return _apply(host, conf)


def _apply(host: Host, conf: ServerConf) -> list[str]:
    """`refresh`, under the lock: one that read the records earlier must not write later."""
    if not conf.fence:
        return []
    users, instances = native_users(host)
    left = host.fence.keep(users, service_uids(conf))
    return left + (host.fence.keep_instances(instances) if conf.enforcement == "mig" else [])


def policy_refusal(job: SlurmJob, conf: ServerConf) -> str:
    """Why the pool's policy lets no program of this owner onto the server itself, '' where it does."""
    if conf.native_jobs is None or job.uid == 0 or job.account in conf.native_jobs:
        return ""
    return f"the pool's policy lets no programs of {job.account or 'no class'} onto its servers (native_jobs)"


def grant_lease(host: Host, job: SlurmJob, conf: ServerConf) -> list[str]:
    """The owner of a lease whose program runs on the server itself may open its GPUs, which are whole, or its MIG
    instance. What could not be done, in words. Not among the wholes of native jobs: leases are counted as leases."""
    indices = sorted({part.index for part in job.held if part.node == conf.node})
    instance = instances_of(host).get(str(job.id))
    paths = [path for device in (instance.devices if instance else ()) for path in device.device_files]
    return [] if job.uid == 0 else _let_in(host, job, indices, [], conf, paths)


def _let_in(
    host: Host, job: SlurmJob, indices: list[int], whole: list[int], conf: ServerConf, files: Sequence[str] = ()
) -> list[str]:
    with locked(host):
        folder = folder_of(host)
        folder.mkdir(mode=0o700, exist_ok=True)
        NativeRecord(job.uid, tuple(indices), tuple(whole), tuple(files)).write(folder / str(job.id))
        return _apply(host, conf)


def grant(host: Host, job: SlurmJob, conf: ServerConf) -> list[str]:
    """Before a native job starts: its owner may open its GPUs, where the policy lets him. What stands against it, in
    words. Where device files are open to all it is recorded all the same: what he has is his while the job runs."""
    held = [part for part in job.held if part.node == conf.node]
    indices, whole = (sorted({part.index for part in parts}) for parts in (held, [p for p in held if not p.shards]))
    if not indices or job.uid == 0:
        return []
    why = refusal(job, conf) if conf.fence else ""
    return [why] if why else _let_in(host, job, indices, whole, conf)


def revoke(host: Host, *job_ids: str) -> list[str]:
    """After native jobs: their owners may not any more, but for what their other jobs have. What is left, in words."""
    own = [path for path in (folder_of(host) / job_id for job_id in job_ids) if path.exists()]
    if not own:
        return []
    conf = read_server_conf(host.server_conf)
    with locked(host):
        for path in own:
            path.unlink(missing_ok=True)
        return _apply(host, conf)


def written(host: Host) -> dict[str, int]:
    """Jobs with a record, and when it was written (ns): a job that is queued again has another one."""
    found = {}
    for job, path in paths(host).items():
        with suppress(FileNotFoundError):
            found[job] = path.stat().st_mtime_ns
    return found


def known(host: Host) -> set[str]:
    """Jobs with a record."""
    return set(paths(host))


def main(host: Host | None = None) -> int:
    """`fence`: close the device files to all but those who may open them; `fence open`: open them to all users."""
    host = host or this_host()
    opens = sys.argv[1:] == ["open"]
    left = host.fence.open_again() if opens else refresh(host, read_server_conf(host.server_conf))
    for words in left:
        print(words, file=sys.stderr)
    return os.EX_OSERR if left else 0
