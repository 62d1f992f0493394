"""A lease on its GPU server, as root: what Slurm's Prolog and Epilog do, and what the sweep does when they could not.

Everything of a lease lies in one folder, one unit and two ports, so that its end can be verified.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NoReturn

from toolkit.lease import JOB_NAME, LeaseError, engines
from toolkit.lease.endpoint import LeaseEndpoint, NoEndpoint
from toolkit.lease.engines import Installed, LeasedGpu, installed, load, transport_of
from toolkit.lease.fraction import host_memory_mib, memory_limit_mib, share_text
from toolkit.lease.instance_record import (
    DEADLINE,
    ENDING,
    ENDPOINT,
    INSTANCE,
    PEER_TOKEN,
    TOKEN,
    UIDS,
    Instance,
    Instances,
    Uncertain,
    read_instances,
    write_file,
)
from toolkit.lease.jobs.job_comment import JobComment, is_lease_comment
from toolkit.lease.jobs.lease_job import LeaseJob
from toolkit.lease.jobs.slurm_text import Held, SlurmJob
from toolkit.lease.machine.context_size import context_of, memory_notes
from toolkit.lease.machine.fence import GROUP
from toolkit.lease.machine.host import Host
from toolkit.lease.machine.processes import started
from toolkit.lease.machine.unit import UnitFailed
from toolkit.lease.on_server import AGENT_MIB, notes_on_devices
from toolkit.lease.server import ages, ceiling, mig
from toolkit.lease.server.journal import tell_all
from toolkit.lease.server.lease_locks import locked
from toolkit.lease.server.leftovers import kept_uids, verify_gone
from toolkit.lease.server.native_records import read_records
from toolkit.lease.server.overlap import AlreadyTaken, refuse_overlap
from toolkit.lease.server.part_notes import notes_on_parts
from toolkit.lease.server.peers import meeting_of
from toolkit.lease.server.ports import free_ports, taken_back
from toolkit.lease.server_conf import ServerConf
from toolkit.lease.wire import Deadline, EndCode
from validation.base.counting import number_of

MIB = 1 << 20
#: The agent alone, where no engine runs.
AGENT_TASKS = 512
#: So often a lease is given other ports where somebody took them before its unit had them.
TRIES = 3
#: Beside the folders of instances, and none of them: what a context takes of each GPU, as measured.
CONTEXTS = ".contexts.json"
#: Where an adapter is asked what it can do, before its unit has these files.
_NO_FILE = Path("/nonexistent")


class NothingGiven(LeaseError):
    """A job without a GPU: Slurm starts some so in the moments after a restart of its controller."""


def is_lease(job: SlurmJob) -> bool:
    """Whether a job asks for an instance."""
    return job.name == JOB_NAME and is_lease_comment(job.comment)


def known(host: Host) -> Instances:
    """The leases on this server."""
    return read_instances(host.run_dir)


def lease_number(host: Host, job_id: str) -> int:
    """By which its owner knows the lease of a job; the job's own number where its record does not say it."""
    instance = known(host).get(job_id)
    return int(job_id.lstrip("s")) if instance is None else instance.lease


def devices_of(
    host: Host,
    held: Sequence[Held],
    conf: ServerConf,
    lower_mib: int,
    others: Mapping[str, Instance] | None = None,
) -> list[LeasedGpu]:
    """The GPUs that Slurm gave, by UUID, with the memory that each part comes to; for a lease beside `others` the MIG
    instances where these hold parts, and what contexts take; for a native job (None) neither."""
    if not held:
        raise NothingGiven("Slurm gave the lease no GPU")
    gpus = {gpu.index: gpu for gpu in host.gpus.gpus()}
    of = conf.shards_per_gpu or 1
    contexts = cache(lambda: host.gpus.contexts(host.run_dir / CONTEXTS))  # asked only where memory is cut
    devices: list[LeasedGpu] = []
    taken = {device.uuid for other in (others or {}).values() for device in other.devices}
    for part in held:
        gpu = gpus.get(part.index)
        if gpu is None:
            raise LeaseError(f"Slurm gave GPU {part.index}, and the driver has only {number_of(len(gpus), 'GPU')}")
        shards, usable_mib = part.parts(of), gpu.memory_mib - gpu.reserved_mib
        if others is not None and (gpu.mig is not None or (conf.enforcement == "mig" and shards < of)):
            devices.append(mig.leased(gpu, shards, of, conf, lower_mib, taken))
            taken.add(devices[-1].uuid)
            continue
        limit = None if shards == of else memory_limit_mib(usable_mib, shards, of)
        if lower_mib:
            limit = min(lower_mib, limit or usable_mib)
        cut = limit is not None and others is not None
        context = context_of(gpu, share_text(shards, of), limit or 0, contexts()) if cut else 0
        about = (gpu.index, gpu.uuid, gpu.name, gpu.memory_mib)
        found = LeasedGpu(*about, shards, of, limit, gpu.emulated, context)
        devices.append(replace(found, capability=gpu.capability, driver=gpu.driver, cuda=gpu.cuda))
    return devices


