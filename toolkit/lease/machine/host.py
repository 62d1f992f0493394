"""What leases use of the machine that they run on, in one object: Slurm, firewall, systemd, GPUs, network, time, paths.

Functions of this package that reach beyond their own data take a `Host` as their first argument. Programs and commands
pass `this_host()`; tests pass one that remembers what it was asked to do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from subprocess import CompletedProcess
from typing import Protocol

from toolkit.lease import ENGINE_DIR, MUNGE_KEY, POOL_CONF, RUN_DIR, SERVER_CONF
from toolkit.lease.instance_record import Instance
from toolkit.lease.jobs import slurm
from toolkit.lease.jobs.slurm import Pending, Turn
from toolkit.lease.jobs.slurm_text import JobState, PoolNode, SlurmJob
from toolkit.lease.jobs.submission import Submission
from toolkit.lease.machine import fence, firewall, network, nvml, openers, processes, server_gpus, sockets, unit
from toolkit.lease.machine import users as users_module


class Slurm(Protocol):
    """Slurm's commands (module slurm)."""

    def run(self, args: Sequence[str], stdin: str = "", timeout_s: float = 60) -> CompletedProcess[str]:
        """Run one command."""

    def nodes(self) -> list[PoolNode]:
        """All servers of the pool."""

    def jobs(self) -> list[SlurmJob]:
        """All jobs that the controller remembers."""

    def job_parts(self, lease: int) -> list[SlurmJob]:
        """The jobs of one lease, in order."""

    def job(self, number: int) -> SlurmJob | None:
        """The job of exactly this number, asked for anew; None where Slurm knows none."""

    def submit(self, submission: Submission) -> int:
        """Submit one job, or an array of several; its number."""

    def cancel(self, lease: int) -> None:
        """Cancel a lease; nothing where it is gone already."""

    def states(self, lease: int) -> list[JobState]:
        """How far the jobs of one lease are."""

    def turn(self, lease: int) -> Turn:
        """Place of a pending lease, 1 for the next, and when Slurm expects to start it, '' where it does not know."""

    def pending(self) -> list[Pending]:
        """All jobs that wait, the next one first."""

    def read_on_node(self, job: SlurmJob, path: str, node: str, timeout_s: float = 30) -> str:
        """A file on one of the job's servers, read as the job's owner."""

    def default_partition(self) -> str:
        """Name of the default partition, '' without one."""


class Firewall(Protocol):
    """Who may connect to leases on a server (module firewall)."""

    def load(self, first: int, last: int) -> None:
        """Close these ports."""

    def loaded(self) -> bool:
        """Whether the table is there."""

    def admit(self, clients: Iterable[str], ports: Iterable[int]) -> None:
        """Let these addresses connect to these ports."""

    def admitted(self) -> set[tuple[str, int]]:
        """All (address, port) that are open."""

    def shut(self, ports: Iterable[int]) -> None:
        """Take away what is admitted to these ports."""

    def remove(self) -> None:
        """Take the table away."""


class Systemd(Protocol):
    """The units of leases (module unit)."""

    def start(self, instance: Instance, folder: Path) -> None:
        """Start a lease's unit and wait until its engine listens; UnitFailed when it does not."""

    def hold(self, instance: Instance, share: Fraction) -> None:
        """Hold a unit that runs to so many processors; LeaseError where that is not possible."""

    def stop(self, job: str) -> None:
        """Stop a lease's unit."""

    def active(self, job: str) -> bool:
        """Whether the unit runs, or is about to, or is ending."""

    def running(self) -> list[str]:
        """Jobs with a unit on this server."""

    def pids(self, job: str) -> list[int]:
        """Processes of a lease's unit."""

    def uids(self, job: str) -> set[int]:
        """Under which uids they run."""

    def engine_cpu_s(self, job: str) -> float | None:
        """Processor time of the engine in a lease's unit (s), None where none runs."""

    def journal(self, job: str) -> Sequence[str]:
        """The last lines of a unit."""

    def reason_left(self, job: str) -> str:
        """Why a lease's agent ended, '' where it left no reason."""

    def run_apart(self, name: str, command: Sequence[str]) -> None:
        """Start a program as a service of its own."""


