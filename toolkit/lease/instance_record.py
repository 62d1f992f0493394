"""What root knows of a lease on a GPU server: one type, in one file, which its unit reads too.

A lease's folder has its record (INSTANCE) as soon as it is given GPUs; one that could not start has none, and its owner
reads why (module endpoint).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from toolkit.lease import LeaseError
from toolkit.lease.engines import EngineStart, LeasedGpu
from toolkit.lease.fields import PATH, PLAIN, DamagedDocument, Fields

#: Files in an instance's folder.
ENDPOINT, INSTANCE, TOKEN, DEADLINE, ENDING = "endpoint.json", "instance.json", "token", "deadline", "ending"
#: The secret of a lease's servers, and in its unit's folder where they are.
PEER_TOKEN, PEERS = "peer-token", "peers"
#: Under which uids its unit ran, written when its end begins.
UIDS = "uids"
_JOB, _HOST, _ENGINE = r"s?[0-9]{1,10}", r"[A-Za-z0-9._-]{1,64}", r"[A-Za-z0-9_-]{0,64}"


def write_file(path: Path, text: str, mode: int, uid: int = 0) -> None:
    """Replace a file whole; nobody sees it half written or with other rights."""
    scratch = path.with_name(f".{path.name}")
    scratch.unlink(missing_ok=True)
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.write(text)
        os.fchown(handle.fileno(), uid, -1)
        os.fchmod(handle.fileno(), mode)
    scratch.replace(path)


def is_static(job: str) -> bool:
    """Whether a lease is an administrator's, without Slurm (module static)."""
    return job.startswith("s")


@dataclass(frozen=True)
class Peer:
    """Where a server of a lease listens, to the lease's clients and to its other servers."""

    address: str
    port: int

    @classmethod
    def read(cls, fields: Fields) -> Peer:
        """As it stands in a document; DamagedDocument where it is none."""
        found = cls(fields.address("address"), fields.number("port", least=1, most=65535))
        fields.end()
        return found


@dataclass(frozen=True)
class Instance:
    """A lease on this server. Times in seconds; deadline, slurm_end and started since the epoch.

    job: of Slurm, s1 and so on without it. mode: `run` ends with its client, `hold` with its time. host, clients: the
    machine that may use it, and its addresses. engine: "" where its program runs on this server itself (`where`).
    deadline: None without an end; slurm_end: Slurm's record of it, far away where it has none. first_s: how long a
    `run` lease waits for its client to come at all. memory_bytes, tasks: limits of its unit. job_memory_mib, job_cpus:
    what its job has on this server, 0 where it is not known. idle_s: how long its GPUs may be unused, None without
    limit. notes: what its owner ought to know. peers: all servers of the lease in their order, where they know each
    other. up_to: shards of each GPU with which it may compute while nobody else has them, 0 for no more than its part.
    """

    job: str
    lease: int
    owner_uid: int
    mode: Literal["run", "hold"]
    host: str
    clients: tuple[str, ...]
    address: str
    port: int
    agent_port: int
    devices: tuple[LeasedGpu, ...]
    engine: str
    release: str
    engine_dir: Path
    mps_pipe: Path | None
    transport: str
    device_group: str
    deadline: float | None
    slurm_end: float | None
    deadline_file: Path
    grace_s: float
    heartbeat_s: float
    first_s: float
    memory_bytes: int
    job_memory_mib: int
    job_cpus: int
    tasks: int
    idle_s: float | None
    started: float
    where: Literal["client", "server"]
    notes: tuple[str, ...] = ()
    peers: tuple[Peer, ...] = ()
    up_to: int = 0

    @property
    def native(self) -> bool:
        """Whether its program runs on this server itself, without an engine."""
        return self.where == "server"

    @property
    def ports(self) -> tuple[int, int]:
        """Of its engine and of its agent."""
        return self.port, self.agent_port

    @property
    def servers(self) -> tuple[str, ...]:
        """Addresses from which the lease's servers speak to its engine, and to nothing else of it: its own too, where
        it has several GPUs, whose sessions meet."""
        own = len(self.devices) > 1
        return tuple(peer.address for peer in self.peers if own or peer.address != self.address)

    def peers_text(self) -> str:
        """As its engine reads them: a line for each."""
        return "".join(f"{peer.address} {peer.port}\n" for peer in self.peers)

    @property
    def indices(self) -> set[int]:
        """Which GPUs of the server it has."""
        return {device.index for device in self.devices}

    def start(self, port_file: Path, token_file: Path) -> EngineStart:
        """What the engine's adapter is asked for."""
        return EngineStart(
            engine_dir=self.engine_dir,
            release=self.release,
            address=self.address,
            port=self.port,
            port_file=port_file,
            token_file=token_file,
            clients=self.clients,
            devices=self.devices,
            mps_pipe=self.mps_pipe,
            transport=self.transport,
            peers_file=port_file.with_name(PEERS) if self.peers else None,
            peer_token_file=token_file.with_name(PEER_TOKEN) if self.peers else None,
        )

    @classmethod
    def parse(cls, text: str, what: str = INSTANCE) -> Instance:
        """The instance that `text` is; DamagedDocument where it is none. what: for the error."""
        return _read(Fields.of(text, what))

    @classmethod
    def read(cls, folder: Path) -> Instance | None:
        """The instance of a lease's folder; None where it never started. DamagedDocument where the file is damaged, of
        another release or of another lease."""
        try:
            found = _read(Fields.in_file(folder / INSTANCE))
        except FileNotFoundError:
            return None
        if found.job != folder.name:
            raise DamagedDocument(f"{folder / INSTANCE} is that of job {found.job}")
        return found

    def text(self) -> str:
        """The file's content."""
        paths = {"engine_dir": str(self.engine_dir), "deadline_file": str(self.deadline_file)}
        return json.dumps({**asdict(self), **paths, "mps_pipe": "" if self.mps_pipe is None else str(self.mps_pipe)})

    def write(self, folder: Path) -> None:
        """Into the lease's folder, for root alone. DamagedDocument for one that could not be read again."""
        text = self.text()
        Instance.parse(text)
        write_file(folder / INSTANCE, text, 0o400)