def close_ports(host: Host, conf: ServerConf, anew: bool = False) -> None:
    """Close the ports of leases where they are not (`anew`: in any case), and keep them open for leases that run.

    A flush of all rules (`systemctl restart nftables`) takes the table away: an empty one alone would end every lease.
    """
    with locked(host):
        if not anew and host.firewall.loaded():
            return
        host.firewall.load(*conf.ports)
        for one in known(host).by_job.values():
            _admit(host, one)


def _admit(host: Host, one: Instance) -> None:
    """Clients to both ports; the lease's servers to its engine alone."""
    host.firewall.admit(one.clients, one.ports)
    if one.servers:
        host.firewall.admit(one.servers, [one.port])


def deadline_of(host: Host, request: JobComment, end: float | None) -> float | None:
    """The earlier of Slurm's end and the request's own."""
    ends = [t for t in (end, host.clock.time() + request.ttl_s if request.ttl_s else None) if t is not None]
    return min(ends, default=None)


def due_at(host: Host, until: float | None, code: EndCode = EndCode.TIME) -> Deadline:
    """The deadline that is so far away by the clocks as they are now."""
    due = None if until is None else host.clock.monotonic() + until - host.clock.time()
    return Deadline(until, due, code)


def _memory_mib(devices: list[LeasedGpu], conf: ServerConf, engine: str, asked_mib: int | None) -> int:
    """Host memory of the instance: exactly what its job asked Slurm for, so that the server never promises more than it
    has. LeaseError where that is less than the engine needs. Without a job (None): what it needs."""
    needed = sum(
        host_memory_mib(
            conf.memory_mib or engines.host_memory_mib(engine, d.emulated, d.whole),
            [(d.limit_mib or d.memory_mib) if d.emulated else None],
        )
        for d in devices
    )
    if asked_mib is not None and asked_mib < needed:
        words = f"the lease's job asked for {asked_mib} MiB of host memory, its engine needs {needed} here"
        raise LeaseError(f"{conf.node}: {words}; is pool.json of its machine of another run of site.yml?")
    return needed if asked_mib is None else asked_mib


def clients_of(host: Host, request: JobComment, conf: ServerConf) -> list[str]:
    """Who may connect. Of this server's own addresses only the one that it serves on, where a client is this server:
    with another (Docker's bridge has the same address everywhere) any program here could pass for the client."""
    own = host.network.own_addresses() - {conf.address}
    clients = [address for address in request.clients if address not in own]
    if not clients:
        raise LeaseError(f"the lease's clients ({', '.join(request.clients)}) are addresses of {conf.node} itself")
    return clients


def _idle_notes(limit_s: float | None) -> list[str]:
    """Told at the start, because nobody may be there to hear it later."""
    if limit_s is None:
        return []
    return [f"it is taken back when its GPUs were not used for {number_of(limit_s / 60, 'minute')}"]


def _mps_pipe(conf: ServerConf, devices: Sequence[LeasedGpu]) -> Path | None:
    """Where MPS holds an engine's parts; LeaseError where it should and does not run."""
    if conf.enforcement != "mps" or all(device.whole for device in devices):
        return None
    pipe = Path(conf.mps_pipe)
    if not pipe.is_dir():
        raise LeaseError(f"{conf.node} cannot hold a part of a GPU: no MPS daemon runs ({pipe} is not there)")
    return pipe


