"""Where a lease's server is, as its owner learns it, and the first look whether it can be used from here."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.lease import RUN_DIR, Exit, LeaseError
from toolkit.lease.engines import Server, installed
from toolkit.lease.host import Host
from toolkit.lease.slurm import SlurmError
from toolkit.lease.slurm_text import Complaint, SlurmJob

#: Between Slurm's "running" and the endpoint lies the Prolog, which may still be at work.
APPEARS_S = 45
PROBE_S = 5.0


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

    @property
    def server(self) -> Server:
        """For the engine's adapter."""
        return Server(self.address, self.port, self.token, len(self.devices))

    @property
    def emulated(self) -> bool:
        """Whether any device is emulated."""
        return any(device["emulated"] for device in self.devices)


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


def fetch(host: Host, job: SlurmJob) -> LeaseEndpoint:
    """The endpoint of a running job, read on its server by a step of the job, so as its owner."""
    path = str(RUN_DIR / str(job.id) / "endpoint.json")
    until = host.clock.monotonic() + APPEARS_S
    while True:
        try:
            text = host.slurm.read_on_node(job, path)
        except SlurmError as fault:
            if fault.kind is Complaint.NO_FILE:
                where = job.nodes[0] if job.nodes else "its server"
                raise NotStarted(
                    f"{where} started no lease for job {job.id}: is the toolkit's Prolog missing there (site.yml)?",
                    Exit.RETRY,
                ) from None
            if fault.kind is not Complaint.BUSY or host.clock.monotonic() > until:
                raise
            host.clock.sleep(0.5)
        else:
            return parse(text)


def endpoints_of(host: Host, jobs: Sequence[SlurmJob]) -> list[LeaseEndpoint]:
    """The endpoints of all jobs of a lease, in the order of its devices."""
    return [fetch(host, job) for job in jobs]


def check_engine(endpoints: Sequence[LeaseEndpoint], engine_dir: Path) -> None:
    """That the engine here is the servers' one: found out before the program starts, not by it."""
    here = installed(engine_dir)
    for endpoint in endpoints:
        if (endpoint.engine, endpoint.release) != (here["engine"], here["release"]):
            raise LeaseError(
                f"{endpoint.node} serves release {endpoint.release} of the engine {endpoint.engine}, this machine has "
                f"{here['release']} of {here['engine']}; run site.yml for both"
            )


def probe(endpoint: LeaseEndpoint) -> None:
    """That the engine's port answers, within seconds."""
    try:
        socket.create_connection((endpoint.address, endpoint.port), timeout=PROBE_S).close()
    except OSError as fault:
        raise LeaseError(
            f"{endpoint.node} does not answer on {endpoint.address}:{endpoint.port} ({fault}): server or network "
            "down, or the lease was requested on another machine",
            Exit.RETRY,
        ) from None