def _read(fields: Fields) -> Instance:
    devices = tuple(map(LeasedGpu.read, fields.each("devices")))
    mps_pipe = fields.text("mps_pipe", f"({PATH})?")
    if not devices:
        fields.refuse("devices", "is empty")
    found = Instance(
        job=fields.text("job", _JOB),
        lease=fields.number("lease"),
        owner_uid=fields.number("owner_uid", most=0xFFFFFFFE),
        mode="hold" if fields.text("mode", "run|hold") == "hold" else "run",
        host=fields.text("host", _HOST),
        clients=fields.addresses("clients"),
        address=fields.host("address"),
        port=fields.number("port", least=1, most=65535),
        agent_port=fields.number("agent_port", least=1, most=65535),
        devices=devices,
        engine=fields.text("engine", _ENGINE),
        release=fields.text("release"),
        engine_dir=fields.path("engine_dir"),
        mps_pipe=Path(mps_pipe) if mps_pipe else None,
        transport=fields.text("transport", "tcp|verbs"),
        device_group=fields.text("device_group", r"[a-z0-9_-]{0,32}"),
        deadline=fields.seconds_or_none("deadline"),
        slurm_end=fields.seconds_or_none("slurm_end"),
        deadline_file=fields.path("deadline_file"),
        grace_s=fields.seconds("grace_s"),
        heartbeat_s=fields.seconds("heartbeat_s"),
        first_s=fields.seconds("first_s"),
        memory_bytes=fields.number("memory_bytes", least=1),
        job_memory_mib=fields.number("job_memory_mib"),
        job_cpus=fields.number("job_cpus"),
        tasks=fields.number("tasks", least=1),
        idle_s=fields.seconds_or_none("idle_s"),
        started=fields.seconds("started"),
        where="server" if fields.text("where", "client|server") == "server" else "client",
        notes=fields.texts("notes", PLAIN),
        # a lease that began before an upgrade goes on without
        peers=tuple(map(Peer.read, fields.each("peers"))) if fields.has("peers") else (),
        up_to=fields.number("up_to") if fields.has("up_to") else 0,
    )
    fields.end()
    if not found.clients:
        fields.refuse("clients", "is empty")
    if found.native == bool(found.engine):
        fields.refuse("engine", f"is {found.engine or 'none'!r}, and its program runs on the {found.where}")
    return found


class Uncertain(LeaseError):
    """What somebody has of this server cannot be told, so that it gives nothing out; another server may."""


@dataclass(frozen=True)
class Instances:
    """All leases on a server, by job. lost: folders of which it cannot be told what they have, and why."""

    by_job: Mapping[str, Instance]
    lost: Mapping[str, str]
    not_started: frozenset[str] = frozenset()

    @property
    def jobs(self) -> set[str]:
        """All that have a folder."""
        return {*self.by_job, *self.lost, *self.not_started}

    def get(self, job: str) -> Instance | None:
        """One lease; None where it has none, or it cannot be told."""
        return self.by_job.get(job)

    def certain(self, but: str = "") -> dict[str, Instance]:
        """All of them but one. Uncertain where it cannot be told of one what it has: then nothing may be given out."""
        for job, why in self.lost.items():
            if job != but:
                raise Uncertain(f"what the lease of job {job} has cannot be told: {why}; release that lease")
        return {job: found for job, found in self.by_job.items() if job != but}


def read_instances(run_dir: Path) -> Instances:
    """All leases in this folder."""
    by_job: dict[str, Instance] = {}
    lost: dict[str, str] = {}
    not_started = set()
    for folder in (path for path in run_dir.glob("*") if path.is_dir()):
        try:
            found = Instance.read(folder)
        except DamagedDocument as fault:
            lost[folder.name] = str(fault)
            continue
        if found is None:
            not_started.add(folder.name)
        else:
            by_job[folder.name] = found
    return Instances(by_job, lost, frozenset(not_started))
