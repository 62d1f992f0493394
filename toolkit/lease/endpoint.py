"""Where a lease's server is, as its owner learns it, and the first look whether it can be used from here."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from toolkit.lease import RUN_DIR, Exit, LeaseError
from toolkit.lease.display import several
from toolkit.lease.engines import Installed, LeasedGpu, Server, all_installed, installed, refuse_open
from toolkit.lease.fields import DamagedDocument, Fields
from toolkit.lease.fraction import share_text
from toolkit.lease.instance_record import ENDPOINT, Instance
from toolkit.lease.jobs.slurm_text import Complaint, SlurmError, SlurmJob
from toolkit.lease.machine.host import Host

#: Between Slurm's "running" and the endpoint lies the Prolog, which may still be at work (75 s for an engine's start).
APPEARS_S = 105
PROBE_S = 5.0
#: Complaints after which the same question may find the endpoint.
LATER = (Complaint.BUSY, Complaint.AWAY, Complaint.NO_ANSWER)
#: How long the engine's library may take to reach all servers; less than any agent's patience with a silent owner.
COUNT_S = 20.0
_COUNT = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
print(cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
"""


@dataclass(frozen=True)
class LeaseEndpoint:
    """One server of a lease, as a file on it tells the lease's owner. deadline: seconds since the epoch, None where
    only Slurm's patience ends it. where: where its program runs: on its client, by an engine, or on this server itself.
    transport: what carries the bytes between its program and the engine. knock: whether its agent wants to hear first
    who comes (wire.knock)."""

    lease: int
    job: str
    node: str
    address: str
    port: int
    agent_port: int
    token: str
    engine: str
    release: str
    mode: str
    deadline: float | None
    heartbeat_s: float
    grace_s: float
    devices: tuple[LeasedGpu, ...]
    notes: tuple[str, ...]
    where: Literal["client", "server"] = "client"
    transport: str = "tcp"
    knock: bool = True

    @classmethod
    def of(cls, instance: Instance, token: str, node: str) -> LeaseEndpoint:
        """What the owner of an instance gets to know."""
        return cls(
            lease=instance.lease,
            job=instance.job,
            node=node,
            address=instance.address,
            port=instance.port,
            agent_port=instance.agent_port,
            token=token,
            engine=instance.engine,
            release=instance.release,
            mode=instance.mode,
            deadline=instance.deadline,
            heartbeat_s=instance.heartbeat_s,
            grace_s=instance.grace_s,
            devices=instance.devices,
            notes=instance.notes,
            where=instance.where,
            transport=instance.transport,
        )

    @classmethod
    def read(cls, fields: Fields) -> LeaseEndpoint:
        """As it stands in a document; DamagedDocument where it is none."""
        found = cls(
            lease=fields.number("lease"),
            job=fields.text("job", r"s?[0-9]{1,10}"),
            node=fields.text("node", r"[^\s\x00-\x1f\x7f]{1,255}"),
            address=fields.host("address"),
            port=fields.number("port", least=1, most=65535),
            agent_port=fields.number("agent_port", least=1, most=65535),
            token=fields.secret("token", r"[A-Za-z0-9_-]{16,128}"),
            engine=fields.text("engine"),
            release=fields.text("release"),
            mode=fields.text("mode", "run|hold"),
            deadline=fields.seconds_or_none("deadline"),
            heartbeat_s=fields.seconds("heartbeat_s"),
            grace_s=fields.seconds("grace_s"),
            devices=tuple(map(LeasedGpu.read, fields.each("devices"))),
            notes=fields.texts("notes"),
            where="server" if fields.text("where", "client|server") == "server" else "client",
            transport=fields.text("transport", "tcp|verbs"),
            knock=fields.flag("knock"),
        )
        fields.end()
        if not found.devices:
            fields.refuse("devices", "is empty")
        return found

    def text(self) -> str:
        """The file's content."""
        return json.dumps(asdict(self))

    @property
    def server(self) -> Server:
        """For the engine's adapter."""
        return Server(self.address, self.port, self.token, len(self.devices), self.transport)

    @property
    def emulated(self) -> bool:
        """Whether any device is emulated."""
        return any(device.emulated for device in self.devices)


@dataclass(frozen=True)
class NoEndpoint:
    """What the owner reads in place of an endpoint: why the lease did not start. again: whether another server may
    start it."""

    error: str
    node: str
    again: bool = False

    @classmethod
    def read(cls, fields: Fields) -> NoEndpoint:
        """As it stands in a document; DamagedDocument where it is none."""
        found = cls(fields.text("error", r"(?s:.*)"), fields.text("node"), fields.flag("again"))
        fields.end()
        return found

    def text(self) -> str:
        """The file's content."""
        return json.dumps(asdict(self))


