"""A lease on its GPU server, as root: what Slurm's Prolog and Epilog do, and what the sweep does when they could not.

Everything of a lease lies in one folder, one unit and two ports, so that its end can be verified.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from toolkit.lease import JOB_NAME, LeaseError, age, mig
from toolkit.lease.context_size import context_of, memory_notes
from toolkit.lease.engines import LeasedGpu, Start, installed, load, refuse_transport
from toolkit.lease.fence import GROUP
from toolkit.lease.fraction import host_memory_mib, memory_limit_mib, share_text
from toolkit.lease.gone import kept_uids, verify_gone
from toolkit.lease.host import Host
from toolkit.lease.job_comment import JobComment, is_lease_comment, parse_comment
from toolkit.lease.journal import tell_all
from toolkit.lease.on_server import AGENT_MIB, notes_on_devices
from toolkit.lease.overlap import AlreadyTaken, native_wholes, refuse_overlap
from toolkit.lease.part_notes import notes_on_parts
from toolkit.lease.ports import free_ports, taken_back
from toolkit.lease.processes import started
from toolkit.lease.server_conf import ServerConf
from toolkit.lease.slurm_text import Held, SlurmJob
from toolkit.lease.turns import locked
from toolkit.lease.unit import UnitFailed
from toolkit.lease.wire import Deadline, EndCode
from validation.base.counting import number_of

MIB = 1 << 20
#: The agent alone, where no engine runs.
AGENT_TASKS = 512
#: So often a lease is given other ports where somebody took them before its unit had them.
TRIES = 3
#: Beside the folders of instances, and none of them: what a context takes of each GPU, as measured.
CONTEXTS = ".contexts.json"
#: Files in an instance's folder.
ENDPOINT, INSTANCE, TOKEN, DEADLINE, ENDING = "endpoint.json", "instance.json", "token", "deadline", "ending"
#: Under which uids its unit ran, written when its end begins.
UIDS = "uids"


class NothingGiven(LeaseError):
    """A job without a GPU: Slurm starts some so in the moments after a restart of its controller."""


def is_lease(job: SlurmJob) -> bool:
    """Whether a job asks for an instance."""
    return job.name == JOB_NAME and is_lease_comment(job.comment)


def known(host: Host) -> dict[str, dict[str, Any]]:
    """Instances on this server by job; {} for a folder whose instance cannot be read."""
    found = {}
    for folder in (path for path in host.run_dir.glob("*") if path.is_dir()):
        try:
            found[folder.name] = json.loads((folder / INSTANCE).read_text())
        except (OSError, ValueError):
            found[folder.name] = {}
    return found


def devices_of(
    host: Host, held: list[Held], conf: ServerConf, lower_mib: int, others: dict[str, dict[str, Any]] | None = None
) -> list[LeasedGpu]:
    """The GPUs that Slurm gave, by UUID, with the memory that each part comes to; for a lease beside `others` the MIG
    instances where these hold parts, and what contexts take; for a native job (None) neither."""
    if not held:
        raise NothingGiven("Slurm gave the lease no GPU")
    gpus = {gpu.index: gpu for gpu in host.gpus.gpus()}
    of = conf.shards_per_gpu or 1
    contexts = cache(lambda: host.gpus.contexts(host.run_dir / CONTEXTS))  # asked only where memory is cut
    devices: list[LeasedGpu] = []
    taken = {device["uuid"] for other in (others or {}).values() for device in other.get("devices", [])}
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
        devices.append(LeasedGpu(*about, shards, of, limit, gpu.emulated, context))
    return devices


def close_ports(host: Host, conf: ServerConf, anew: bool = False) -> None:
    """Close the ports of leases where they are not (`anew`: in any case), and keep them open for leases that run.

    A flush of all rules (`systemctl restart nftables`) takes the table away: an empty one alone would end every lease.
    """
    with locked(host):
        if not anew and host.firewall.loaded():
            return
        host.firewall.load(*conf.ports)
        for data in known(host).values():
            if "port" in data:
                host.firewall.admit(data["clients"], (data["port"], data["agent_port"]))


def _write(path: Path, text: str, mode: int, uid: int = 0) -> None:
    """Replace a file whole; nobody sees it half written or with other rights."""
    scratch = path.with_name(f".{path.name}")
    scratch.unlink(missing_ok=True)
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.write(text)
        os.fchown(handle.fileno(), uid, -1)
        os.fchmod(handle.fileno(), mode)
    scratch.replace(path)


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
    emulated = ((d.limit_mib or d.memory_mib) if d.emulated else None for d in devices)
    needed = host_memory_mib(conf.memory_mib or load(engine).HOST_MEMORY_MIB, emulated)
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


def _idle_notes(instance: dict[str, Any]) -> list[str]:
    """Told at the start, because nobody may be there to hear it later."""
    limit = instance["idle_s"]
    return (
        [] if limit is None else [f"it is taken back when its GPUs were not used for {number_of(limit / 60, 'minute')}"]
    )


def describe(
    host: Host,
    job_id: str,
    lease: int,
    uid: int,
    request: JobComment,
    held: list[Held],
    end: float | None,
    slurm_end: float | None,
    memory_mib: int | None,
    conf: ServerConf,
    account: str = "",
    cpus: int = 0,
) -> dict[str, Any]:
    """The instance as data, under the lock; LeaseError when this server cannot give it."""
    native = request.where == "server"
    engine = {"engine": "", "release": ""} if native else installed(conf.engine_dir)
    others = {key: value for key, value in known(host).items() if key != job_id}
    if not native:
        refuse_transport(engine["engine"], conf.transport)
    devices = devices_of(host, held, conf, 0 if native else request.memory_mib, others)
    native_notes = notes_on_devices(devices, conf, account) if native else []
    refuse_overlap(devices, others, native_wholes(host))
    port, agent_port, ended = free_ports(host, conf, others)
    tell_all("ports of leases", ended)
    parts = any(not device.whole for device in devices)
    mps = Path(conf.mps_pipe) if conf.enforcement == "mps" and parts and not native else None
    if mps is not None and not mps.is_dir():
        raise LeaseError(f"{conf.node} cannot hold a part of a GPU: no MPS daemon runs ({mps} is not there)")
    folder = host.run_dir / job_id
    instance = {
        "job": job_id,
        "lease": lease,
        "owner_uid": uid,
        "mode": request.mode,
        "host": request.host,
        "clients": clients_of(host, request, conf),
        "address": conf.address,
        "port": port,
        "agent_port": agent_port,
        "devices": [asdict(device) for device in devices],
        "engine": engine["engine"],
        "release": engine["release"],
        "engine_dir": str(conf.engine_dir),
        "mps_pipe": str(mps) if mps else "",
        "transport": "tcp" if native else conf.transport,
        "device_group": GROUP if conf.fence and not native else "",
        "deadline": deadline_of(host, request, end),
        "slurm_end": slurm_end,
        "deadline_file": str(folder / DEADLINE),
        "grace_s": conf.grace_s,
        "heartbeat_s": conf.heartbeat_s,
        "first_s": conf.first_s,
        "memory_bytes": (AGENT_MIB if native else _memory_mib(devices, conf, engine["engine"], memory_mib)) * MIB,
        "job_memory_mib": memory_mib or 0,
        "job_cpus": cpus,
        "tasks": AGENT_TASKS if native else load(engine["engine"]).TASKS,
        "idle_s": conf.idle_limit_s(uid, account, [device.name for device in devices]),
        "started": host.clock.time(),
        "where": request.where,
    }
    if native:
        sizes = notes_on_parts(host, devices, conf) if parts and not native_notes else []
        return instance | {"notes": [*native_notes, *sizes, *_idle_notes(instance)]}
    adapter, start = load(engine["engine"]), start_of(instance)
    problem = adapter.keeps_part(start) if parts else ""
    if problem:
        raise LeaseError(f"{conf.node} cannot hold a part of a GPU: {problem}")
    notes = [*adapter.notes(start), *memory_notes(devices), *(notes_on_parts(host, devices, conf) if parts else [])]
    return instance | {"notes": [*notes, *_idle_notes(instance)]}


def start_of(instance: dict[str, Any]) -> Start:
    """What the engine's adapter is asked about."""
    return Start(
        engine_dir=Path(instance["engine_dir"]),
        release=instance["release"],
        address=instance["address"],
        port=instance["port"],
        port_file=Path("/nonexistent"),
        token_file=Path("/nonexistent"),
        clients=tuple(instance["clients"]),
        devices=tuple(LeasedGpu(**device) for device in instance["devices"]),
        mps_pipe=Path(instance["mps_pipe"]) if instance["mps_pipe"] else None,
        transport=instance.get("transport", "tcp"),
    )


