"""What root runs on a GPU server: Slurm's Prolog and Epilog, the unit's end, and the sweep.

A Prolog or Epilog that fails drains the node, so they fail for nothing but a node that cannot be trusted with the next
job: a lease that could not start ends with its reason; an end that left something behind drains, and so does a Slurm
that says one thing to the Prolog and another to whoever asks it.
"""

from __future__ import annotations

import json
import os
import sys
import syslog
import time
from collections.abc import Container
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolkit.lease import JOB_NAME, LeaseError, age, container, idle, instance, native
from toolkit.lease.host import Host, this_host
from toolkit.lease.job_comment import ended_reason, ended_text
from toolkit.lease.on_server import on_server
from toolkit.lease.overlap import AlreadyTaken, refuse_overlap
from toolkit.lease.server_conf import ServerConf, read_server_conf
from toolkit.lease.slurm_text import SlurmJob, epoch, index_list
from toolkit.lease.unit import PROGRAMS
from toolkit.lease.wire import WORDS, EndCode

#: A lease that could not start is read by its owner within this time, and then taken out of the queue.
ERROR_READ_S = 30
#: A lease's job that runs for so long without an instance never gets one: Slurm ends a Prolog after 120 s
#: (PrologEpilogTimeout, role slurm).
PROLOG_S = 150.0


