"""A pool's machine for tests of leases: Slurm, firewall, systemd, GPUs, network and clock that remember what they did.

Slurm answers with constructed documents (lease_texts), read by the toolkit's own parsers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.support.lease_texts import Job, jobs_of
from toolkit.lease import Exit
from toolkit.lease.instance_record import Instance
from toolkit.lease.jobs import slurm
from toolkit.lease.jobs.slurm_text import JobState, PoolNode, SlurmJob, parse_nodes
from toolkit.lease.jobs.submission import Submission
from toolkit.lease.machine import openers, processes, sockets
from toolkit.lease.machine.host import Host
from toolkit.lease.machine.nvml import Gpu
from toolkit.lease.server_conf import ServerConf

#: Under which uid the units of leases run.
UNIT_UID = 64_000
#: What a program says and how it ends, for FakeSlurm.answers: text, or (exit code, stderr).
Answer = str | tuple[int, str]


@dataclass
class FakeSlurm:
    """`said` are the answers about jobs, the last one for ever; `answers` those to other commands by their first words;
    `files` what is read on nodes, in order, an exception to be raised."""

    said: list[list[Job]] = field(default_factory=list)
    node_text: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    files: list[str | Exception] = field(default_factory=list)
    queue_place: int | None = None
    start: str = ""
    #: Questions that the controller leaves unanswered first; how often it was asked for places in the queue.
    away: int = 0
    turns: int = 0
    stated: int = 0
    read: list[str] = field(default_factory=list)
    silent: bool = False
    commands: list[list[str]] = field(default_factory=list)
    submitted: list[Submission] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    first_job: int = 41
    queue: list[slurm.Pending] = field(default_factory=list)

    def run(self, args: Sequence[str], stdin: str = "", timeout_s: float = 60) -> CompletedProcess[str]:
        self.commands.append(list(args))
        if self.silent:
            raise slurm.SlurmError("Slurm did not answer")
        line = " ".join(args)
        answer = next((text for start, text in self.answers.items() if line.startswith(start)), "")
        if isinstance(answer, tuple):
            return CompletedProcess(list(args), answer[0], "", answer[1])
        return CompletedProcess(list(args), 0, answer, "")

    def nodes(self) -> list[PoolNode]:
        return parse_nodes(self.node_text)

    def jobs(self) -> list[SlurmJob]:
        return jobs_of([job for said in self.said for job in said])

    def job_parts(self, lease: int) -> list[SlurmJob]:
        said = self.said.pop(0) if len(self.said) > 1 else (self.said or [[]])[0]
        return sorted((j for j in jobs_of(said) if lease in (j.lease, j.id)), key=lambda j: j.task)

    def job(self, number: int) -> SlurmJob | None:
        return next((j for j in self.job_parts(number) if j.id == number), None)

    def submit(self, submission: Submission) -> int:
        self.submitted.append(submission)
        return self.first_job + len(self.submitted) - 1

    def cancel(self, lease: int) -> None:
        self.cancelled.append(lease)

    def states(self, lease: int) -> list[JobState]:
        self.stated += 1
        return self.next_states(lease)

    def next_states(self, lease: int) -> list[JobState]:
        """Of the next answer; one that says that the wait is over stays for the question after it."""
        if self.away:
            self.away -= 1
            raise slurm.SlurmError("Slurm does not answer: Unable to contact slurm controller", Exit.RETRY)
        said = (self.said or [[]])[0]
        jobs = [job for job in jobs_of(said) if lease in (job.lease, job.id)]
        over = any(job.ended for job in jobs) or all(job.state == "RUNNING" for job in jobs)
        if len(self.said) > 1 and not over:
            self.said.pop(0)
        return [JobState(job.id, job.state, job.reason) for job in jobs]

    def turn(self, lease: int) -> slurm.Turn:
        """As Slurm's queue has it: nothing of jobs that do not wait."""
        self.turns += 1
        if self.away:
            self.away -= 1
            return slurm.Turn(None)
        waits = next((state for state in self.next_states(lease) if state.state == "PENDING"), None)
        return slurm.Turn(self.queue_place, self.start, waits.reason) if waits else slurm.Turn(None)

    def pending(self) -> list[slurm.Pending]:
        return self.queue

    def read_on_node(self, job: SlurmJob, path: str, node: str, timeout_s: float = 30) -> str:
        self.read.append(node)
        text = self.files.pop(0) if len(self.files) > 1 else self.files[0]
        if isinstance(text, Exception):
            raise text
        return text

    def default_partition(self) -> str:
        return "all"