def describe(host: Host, job: LeaseJob, request: JobComment, conf: ServerConf) -> Instance:
    """The instance that a job gets, under the lock; LeaseError when this server cannot give it."""
    native = request.where == "server"
    engine = Installed("", "", conf.engine_dir) if native else installed(conf.engine_dir, request.engine)
    others = known(host).certain(but=job.job)
    transport = "tcp" if native else transport_of(engine.engine, conf.transport, engine.folder == conf.engine_dir)
    devices = devices_of(host, job.held, conf, 0 if native else request.memory_mib, others)
    native_notes = notes_on_devices(devices, conf, job.account) if native else []
    refuse_overlap(devices, others, read_records(host).wholes())
    meeting = None if native else meeting_of(host, job, conf, engine.engine)
    port, agent_port, ended = free_ports(host, conf, others, meeting.port if meeting else None)
    tell_all("ports of leases", ended)
    memory_mib = AGENT_MIB if native else _memory_mib(devices, conf, engine.engine, job.memory_mib)
    instance = Instance(
        job=job.job,
        lease=job.lease,
        owner_uid=job.uid,
        mode=request.mode,
        host=request.host,
        clients=tuple(clients_of(host, request, conf)),
        address=conf.address,
        port=port,
        agent_port=agent_port,
        devices=tuple(devices),
        engine=engine.engine,
        release=engine.release,
        engine_dir=engine.folder,
        mps_pipe=None if native else _mps_pipe(conf, devices),
        transport=transport,
        device_group=GROUP if conf.fence and not native else "",
        deadline=deadline_of(host, request, job.until),
        slurm_end=job.slurm_end,
        deadline_file=host.run_dir / job.job / DEADLINE,
        grace_s=conf.grace_s,
        heartbeat_s=conf.heartbeat_s,
        first_s=conf.first_s,
        memory_bytes=memory_mib * MIB,
        job_memory_mib=job.memory_mib or 0,
        job_cpus=job.cpus,
        tasks=AGENT_TASKS if native else load(engine.engine).TASKS,
        idle_s=conf.idle_limit_s(job.uid, job.account, [device.name for device in devices]),
        started=host.clock.time(),
        where=request.where,
        peers=meeting.peers_at(port) if meeting else (),
        up_to=0 if native else min(request.up_to, max(device.of for device in devices)),
    )
    return replace(instance, notes=(*_notes(host, instance, conf, native_notes), *_idle_notes(instance.idle_s)))


def _notes(host: Host, instance: Instance, conf: ServerConf, native_notes: Sequence[str]) -> list[str]:
    """What its owner ought to know; LeaseError where the engine cannot hold its parts. native_notes: how a part is held
    of a program on this server itself, if in a way of its own."""
    parts = any(not device.whole for device in instance.devices)
    if instance.native:
        return [*native_notes, *(notes_on_parts(host, instance.devices, conf) if parts and not native_notes else [])]
    adapter, start = load(instance.engine), instance.start(_NO_FILE, _NO_FILE)
    problem = adapter.keeps_part(start) if parts else ""
    if problem:
        raise LeaseError(f"{conf.node} cannot hold a part of a GPU: {problem}")
    sizes = notes_on_parts(host, instance.devices, conf) if parts else []
    more = [ceiling.note(instance)] if instance.up_to else []
    return [*adapter.notes(start), *memory_notes(instance.devices), *sizes, *more]


def start(host: Host, job: SlurmJob, conf: ServerConf) -> None:
    """Start the instance of a lease's job and publish its endpoint to the owner alone. On failure nothing stays but the
    endpoint file, which then holds the reason; LeaseError with that reason."""
    begin(host, LeaseJob.of(job, conf.node), conf)


def _make(host: Host, folder: Path) -> None:
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    folder.chmod(0o711)
    ages.born(host, folder)


def refuse(host: Host, job: LeaseJob, conf: ServerConf, why: str, again: bool = False) -> NoReturn:
    """Leave nothing of the instance but the reason, for its owner; LeaseError with it. again: whether another server
    may start it."""
    folder = host.run_dir / job.job
    end_instance(host, job.job)
    _make(host, folder)
    write_file(folder / ENDPOINT, NoEndpoint(why, conf.node, again).text(), 0o400, job.uid)
    raise LeaseError(why) from None