def tell(words: str) -> None:
    """To the journal, and to whoever runs this by hand."""
    syslog.openlog("elastic-ai-lease", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(words)
    print(words, file=sys.stderr)


def tell_all(what: str, words: list[str]) -> None:
    """`tell`, where there is something to tell."""
    if words:
        tell(f"{what}: {'; '.join(words)}")


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
            with instance.locked(host):
                refuse_overlap(instance.devices_of(host, held, conf, 0), instance.known(host))
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
    if why:
        instance.refuse(host, str(job.id), job.uid, conf, why)
    instance.start(host, job, conf)
    left = native.grant_lease(host, job, conf) if native_lease else []
    if left:
        tell_all(f"job {job.id}: its owner may still open its GPUs", native.revoke(host, str(job.id)))
        instance.refuse(host, str(job.id), job.uid, conf, f"{conf.node} cannot open its GPUs to you: {'; '.join(left)}")


def prolog(host: Host | None = None) -> int:
    """Before a job starts here: start its instance when it is a lease. 1 for a Contradiction: Slurm drains the node."""
    host = host or this_host()
    try:
        job_id = _job_id()
        job = host.slurm.job(int(job_id))
        if job is None:
            raise LeaseError("Slurm does not know the job any more")
        conf = read_server_conf(host.server_conf)
        cross_check(job, conf.node)
        if job.held:
            tell_all("device files of GPUs", native.refresh(host, conf))
        if not instance.is_lease(job):
            if give_way(host, job, conf):
                tell_all(f"job {job.id}: its owner cannot open its GPUs", native.grant(host, job, conf))
            return 0
        unknown = host.users.problem(job.uid, job.user, conf.node)
        if unknown:
            tell(f"lease {job.lease}: {unknown}")
            give_back(host, job_id, job.lease, unknown)  # Slurm would try it again for ever
            return 0
        _start(host, job, conf)
        tell(f"lease {job.lease}: instance of job {job_id} started for {job.user}")
    except Contradiction as fault:
        tell(f"{fault}; no lease started, and this node takes no more jobs until an administrator has looked")
        return 1
    except LeaseError as fault:
        tell(f"job {os.environ.get('SLURM_JOB_ID', '?')}: no lease started: {fault}")
    return 0


def epilog(host: Host | None = None) -> int:
    """After a job ended here: nothing of a lease stays. 1 when something did, so that Slurm drains the node."""
    host = host or this_host()
    try:
        job_id = _job_id()
    except LeaseError as fault:
        tell(str(fault))
        return 0
    was = (host.run_dir / job_id).exists()
    left = container.remove(host, job_id) + instance.end_instance(host, job_id)
    tell_all(f"job {job_id}: not everything of its lease was removed", left)
    try:
        open_still = native.revoke(host, job_id)
    except (LeaseError, OSError) as fault:
        open_still = [str(fault)]
    tell_all(f"job {job_id}: its owner may still open its GPUs", open_still)
    if left or open_still:
        return 1
    if was:
        tell(f"job {job_id}: processes, ports, rules, files and GPU memory of its lease are removed")
    return 0


def stopped(host: Host | None = None) -> int:
    """After the unit ended: if nobody asked for that, the lease's job ends too, with the reason in its record."""
    host = host or this_host()
    job_id = sys.argv[1]
    folder = host.run_dir / job_id
    if not folder.exists() or (folder / instance.ENDING).exists():
        return 0
    if len(sys.argv) == 3:
        give_back(host, job_id, int(instance.known(host).get(job_id, {}).get("lease", job_id)), sys.argv[2])
        return 0
    data = instance.known(host).get(job_id, {})
    if not (folder / instance.ENDPOINT).exists():
        return 0  # it never came up: the Prolog is still there and says so itself
    why = host.systemd.reason_left(job_id) or f"the server's unit ended ({os.environ.get('SERVICE_RESULT', 'unknown')})"
    tell(f"lease {data.get('lease', job_id)}: {why}")
    if job_id.startswith("s"):
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
    return [number for number, passed_s in age.seen_for_s(host, without).items() if passed_s > PROLOG_S]


def _move_end(host: Host, job_id: str, data: dict[str, Any], end: float) -> None:
    """A lease whose end is another in Slurm's record; an earlier one has a reason, which Slurm is asked for."""
    until, code = end, EndCode.TIME
    if end < data["slurm_end"]:
        until = min(end, data["deadline"] or end)
        try:
            job = host.slurm.job(int(job_id))
        except LeaseError as fault:
            tell(f"lease {data['lease']}: ends earlier, and Slurm does not say why ({fault}); asked again next time")
            return
        if job is not None and job.preempted:
            code = EndCode.PREEMPTED
        elif job is not None and ended_reason(job.admin_comment):
            code = EndCode.ADMINISTRATOR
    instance.move_end(host, job_id, end, instance.due_at(host, until, code))
    why = "" if code is EndCode.TIME else f": {WORDS[code]}"
    tell(f"lease {data['lease']}: goes on until {time.strftime('%F %T', time.localtime(until))}{why}")


def _sweep_one(host: Host, job_id: str, folder: Path, end: float | None) -> None:
    data, age_s = instance.known(host).get(job_id, {}), age.age_s(host, folder)
    if not folder.exists():
        return  # its Epilog was here meanwhile
    if not data:
        if age_s > ERROR_READ_S:
            give_back(host, job_id, int(job_id), "it could not start")
        return
    if end is not None and data.get("slurm_end") is not None and abs(end - data["slurm_end"]) > 1:
        _move_end(host, job_id, data, end)
    if age_s > ERROR_READ_S and not host.systemd.active(job_id):
        give_back(host, job_id, int(data["lease"]), "its instance is gone")


def sweep(host: Host | None = None) -> int:
    """Leases whose job is gone, jobs whose instance is gone, new ends, stray rules."""
    host = host or this_host()
    conf = read_server_conf(host.server_conf)
    instance.close_ports(host, conf)
    tell_all("device files of GPUs", native.refresh(host, conf))
    for job_id in [name for name in instance.known(host) if name.startswith("s")]:
        if age.age_s(host, host.run_dir / job_id) > ERROR_READ_S and not host.systemd.active(job_id):
            tell(f"static lease {job_id} is over: " + ("; ".join(instance.end_instance(host, job_id)) or "gone"))
    # Before Slurm is asked: what starts after its answer is none of this sweep's business.
    known, running = instance.known(host), host.systemd.running()
    jobs = _jobs_here(host, conf.node)
    if jobs is None:
        return 0  # without Slurm's word nothing is taken from anybody; the agents keep the time
    for job_id, words in idle.look(host).items():
        tell(f"lease {known.get(job_id, {}).get('lease', job_id)}: {words}")
    failed = len(native.revoke(host, *(native.known(host) - set(jobs))))
    for job_id in {*known, *running}:
        folder = host.run_dir / job_id
        if job_id.startswith("s"):
            continue
        if job_id in jobs and folder.exists():
            _sweep_one(host, job_id, folder, jobs[job_id])
        elif job_id not in jobs and (not folder.exists() or age.age_s(host, folder) > 5):
            left = container.remove(host, job_id) + instance.end_instance(host, job_id)
            tell(f"job {job_id} is over and its lease was still here: " + ("; ".join(left) or "gone now"))
            failed += bool(left)
    if set(jobs) - set(known):
        for job_id in _never_started(host, conf.node, known):
            give_back(host, job_id, int(job_id), "its server never started it")
    with instance.locked(host):
        ports = {data[key] for data in instance.known(host).values() for key in ("port", "agent_port") if key in data}
        host.firewall.shut({port for _address, port in host.firewall.admitted()} - ports)
    return 1 if failed else 0


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
        return 0
    conf = read_server_conf(host.server_conf)
    instance.close_ports(host, conf, anew=True)
    tell_all("device files of GPUs", native.refresh(host, conf))
    return 0
