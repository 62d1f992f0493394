"""What root runs on a GPU server: Slurm's Prolog and Epilog, the unit's end, and the sweep.

A Prolog or Epilog that fails drains the node, so they fail for nothing but a node that cannot be trusted with the next
job: a lease that could not start ends with its reason; an end that left something behind drains, and so does a Slurm
that says one thing to the Prolog and another to whoever asks it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from subprocess import SubprocessError

from toolkit.lease import LeaseError
from toolkit.lease.instance_record import ENDING, ENDPOINT, is_static
from toolkit.lease.jobs.job_comment import ended_text
from toolkit.lease.jobs.lease_job import LeaseJob
from toolkit.lease.jobs.slurm_text import SlurmJob, index_list
from toolkit.lease.machine.host import Host, this_host
from toolkit.lease.machine.unit import PROGRAMS
from toolkit.lease.on_server import on_server
from toolkit.lease.server import container, handover, instance, native
from toolkit.lease.server.journal import tell, tell_all
from toolkit.lease.server.lease_locks import locked, turn
from toolkit.lease.server.native_records import read_records
from toolkit.lease.server.overlap import AlreadyTaken, refuse_overlap
from toolkit.lease.server_conf import ServerConf, read_server_conf


def _job_id() -> str:
    job_id = os.environ.get("SLURM_JOB_ID", "")
    if not job_id.isdigit():
        raise LeaseError("SLURM_JOB_ID is not set: only Slurm starts leases")
    return job_id


class Contradiction(LeaseError):
    """Slurm's two answers about one job differ: none of them can be trusted, nor this node before somebody looked."""


def cross_check(job: SlurmJob, node: str) -> None:
    """Hold what Slurm's controller says of a job against the environment that slurmd gave the Prolog.

    Contradiction where owner or GPUs differ; what is not in the environment contradicts nothing. LeaseError for a job
    that has left this node since, which its owner may have brought about.
    """
    uid, gpus = os.environ.get("SLURM_JOB_UID"), os.environ.get("SLURM_JOB_GPUS", "")
    if uid is not None and uid != str(job.uid):
        raise Contradiction(f"Slurm says that job {job.id} is of uid {job.uid}, and to the Prolog: of uid {uid}")
    if node not in job.nodes or job.state not in ("RUNNING", "CONFIGURING"):
        raise LeaseError(f"job {job.id} is not here any more ({job.state.lower()})")
    if gpus and not job.problem:
        told, held = set(index_list(gpus)), {part.index for part in job.held if part.node == node}
        if told != held:
            words = f"GPUs {', '.join(map(str, sorted(held))) or 'none'}, and to the Prolog: {gpus[:80]}"
            raise Contradiction(f"Slurm says that job {job.id} has of {node} {words}")


def give_way(host: Host, job: SlurmJob, conf: ServerConf) -> bool:
    """A job that has GPUs here and is no lease: back into the queue where Slurm gave it a GPU with leases on it. True
    where it stays.

    Slurm 22.05 takes a GPU for free of shards as soon as one of several jobs that have shards of it has ended.
    """
    held = [part for part in job.held if part.node == conf.node]
    try:
        if held:
            with locked(host):
                refuse_overlap(instance.devices_of(host, held, conf, 0), instance.known(host).certain())
    except AlreadyTaken as fault:
        tell(f"job {job.id}: {fault}")
        done = host.slurm.run(["scontrol", "requeue", str(job.id)])
        if done.returncode != 0:
            host.slurm.cancel(job.id)  # one that cannot be queued again
        return False
    return True


def _start(host: Host, job: SlurmJob, conf: ServerConf) -> None:
    """The instance of a lease; where its program runs on this server, the owner may open its GPUs too."""
    native_lease = on_server(job)
    why = native.policy_refusal(job, conf) if native_lease else ""
    lease_job = LeaseJob.of(job, conf.node)
    if why:
        instance.refuse(host, lease_job, conf, why)
    instance.begin(host, lease_job, conf)
    left = native.grant_lease(host, job, conf) if native_lease else []
    if left:
        tell_all(f"job {job.id}: its owner may still open its GPUs", native.revoke(host, str(job.id)))
        instance.refuse(host, lease_job, conf, f"{conf.node} cannot open its GPUs to you: {'; '.join(left)}")


