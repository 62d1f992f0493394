"""Where a lease's server is, as its owner learns it, and the first look whether it can be used from here."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.lease import ENGINE_DIR, RUN_DIR, Exit, LeaseError, slurm
from toolkit.lease.engines import Server, installed
from toolkit.lease.slurm_text import Job

#: Between Slurm's "running" and the endpoint lies the Prolog, which may still be at work.
APPEARS_S = 45
PROBE_S = 5.0


@dataclass(frozen=True)
class Endpoint:
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


def parse(text: str) -> Endpoint:
    """The endpoint in a server's file; LeaseError with the server's reason when the lease could not start."""
    try:
        data = json.loads(text)
        if "error" in data:
            kind = NotStarted if data.get("again") else LeaseError
            raise kind(f"{data.get('node', 'the server')}: {data['error']}", Exit.RETRY)
        return Endpoint(**{**data, "devices": tuple(data["devices"]), "notes": tuple(data["notes"])})
    except (ValueError, TypeError, KeyError) as fault:
        raise LeaseError(
            f"the server's endpoint file cannot be read ({fault}): other release of the toolkit?"
        ) from None


def fetch(job: Job) -> Endpoint:
    """The endpoint of a running job, read on its server by a step of the job, so as its owner."""
    path = str(RUN_DIR / str(job.id) / "endpoint.json")
    until = time.monotonic() + APPEARS_S
    while True:
        try:
            return parse(slurm.read_on_node(job, path))
        except LeaseError as fault:
            if "No such file" in str(fault):
                where = job.nodes[0] if job.nodes else "its server"
                raise NotStarted(
                    f"{where} started no lease for job {job.id}: does its Slurm have the toolkit's Prolog (site.yml)?",
                    Exit.RETRY,
                ) from None
            busy = any(words in str(fault) for words in ("Requested nodes are busy", "still configuring", "try again"))
            if not busy or time.monotonic() > until:
                raise
            time.sleep(0.5)


def endpoints_of(jobs: Sequence[Job]) -> list[Endpoint]:
    """The endpoints of all jobs of a lease, in the order of its devices."""
    return [fetch(job) for job in jobs]


def check_engine(endpoints: Sequence[Endpoint], engine_dir: Path = ENGINE_DIR) -> None:
    """That the engine here is the servers' one: found out before the program starts, not by it."""
    here = installed(engine_dir)
    for endpoint in endpoints:
        if (endpoint.engine, endpoint.release) != (here["engine"], here["release"]):
            raise LeaseError(
                f"{endpoint.node} serves release {endpoint.release} of the engine {endpoint.engine}, this machine has "
                f"{here['release']} of {here['engine']}; run site.yml for both"
            )


def probe(endpoint: Endpoint) -> None:
    """That the engine's port answers, within seconds."""
    try:
        socket.create_connection((endpoint.address, endpoint.port), timeout=PROBE_S).close()
    except OSError as fault:
        raise LeaseError(
            f"{endpoint.node} does not answer on {endpoint.address}:{endpoint.port} ({fault}): server or network "
            "down, or this machine is not the one that asked for the lease",
            Exit.RETRY,
        ) from None
