"""Where a lease's server is, as its owner learns it, and the first look whether it can be used from here."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.lease import RUN_DIR, Exit, LeaseError
from toolkit.lease.engines import Server, installed, refuse_open
from toolkit.lease.host import Host
from toolkit.lease.slurm import SlurmError
from toolkit.lease.slurm_text import Complaint, SlurmJob
from toolkit.lease.text import several

#: Between Slurm's "running" and the endpoint lies the Prolog, which may still be at work.
APPEARS_S = 45
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
    """One server of a lease. deadline: seconds since the epoch, None where only Slurm's patience ends it."""

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
    devices: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    #: Where its program runs: on its client, by an engine, or on this server itself.
    where: str = "client"
    #: What carries the bytes between its program and the engine.
    transport: str = "tcp"
    #: Whether its agent wants to hear first who comes (wire.knock); those of older releases do not.
    knock: bool = False

    @property
    def server(self) -> Server:
        """For the engine's adapter."""
        return Server(self.address, self.port, self.token, len(self.devices), self.transport)

    @property
    def emulated(self) -> bool:
        """Whether any device is emulated."""
        return any(device["emulated"] for device in self.devices)


def gpus_text(endpoints: Sequence[LeaseEndpoint]) -> str:
    """The lease's GPUs in the order of its program, as JSON: uuid, emulated, memory_bytes (what of it is the lease's)
    and context_bytes (what the program's context takes of that; 0 for a whole GPU and a MIG instance, where nothing is
    cut). An engine may show its programs the size of the whole GPU."""
    gpus = [
        {
            "uuid": device["uuid"],
            "emulated": device["emulated"],
            "memory_bytes": (device["limit_mib"] or device["memory_mib"]) << 20,
            "context_bytes": device["context_bytes"],
        }
        for endpoint in endpoints
        for device in endpoint.devices
    ]
    return json.dumps(gpus)


class NotStarted(LeaseError):
    """The server could not start the lease, and asking Slurm again may lead elsewhere."""


def parse(text: str) -> LeaseEndpoint:
    """The endpoint in a server's file; LeaseError with the server's reason when the lease could not start."""
    try:
        data = json.loads(text)
        if "error" in data:
            kind = NotStarted if data.get("again") else LeaseError
            raise kind(f"{data.get('node', 'the server')}: {data['error']}", Exit.RETRY)
        return LeaseEndpoint(**{**data, "devices": tuple(data["devices"]), "notes": tuple(data["notes"])})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as fault:
        raise LeaseError(
            f"the server's endpoint file cannot be read ({fault}): other release of the toolkit?"
        ) from None


def fetch(host: Host, job: SlurmJob, node: str) -> LeaseEndpoint:
    """The endpoint of a running job on one of its servers, read there by a step of the job, so as its owner."""
    path = str(RUN_DIR / str(job.id) / "endpoint.json")
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


def check_engine(endpoints: Sequence[LeaseEndpoint], engine_dir: Path) -> None:
    """That the engine here is the servers' one: found out before the program starts, not by it."""
    if any(endpoint.where == "server" for endpoint in endpoints):
        raise LeaseError(f"lease {endpoints[0].lease} is one program's on the server itself, and serves no other")
    here = installed(engine_dir)
    for endpoint in endpoints:
        if (endpoint.engine, endpoint.release) != (here["engine"], here["release"]):
            raise LeaseError(
                f"{endpoint.node} serves release {endpoint.release} of the engine {endpoint.engine}, this machine has "
                f"{here['release']} of {here['engine']}; run site.yml for both"
            )


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