def _clear(host: Host, conf: ServerConf, gpus: Collection[int], owners: Collection[int] = ()) -> list[str]:
    """Before GPUs go to the next: who still has them and may not, in words."""
    told, left = handover.clear(host, conf, gpus, owners)
    tell_all(f"GPUs {', '.join(map(str, sorted(gpus)))}", told)
    return left


def _admit(host: Host, job: SlurmJob, conf: ServerConf) -> bool:
    """What a job needs of this server before it starts. False where a GPU of it cannot be given to anybody."""
    job_id = str(job.id)
    if job.held:
        tell_all("device files of GPUs", native.refresh(host, conf))
        left = _clear(host, conf, {part.index for part in job.held if part.node == conf.node})
        if left:
            tell(f"job {job_id}: its GPUs are not free: {'; '.join(left)}")
            return False
    if not instance.is_lease(job):
        if give_way(host, job, conf):
            tell_all(f"job {job_id}: its owner cannot open its GPUs", native.grant(host, job, conf))
        return True
    unknown = host.users.problem(job.uid, job.user, conf.node)
    if unknown:
        tell(f"lease {job.lease}: {unknown}")
        give_back(host, job_id, job.lease, unknown)  # Slurm would try it again for ever
        return True
    tell_all(f"job {job_id}: containers of an earlier lease of its number", container.remove(host, job_id))
    _start(host, job, conf)
    tell(f"lease {job.lease}: instance of job {job_id} started for {job.user}")
    return True


def prolog(host: Host | None = None) -> int:
    """Before a job starts here: start its instance when it is a lease. 1, so that Slurm drains the node, for a
    Contradiction, and where somebody has a GPU of the job's and cannot be made to leave it."""
    host = host or this_host()
    try:
        job_id = _job_id()
        with turn(host, job_id):
            job = host.slurm.job(int(job_id))
            if job is None:
                raise LeaseError("Slurm does not know the job any more")
            conf = read_server_conf(host.server_conf)
            cross_check(job, conf.node)
            if not _admit(host, job, conf):
                tell("this node takes no more jobs until an administrator has looked")
                return 1
    except Contradiction as fault:
        tell(f"{fault}; no lease started, and this node takes no more jobs until an administrator has looked")
        return 1
    except LeaseError as fault:
        tell(f"job {os.environ.get('SLURM_JOB_ID', '?')}: no lease started: {fault}")
    except (OSError, SubprocessError, ValueError, KeyError) as fault:
        # A program's answer that is none; or no room for a file or a process at this moment, as any user can bring
        # about: the job has no lease.
        tell(f"job {os.environ.get('SLURM_JOB_ID', '?')}: no lease started: {type(fault).__name__}: {fault}")
    return 0


def had(host: Host, job_ids: Sequence[str]) -> tuple[set[int], set[int]]:
    """GPUs that jobs had here, as leases or natively, and whose they were."""
    gpus, owners = read_records(host).had(job_ids)
    instances = instance.known(host)
    for one in (instances.get(job_id) for job_id in job_ids):
        if one is not None:
            gpus |= one.indices
            owners.add(one.owner_uid)
    return gpus, owners


def take_back(host: Host, job_id: str) -> list[str]:
    """Everything of a lease is taken back: first what would start more of it. What is left, in words."""
    instance.close(host, job_id)
    return container.remove(host, job_id) + instance.end_instance(host, job_id)


def freed(host: Host, gpus: Collection[int], owners: Collection[int]) -> list[str]:
    """After jobs ended: who still has their GPUs, in words."""
    return _clear(host, read_server_conf(host.server_conf), gpus, owners) if gpus else []


def _end_all(host: Host, job_id: str) -> tuple[list[str], list[str], list[str]]:
    """What is left of a lease or native job that has ended, who may still open its GPUs, and who has them open."""
    with turn(host, job_id):
        gpus, owners = had(host, [job_id])
        if os.environ.get("SLURM_JOB_UID", "").isdigit() and gpus:
            owners.add(int(os.environ["SLURM_JOB_UID"]))
        left = take_back(host, job_id)
        return left, native.revoke(host, job_id), freed(host, gpus, owners)