class Gpus(Protocol):
    """The GPUs of a server (module server_gpus)."""

    def gpus(self) -> list[nvml.Gpu]:
        """All GPUs, by index."""

    def processes(self) -> dict[str, list[int]]:
        """PIDs with memory on each GPU, by UUID."""

    def utilisation(self) -> dict[str, int | None]:
        """Share of time (%) in which each GPU works now, by UUID; None where it does not say."""

    def contexts(self, cache: Path) -> dict[str, int]:
        """What a context takes of each GPU (bytes), by UUID, as measured; kept in that file."""


class Fence(Protocol):
    """Who may open the device files of GPUs (module fence)."""

    def keep(self, users: Mapping[int, Iterable[int]], services: Iterable[int] = ()) -> list[str]:
        """Close them but to these uids, by GPU or all; what could not be done."""

    def keep_instances(self, users: Mapping[str, Iterable[int]]) -> list[str]:
        """Close the files of MIG instances but to these uids, by file; what could not be done."""

    def open_again(self) -> list[str]:
        """Open them to all users; what could not be done."""

    def gaps(self) -> list[str]:
        """What lets any user pass."""


class Network(Protocol):
    """Addresses of this machine (module network)."""

    def own_addresses(self) -> set[str]:
        """All IPv4 addresses."""

    def source_address(self, server: str) -> str:
        """The address from which this machine reaches a server; "" without a route."""


class Sockets(Protocol):
    """Ports of this machine, and whose they are (module sockets)."""

    def free(self, address: str, port: int, lenient: bool = False) -> bool:
        """Whether a server could listen on the port."""

    def listeners(self, ports: Iterable[int]) -> list[sockets.Listener]:
        """All listening sockets on these ports."""

    def occupants(self, first: int, last: int) -> list[sockets.Occupant]:
        """Processes that have sockets on these ports."""

    def reserve(self, first: int, last: int, keep: bool = True) -> None:
        """Have the kernel give these ports to no connection by itself; `keep` False: again."""


class Openers(Protocol):
    """Which processes have a GPU (module openers)."""

    def find(self, owners: Collection[int] = ()) -> list[openers.Opener]:
        """All that have one; of `owners` also those that may hide one."""

    def process(self, pid: int) -> processes.Process | None:
        """The process of a number."""

    def numbered_as_driver(self) -> bool:
        """Whether processes have the numbers here that the driver knows them by."""

    def end(self, opener: openers.Opener) -> None:
        """Kill it."""


class Users(Protocol):
    """Who is known on this machine (module users)."""

    def problem(self, uid: int, name: str, node: str) -> str:
        """Why no job of this user can start here, which is `node`; "" where it can."""


class Clock(Protocol):
    """Time in seconds (module time)."""

    def time(self) -> float:
        """Since the epoch."""

    def monotonic(self) -> float:
        """Since some moment; never set back."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


@dataclass(frozen=True)
class Host:
    """A machine. Without arguments: this one."""

    slurm: Slurm = slurm
    firewall: Firewall = firewall
    systemd: Systemd = unit
    gpus: Gpus = server_gpus
    fence: Fence = fence
    network: Network = network
    sockets: Sockets = sockets
    openers: Openers = openers
    users: Users = users_module
    clock: Clock = time
    run_dir: Path = RUN_DIR
    engine_dir: Path = ENGINE_DIR
    server_conf: Path = SERVER_CONF
    pool_conf: Path = POOL_CONF
    munge_key: Path = MUNGE_KEY


def this_host() -> Host:
    """The machine that this program runs on. Slurm runs its programs without a search path: it gets one here."""
    os.environ.setdefault("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    return Host()