@dataclass
class FakeFirewall:
    """Who may connect to which port."""

    open: set[tuple[str, int]] = field(default_factory=set)
    there: bool = True

    def load(self, first: int, last: int) -> None:
        self.open, self.there = set(), True

    def loaded(self) -> bool:
        return self.there

    def admit(self, clients: Iterable[str], ports: Iterable[int]) -> None:
        self.open |= {(client, port) for client in clients for port in ports}

    def admitted(self) -> set[tuple[str, int]]:
        return set(self.open)

    def shut(self, ports: Iterable[int]) -> None:
        closed = set(ports)
        self.open = {(client, port) for client, port in self.open if port not in closed}

    def remove(self) -> None:
        self.open, self.there = set(), False


@dataclass
class FakeSystemd:
    """Units by job. `fails` is raised by the next start; `stuck` units do not stop."""

    firewall: FakeFirewall
    units: dict[str, Instance] = field(default_factory=dict)
    fails: Exception | None = None
    stuck: bool = False
    apart: list[list[str]] = field(default_factory=list)
    #: Processor time of engines by job (s); None where none can be read.
    cpu_s: dict[str, float | None] = field(default_factory=dict)
    #: Shares of processors that were set after the start, the last of each job.
    shares: dict[str, Fraction] = field(default_factory=dict)

    def start(self, instance: Instance, folder: Path) -> None:
        """A unit starts only after its ports are open to its clients, and with a token that root alone reads."""
        assert {(client, port) for client in instance.clients for port in instance.ports} <= self.firewall.open
        assert (folder / "token").stat().st_mode & 0o777 == 0o400
        if self.fails:
            raise self.fails
        self.units[instance.job] = instance

    def hold(self, instance: Instance, share: Fraction) -> None:
        self.shares[instance.job] = share

    def stop(self, job: str) -> None:
        if not self.stuck:
            self.units.pop(job, None)

    def active(self, job: str) -> bool:
        return job in self.units

    def running(self) -> list[str]:
        return list(self.units)

    def pids(self, job: str) -> list[int]:
        return [999_999] if job in self.units else []

    def uids(self, job: str) -> set[int]:
        return {UNIT_UID} if job in self.units else set()

    def engine_cpu_s(self, job: str) -> float | None:
        return self.cpu_s.get(job, 0.0)

    def journal(self, job: str) -> Sequence[str]:
        return ["its last words"]

    def reason_left(self, job: str) -> str:
        return ""

    def run_apart(self, name: str, command: Sequence[str]) -> None:
        self.apart.append([name, *command])