def begin(host: Host, job: LeaseJob, conf: ServerConf) -> None:
    """As `start`, from what is known of the job."""
    if job.problem:
        refuse(host, job, conf, job.problem)
    folder = host.run_dir / job.job
    try:
        end_instance(host, job.job)  # of a job of the same number, when Slurm's numbers began anew
        request = JobComment.read(job.comment)
        close_ports(host, conf)
        token = secrets.token_urlsafe(32)
        for attempt in range(TRIES):
            with locked(host):
                instance = describe(host, job, request, conf)
                _make(host, folder)
                instance.write(folder)
                _admit(host, instance)
            write_file(folder / TOKEN, token + "\n", 0o400)
            meeting = meeting_of(host, job, conf, instance.engine) if instance.peers else None
            if meeting is not None:
                write_file(folder / PEER_TOKEN, meeting.token + "\n", 0o400)
            write_deadline(folder, due_at(host, instance.deadline))
            ceiling.rebalance(host)  # its GPU is nobody else's any more
            try:
                host.systemd.start(instance, folder)
                break
            except UnitFailed:
                stolen = taken_back(host, instance.ports)
                tell_all(f"lease {job.lease}", stolen)
                if not stolen or attempt == TRIES - 1:
                    raise
                host.firewall.shut(instance.ports)
                host.systemd.stop(job.job)
        ceiling.rebalance(host)
        write_file(folder / ENDPOINT, LeaseEndpoint.of(instance, token, conf.node).text(), 0o400, job.uid)
    except (LeaseError, OSError, KeyError, ValueError) as fault:
        words = str(fault) if isinstance(fault, LeaseError) else f"{type(fault).__name__}: {fault}"
        words = "; ".join([words, *host.systemd.journal(job.job)]) if isinstance(fault, UnitFailed) else words
        elsewhere = (AlreadyTaken, NothingGiven, Uncertain, mig.NoInstance)
        refuse(host, job, conf, words, isinstance(fault, elsewhere))


def shut_strays(host: Host) -> list[str]:
    """Close the ports that no lease has, under the lock; why not, where it cannot be told which these are."""
    instances = known(host)
    if instances.lost:
        return []  # nothing is given out meanwhile either
    ports = {port for one in instances.by_job.values() for port in one.ports}
    try:
        host.firewall.shut({port for _address, port in host.firewall.admitted()} - ports)
    except LeaseError as fault:
        return [str(fault)]
    return []


def write_deadline(folder: Path, deadline: Deadline) -> None:
    """Tell the agent until when the lease is good, and why it ends then."""
    write_file(folder / DEADLINE, deadline.text(), 0o444)


def move_end(host: Host, job_id: str, slurm_end: float, deadline: Deadline) -> None:
    """Another end for a lease that is here; nothing where it has ended meanwhile."""
    folder = host.run_dir / job_id
    with locked(host):
        instance = Instance.read(folder)
        if instance is not None:
            write_deadline(folder, deadline)
            replace(instance, slurm_end=slurm_end, deadline=deadline.until).write(folder)


def close(host: Host, job_id: str) -> None:
    """From now on nothing of this lease is started any more."""
    folder = host.run_dir / job_id
    if folder.exists():
        (folder / ENDING).touch()


def lives(host: Host, job_id: str) -> bool:
    """Whether the lease is here, and its end has not begun."""
    folder = host.run_dir / job_id
    return (folder / INSTANCE).exists() and not (folder / ENDING).exists()


def end_instance(host: Host, job_id: str) -> list[str]:
    """Take back everything of a lease on this server, and look whether it is gone; what is not, in words."""
    folder = host.run_dir / job_id
    instance = known(host).get(job_id)
    ours = {pid: started(pid) for pid in host.systemd.pids(job_id)}
    if not folder.exists() and not ours and not host.systemd.active(job_id):
        return []
    uids = host.systemd.uids(job_id)
    if folder.exists():
        (folder / ENDING).touch()
        uids = kept_uids(folder / UIDS, uids)
    ports = list(instance.ports) if instance is not None else []
    left = []
    try:
        if ports and host.firewall.loaded():
            host.firewall.shut(ports)
            left += [f"port {port} is still open for {a}" for a, port in host.firewall.admitted() if port in ports]
    except LeaseError as fault:
        left.append(str(fault))
    host.systemd.stop(job_id)
    left += verify_gone(host, job_id, ours, ports, uids)
    if not left:
        with locked(host):
            lost = job_id in known(host).lost
            shutil.rmtree(folder, ignore_errors=True)
            if lost:
                left += shut_strays(host)
        ceiling.rebalance(host)
        if folder.exists():
            left.append(f"{folder} is still there")
    return left