def gpus_text(endpoints: Sequence[LeaseEndpoint]) -> str:
    """The lease's GPUs in the order of its program, as JSON: uuid, emulated, memory_bytes (what of it is the lease's)
    and context_bytes (what the program's context takes of that; 0 for a whole GPU and a MIG instance, where nothing is
    cut). An engine may show its programs the size of the whole GPU. Beside these what NVML tells a program of the
    client (engine/nvml): name, server and the GPU's number there, total_bytes and part (1 for all of it), compute
    capability, the server's driver and its newest CUDA (13000; null where it does not say)."""
    gpus = [
        {
            "uuid": device.uuid,
            "emulated": device.emulated,
            "memory_bytes": device.usable_mib << 20,
            "context_bytes": device.context_bytes,
            "name": device.name,
            "server": endpoint.node,
            "server_index": device.index,
            "total_bytes": device.memory_mib << 20,
            "part": "1" if device.whole or device.mig else share_text(device.shards, device.of),
            "capability": device.capability,
            "driver": device.driver,
            "cuda": device.cuda or None,
        }
        for endpoint in endpoints
        for device in endpoint.devices
    ]
    return json.dumps(gpus)


class NotStarted(LeaseError):
    """The server could not start the lease, and asking Slurm again may lead elsewhere."""


def parse(text: str, what: str = "the server's endpoint file") -> LeaseEndpoint:
    """The endpoint in a server's file; LeaseError with the server's reason when the lease could not start."""
    try:
        fields = Fields.of(text, what)
        if not fields.has("error"):
            return LeaseEndpoint.read(fields)
        refused = NoEndpoint.read(fields)
    except DamagedDocument as fault:
        raise LeaseError(f"the server's endpoint cannot be read: {fault}") from None
    kind = NotStarted if refused.again else LeaseError
    raise kind(f"{refused.node}: {refused.error}", Exit.RETRY)


def fetch(host: Host, job: SlurmJob, node: str) -> LeaseEndpoint:
    """The endpoint of a running job on one of its servers, read there by a step of the job, so as its owner."""
    path = str(RUN_DIR / str(job.id) / ENDPOINT)
    until = host.clock.monotonic() + APPEARS_S
    while True:
        try:
            text = host.slurm.read_on_node(job, path, node)
        except SlurmError as fault:
            if fault.kind is Complaint.NO_FILE:
                raise NotStarted(
                    f"{node} started no lease for job {job.id}: is the toolkit's Prolog missing there (site.yml)?",
                    Exit.RETRY,
                ) from None
            if fault.kind not in LATER or host.clock.monotonic() > until:
                raise
            host.clock.sleep(0.5)
        else:
            return parse(text)


def endpoints_of(host: Host, jobs: Sequence[SlurmJob]) -> list[LeaseEndpoint]:
    """The endpoints of all jobs of a lease, in the order of its devices."""
    return [fetch(host, job, node) for job in jobs for node in job.nodes]


def check_engine(endpoints: Sequence[LeaseEndpoint], engine_dir: Path) -> Installed:
    """The engine here that is the servers' one: found out before the program starts, not by it. LeaseError where there
    is none."""
    if any(endpoint.where == "server" for endpoint in endpoints):
        raise LeaseError(f"lease {endpoints[0].lease} is one program's on the server itself, and serves no other")
    there = all_installed(engine_dir)
    here = next((one for one in there if one.engine == endpoints[0].engine), None) or installed(engine_dir)
    for endpoint in endpoints:
        if (endpoint.engine, endpoint.release) != (here.engine, here.release):
            raise LeaseError(
                f"{endpoint.node} serves release {endpoint.release} of the engine {endpoint.engine}, this machine has "
                f"{here.release} of {here.engine}; run site.yml for both"
            )
    return here


def check_devices(endpoints: Sequence[LeaseEndpoint], engine_dir: Path, environment: Mapping[str, str]) -> None:
    """That a program sees as many devices as the lease has: an engine may leave out a server that does not answer, and
    say nothing. Asked of the engine's own library, in a process of its own; nothing where it brings none."""
    if not (engine_dir / "lib" / "libcuda.so.1").exists():
        return
    wanted = sum(len(endpoint.devices) for endpoint in endpoints)
    all_of_them = {key: value for key, value in environment.items() if key != "CUDA_VISIBLE_DEVICES"}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _COUNT], env=all_of_them, capture_output=True, timeout=COUNT_S, text=True
        )
    except subprocess.TimeoutExpired:
        raise LeaseError(f"the engine did not tell its devices within {COUNT_S:.0f} s", Exit.RETRY) from None
    words = done.stdout.split()
    said = (done.stderr.strip().splitlines() or [""])[-1].removeprefix("elastic-ai: ")
    if done.returncode != 0 or len(words) != 2:
        raise LeaseError(f"the engine's library does not work here: {said or f'exit {done.returncode}'}")
    code, seen = map(int, words)
    if code != 0 or seen != wanted:
        servers = ", ".join(f"{e.node} ({e.address}:{e.port})" for e in endpoints)
        fault = f"CUDA error {code}" if code else f"{several(seen, 'device')} and not {wanted}"
        why = f": {said}" if said else ""
        raise LeaseError(f"a program would see {fault} of {servers}, and was not started{why}", Exit.RETRY)


def probe(endpoint: LeaseEndpoint) -> None:
    """That the engine's port answers, within seconds, and not to somebody without the token."""
    try:
        socket.create_connection((endpoint.address, endpoint.port), timeout=PROBE_S).close()
    except OSError as fault:
        raise LeaseError(
            f"{endpoint.node} does not answer on {endpoint.address}:{endpoint.port} ({fault}): server or network "
            "down, or the lease was requested on another machine",
            Exit.RETRY,
        ) from None
    refuse_open(endpoint.engine, endpoint.server)