def epilog(host: Host | None = None) -> int:
    """After a job ended here: nothing of a lease stays, and nobody has its GPUs. 1 when something did, so that Slurm
    drains the node."""
    host = host or this_host()
    try:
        job_id = _job_id()
    except LeaseError as fault:
        tell(str(fault))
        return 0
    was = (host.run_dir / job_id).exists()
    try:
        left, open_still, kept = _end_all(host, job_id)
    except (LeaseError, OSError, SubprocessError, ValueError, KeyError) as fault:
        words = str(fault) if isinstance(fault, LeaseError) else f"{type(fault).__name__}: {fault}"
        left, open_still, kept = [words], [], []
    tell_all(f"job {job_id}: not everything of its lease was removed", left)
    tell_all(f"job {job_id}: its owner may still open its GPUs", open_still)
    tell_all(f"job {job_id}: its GPUs are not free", kept)
    if left or open_still or kept:
        return 1
    if was:
        tell(f"job {job_id}: processes, ports, rules, files and GPU memory of its lease are removed")
    return 0


def stopped(host: Host | None = None) -> int:
    """After the unit ended: if nobody asked for that, the lease's job ends too, with the reason in its record."""
    host = host or this_host()
    job_id = sys.argv[1]
    folder = host.run_dir / job_id
    if not folder.exists() or (folder / ENDING).exists():
        return 0
    if len(sys.argv) == 3:
        give_back(host, job_id, instance.lease_number(host, job_id), sys.argv[2])
        return 0
    if not (folder / ENDPOINT).exists():
        return 0  # it never came up: the Prolog is still there and says so itself
    why = host.systemd.reason_left(job_id) or f"the server's unit ended ({os.environ.get('SERVICE_RESULT', 'unknown')})"
    tell(f"lease {instance.lease_number(host, job_id)}: {why}")
    if is_static(job_id):
        return 0  # without Slurm; the sweep takes it away
    # From outside the unit: its own control group may reach nobody but the client, and is about to go.
    host.systemd.run_apart(f"elastic-ai-lease-return-{job_id}", [str(PROGRAMS / "stopped"), job_id, why])
    return 0


def give_back(host: Host, job_id: str, lease: int, why: str) -> None:
    """End a lease's job from the server's side, and note why."""
    try:
        host.slurm.run(["scontrol", "update", f"JobId={job_id}", f"AdminComment={ended_text(why)}"])
        host.slurm.cancel(lease)
    except LeaseError as fault:
        tell(f"lease {lease}: Slurm cannot cancel it now ({fault}); the sweep tries again")


def _contexts(host: Host) -> dict[str, int]:
    try:
        return host.gpus.contexts(host.run_dir / instance.CONTEXTS)
    except LeaseError:
        return {}  # its owner learns why, when a part is asked for


def inventory(host: Host | None = None) -> int:
    """Print this server's GPUs as JSON; with the reason in place of them when there are none. context_bytes: what a
    context takes of one, 0 where it could not be measured."""
    host = host or this_host()
    try:
        found = host.gpus.gpus()
        contexts = _contexts(host) if found else {}
        gpus = [asdict(gpu) | {"context_bytes": contexts.get(gpu.uuid, 0)} for gpu in found]
        print(json.dumps({"gpus": gpus, "problem": ""}))
    except LeaseError as fault:
        print(json.dumps({"gpus": [], "problem": str(fault)}))
    return 0


def close_ports(host: Host | None = None) -> int:
    """`load`: close the ports of leases; those that run stay open. `remove`: take the table away."""
    host = host or this_host()
    if sys.argv[1:] == ["remove"]:
        host.firewall.remove()
        with suppress(LeaseError):
            host.sockets.reserve(*read_server_conf(host.server_conf).ports, keep=False)
        return 0
    conf = read_server_conf(host.server_conf)
    host.sockets.reserve(*conf.ports)
    instance.close_ports(host, conf, anew=True)
    tell_all("device files of GPUs", native.refresh(host, conf))
    return 0