def endpoint_of(instance: dict[str, Any], token: str, node: str) -> dict[str, Any]:
    """What the owner gets to know."""
    told = ("lease", "job", "mode", "address", "port", "agent_port", "engine", "release", "deadline", "notes", "where")
    return {
        **{key: instance[key] for key in told},
        "transport": instance.get("transport", "tcp"),
        "knock": True,
        "node": node,
        "token": token,
        "heartbeat_s": instance["heartbeat_s"],
        "grace_s": instance["grace_s"],
        "devices": instance["devices"],
    }


def start(host: Host, job: SlurmJob, conf: ServerConf) -> None:
    """Start the instance of a lease's job and publish its endpoint to the owner alone. On failure nothing stays but the
    endpoint file, which then holds the reason; LeaseError with that reason."""
    job_id = str(job.id)
    if job.problem:
        refuse(host, job_id, job.uid, conf, job.problem)
    if any(part.of for part in job.held):
        refuse(
            host, job_id, job.uid, conf, "a lease takes its parts of GPUs as shards, and this job has some by CUDA MPS"
        )
    held = [part for part in job.held if part.node == conf.node]
    asked_mib = job.memory_mib or 0
    # Its processors are shared among its servers as its GPUs are.
    cpus = -(-(job.cpus or 0) * len(held) // max(len(job.held), 1))
    begin(host, job_id, job.lease, job.uid, job.comment, held, conf, job.until, job.end, asked_mib, job.account, cpus)


def _make(host: Host, folder: Path) -> None:
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    folder.chmod(0o711)
    age.born(host, folder)


def refuse(host: Host, job_id: str, uid: int, conf: ServerConf, words: str, again: bool = False) -> NoReturn:
    """Leave nothing of the instance but the reason, for its owner; LeaseError with it."""
    folder = host.run_dir / job_id
    end_instance(host, job_id)
    _make(host, folder)
    _write(folder / ENDPOINT, json.dumps({"error": words, "node": conf.node, "again": again}), 0o400, uid)
    raise LeaseError(words) from None


def begin(
    host: Host,
    job_id: str,
    lease: int,
    uid: int,
    comment: str,
    held: list[Held],
    conf: ServerConf,
    end: float | None = None,
    slurm_end: float | None = None,
    memory_mib: int | None = None,
    account: str = "",
    cpus: int = 0,
) -> None:
    """As `start`, from what is known of the request. slurm_end: Slurm's record of its end, far away where none is.
    memory_mib: host memory that its job asked for, None without a job. account: its owner's class of users. cpus: the
    job's processors on this server, 0 where they are not known."""
    folder = host.run_dir / job_id
    try:
        end_instance(host, job_id)  # of a job of the same number, when Slurm's numbers began anew
        request = parse_comment(comment)
        close_ports(host, conf)
        token = secrets.token_urlsafe(32)
        for attempt in range(TRIES):
            with locked(host):
                instance = describe(
                    host, job_id, lease, uid, request, held, end, slurm_end, memory_mib, conf, account, cpus
                )
                _make(host, folder)
                _write(folder / INSTANCE, json.dumps(instance), 0o400)
                ports = (instance["port"], instance["agent_port"])
                host.firewall.admit(instance["clients"], ports)
            _write(folder / TOKEN, token + "\n", 0o400)
            write_deadline(folder, due_at(host, instance["deadline"]))
            try:
                host.systemd.start(instance, folder)
                break
            except UnitFailed:
                stolen = taken_back(host, ports)
                tell_all(f"lease {lease}", stolen)
                if not stolen or attempt == TRIES - 1:
                    raise
                host.firewall.shut(ports)
                host.systemd.stop(job_id)
        _write(folder / ENDPOINT, json.dumps(endpoint_of(instance, token, conf.node)), 0o400, uid)
    except (LeaseError, OSError, KeyError, ValueError) as fault:
        words = str(fault) if isinstance(fault, LeaseError) else f"{type(fault).__name__}: {fault}"
        words = "; ".join([words, *host.systemd.journal(job_id)]) if isinstance(fault, UnitFailed) else words
        refuse(host, job_id, uid, conf, words, isinstance(fault, (AlreadyTaken, NothingGiven, mig.NoInstance)))


def write_deadline(folder: Path, deadline: Deadline) -> None:
    """Tell the agent until when the lease is good, and why it ends then."""
    _write(folder / DEADLINE, deadline.text(), 0o444)


def move_end(host: Host, job_id: str, slurm_end: float, deadline: Deadline) -> None:
    """Another end for a lease that is here; nothing where it has ended meanwhile."""
    folder = host.run_dir / job_id
    with locked(host):
        data = known(host).get(job_id)
        if data:
            write_deadline(folder, deadline)
            data |= {"slurm_end": slurm_end, "deadline": deadline.until}
            _write(folder / INSTANCE, json.dumps(data), 0o400)


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
    instance = known(host).get(job_id, {})
    ours = {pid: started(pid) for pid in host.systemd.pids(job_id)}
    if not folder.exists() and not ours and not host.systemd.active(job_id):
        return []
    uids = host.systemd.uids(job_id)
    if folder.exists():
        (folder / ENDING).touch()
        uids = kept_uids(folder / UIDS, uids)
    ports = [int(instance[key]) for key in ("port", "agent_port") if key in instance]
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
            shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            left.append(f"{folder} is still there")
    return left