@dataclass
class FakeGpus:
    """Four emulated GPUs. `broken` is raised instead."""

    found: list[Gpu] = field(
        default_factory=lambda: [
            Gpu(i, f"GPU-{i}", "Emulated V100", 256, 0, True, capability="7.0", driver="580.95.05", cuda=13000)
            for i in range(4)
        ]
    )
    users: dict[str, list[int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=lambda: {f"GPU-{i}": 300_000 for i in range(4)})
    broken: Exception | None = None
    #: Share of time in which GPUs work, by UUID; those that are not there rest.
    works: dict[str, int | None] = field(default_factory=dict)

    def utilisation(self) -> dict[str, int | None]:
        if self.broken:
            raise self.broken
        return {gpu.uuid: self.works.get(gpu.uuid, 0) for gpu in self.found}

    def gpus(self) -> list[Gpu]:
        if self.broken:
            raise self.broken
        return self.found

    def processes(self) -> dict[str, list[int]]:
        if self.broken:
            raise self.broken
        return self.users

    def contexts(self, cache: Path) -> dict[str, int]:
        return self.sizes


@dataclass
class FakeFence:
    """Who may open the GPUs of a server, by GPU; `left` is what cannot be done."""

    users: dict[int, set[int]] = field(default_factory=dict)
    services: set[int] = field(default_factory=set)
    left: list[str] = field(default_factory=list)
    holes: list[str] = field(default_factory=list)
    closed: bool = False
    instances: dict[str, set[int]] = field(default_factory=dict)

    def keep(self, users: Mapping[int, Iterable[int]], services: Iterable[int] = ()) -> list[str]:
        self.users = {index: set(uids) for index, uids in users.items()}
        self.services, self.closed = set(services), True
        return self.left

    def keep_instances(self, users: Mapping[str, Iterable[int]]) -> list[str]:
        self.instances = {path: set(uids) for path, uids in users.items()}
        return []

    def open_again(self) -> list[str]:
        self.closed = False
        return self.left

    def gaps(self) -> list[str]:
        return self.holes


@dataclass
class FakeNetwork:
    """A server with an address, a bridge and loopback; `routes`: from where to where."""

    own: set[str] = field(default_factory=lambda: {"127.0.0.1", "172.17.0.1", "10.77.1.13"})
    routes: dict[str, str] = field(default_factory=dict)

    def own_addresses(self) -> set[str]:
        return self.own

    def source_address(self, server: str) -> str:
        return self.routes.get(server, "")


@dataclass
class FakeSockets:
    """Ports of a server: `busy` are taken, those of `whose` are listened on by that uid; `squatters` go when killed."""

    busy: set[int] = field(default_factory=set)
    whose: dict[int, int] = field(default_factory=dict)
    squatters: list[sockets.Occupant] = field(default_factory=list)
    reserved: tuple[int, int] | None = None

    def free(self, address: str, port: int, lenient: bool = False) -> bool:
        return port not in self.busy and port not in self.whose

    def listeners(self, ports: Iterable[int]) -> list[sockets.Listener]:
        return [sockets.Listener(port, self.whose[port], 1, (4711,)) for port in ports if port in self.whose]

    def occupants(self, first: int, last: int) -> list[sockets.Occupant]:
        return [one for one in self.squatters if any(first <= port <= last for port in one.ports)]

    def reserve(self, first: int, last: int, keep: bool = True) -> None:
        self.reserved = (first, last) if keep else None


@dataclass
class FakeOpeners:
    """Processes that have a GPU; those in `stay` cannot be killed."""

    found: list[openers.Opener] = field(default_factory=list)
    stay: bool = False
    ended: list[int] = field(default_factory=list)
    asked: list[set[int]] = field(default_factory=list)

    def find(self, owners: Collection[int] = ()) -> list[openers.Opener]:
        self.asked.append(set(owners))
        return list(self.found)

    def process(self, pid: int) -> processes.Process | None:
        return processes.Process(pid, "1", 1001, "python3")

    def numbered_as_driver(self) -> bool:
        return True

    def end(self, opener: openers.Opener) -> None:
        self.ended.append(opener.process.pid)
        if not self.stay:
            self.found = [one for one in self.found if one.process.pid != opener.process.pid]


@dataclass
class FakeUsers:
    """Everybody is known, but for whom there is a problem."""

    problems: dict[int, str] = field(default_factory=dict)

    def problem(self, uid: int, name: str, node: str) -> str:
        return self.problems.get(uid, "")


@dataclass
class FakeClock:
    """Time that passes by sleeping, and `step_s` with each look at it. The wall clock is that of files' times."""

    now: float = 0.0
    step_s: float = 0.0
    wall: Callable[[], float] = time.time

    def time(self) -> float:
        return self.wall()

    def monotonic(self) -> float:
        self.now += self.step_s
        return self.now

    def sleep(self, seconds: float, /) -> None:
        self.now += seconds


@dataclass(frozen=True)
class FakeHost(Host):
    """The whole machine; its files lie in `folder`."""

    folder: Path = Path("/nonexistent")
    slurm: FakeSlurm = field(default_factory=FakeSlurm)
    firewall: FakeFirewall = field(default_factory=FakeFirewall)
    systemd: FakeSystemd = field(init=False)
    gpus: FakeGpus = field(default_factory=FakeGpus)
    fence: FakeFence = field(default_factory=FakeFence)
    network: FakeNetwork = field(default_factory=FakeNetwork)
    sockets: FakeSockets = field(default_factory=FakeSockets)
    openers: FakeOpeners = field(default_factory=FakeOpeners)
    users: FakeUsers = field(default_factory=FakeUsers)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        places = {
            "systemd": FakeSystemd(self.firewall),
            "run_dir": self.folder / "leases",
            "engine_dir": self.folder,
            "server_conf": self.folder / "server.json",
            "pool_conf": self.folder / "pool.json",
            "munge_key": self.folder / "munge.key",
        }
        for name, value in places.items():
            object.__setattr__(self, name, value)

    def serve(self, **changes: Any) -> ServerConf:
        """Makes it a GPU server with the reference engine, whose GPUs are counted in 140 as in the recordings; its
        description."""
        changes = {"shards_per_gpu": 140, **changes}
        (self.engine_dir / "engine.json").write_text('{"engine": "reference", "release": "r1"}')
        conf = {"node": "gpu1", "address": "127.0.0.1", "ports": [31000, 31099], "engine_dir": str(self.folder)}
        self.server_conf.write_text(json.dumps(conf | changes))
        return ServerConf("gpu1", "127.0.0.1", (31000, 31099), self.folder, **changes)

    def endpoint(self, job: object) -> dict[str, Any]:
        """What the owner of a lease's job reads."""
        data: dict[str, Any] = json.loads((self.run_dir / str(job) / "endpoint.json").read_text())
        return data
