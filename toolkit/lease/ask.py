"""Asking for a lease: from what the user wishes to Slurm jobs that start together, and the wait for them."""

from __future__ import annotations

import secrets
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from toolkit.errors import or_nearest
from toolkit.lease import JOB_NAME, Exit, LeaseError
from toolkit.lease.endings import Over, cause_of
from toolkit.lease.endpoint import LeaseEndpoint, NotStarted, endpoints_of
from toolkit.lease.engines import installed, load
from toolkit.lease.fraction import GpuPart, host_memory_mib, memory_limit_mib
from toolkit.lease.host import Host
from toolkit.lease.job_comment import MAX_CLIENTS, JobComment, parse_comment
from toolkit.lease.pool import PoolGpu
from toolkit.lease.slurm import AGAIN_PAUSE_S, SlurmError
from toolkit.lease.slurm_text import Complaint, PoolNode
from toolkit.lease.text import several
from toolkit.lease.waiting import HeldBack, StartedInPart, wait
from validation.base.counting import number_of

#: Host memory of the least that a job asks for, MiB: a shell that sleeps, and comes out of the instance's.
JOB_MEMORY_MIB = 16
#: What of a server's memory the programs on it share by GPUs: jobs without a GPU, and leases of engines, need some too.
MEMORY_SHARE = 0.9
#: How long a controller that started anew is given to hear of its nodes, 6 s in the lab: until then it refuses for ever
#: what they can give.
AWAITED_S = 30.0
#: How often a lease that its server could not start is asked for before the user hears of it.
TRIES = 5
_COMMENT = "--comment="


@dataclass(frozen=True)
class LeaseRequest:
    """What a user asks for: `count` devices, each `part` of a GPU, for so many seconds (None: what the pool allows).

    host_mib: host memory on the server for each device. apart: no two parts on one GPU. where: whether the program runs
    here, by an engine, or on the server itself, in one job on `servers_there` servers with `cpus` on each. unequal:
    their numbers of GPUs are as Slurm finds them free; `cpus_per_gpu` then goes before `cpus`, where it is not 0.
    """

    count: int
    part: GpuPart
    servers: tuple[str, ...] = ()
    gpu_class: str = ""
    seconds: int | None = None
    mode: str = "run"
    memory_mib: int = 0
    host_mib: int = 0
    apart: bool = False
    where: Literal["client", "server"] = "client"
    cpus: int = 1
    servers_there: int = 1
    unequal: bool = False
    cpus_per_gpu: int = 0

    @property
    def on_each(self) -> int:
        """Devices of a program on the server itself, on each of its servers; of unequal numbers one in between."""
        return self.count // self.servers_there

    @property
    def crowded(self) -> bool:
        """Whether a process for each device may be more than one for each processor."""
        return not self.cpus_per_gpu and (self.unequal or self.on_each > self.cpus)

    @property
    def spread(self) -> bool:
        """Whether its parts are on servers of their own: Slurm spreads parts over servers, and never over the GPUs of
        one. Whole GPUs are apart anyway."""
        return self.apart and self.count > 1 and not self.part.whole and self.where == "client"

    @property
    def text(self) -> str:
        """2 x 1/2 GPU, 1 GPU."""
        if self.part.whole:
            return several(self.count, "GPU")
        return f"{self.count} x {self.part.text} GPU" if self.count > 1 else f"{self.part.text} GPU"


def eligible(request: LeaseRequest, nodes: Sequence[PoolNode], partition: str) -> list[PoolNode]:
    """Servers that may take the request; LeaseError naming what is wrong with the choice."""
    names = {node.name for node in nodes}
    unknown = [name for name in request.servers if name not in names]
    if unknown:
        there = or_nearest(unknown[0], sorted(names), f"there are {', '.join(sorted(names))}", numbered=True)
        raise LeaseError(f"-l {unknown[0]}: no such server; {there}")
    partitions = {p for node in nodes for p in node.partitions}
    if request.gpu_class and request.gpu_class not in partitions:
        there = or_nearest(
            request.gpu_class, sorted(partitions), f"it has {', '.join(sorted(partitions))}", numbered=True
        )
        raise LeaseError(f"--class {request.gpu_class}: the pool has no such class; {there}")
    chosen = request.gpu_class or partition
    found = [n for n in nodes if n.gpus and (not request.servers or n.name in request.servers)]
    return [n for n in found if not chosen or chosen in n.partitions]


def refuse_impossible(request: LeaseRequest, nodes: Sequence[PoolNode]) -> None:
    """LeaseError when the pool could not meet the request even if it were empty."""
    if request.count < 1:
        raise LeaseError(f"-n {request.count}: request at least 1 GPU")
    gpus = sum(node.gpus for node in nodes)
    detail = ", ".join(f"{node.name}: {node.gpus}" for node in nodes) or "no server fits"
    fits = gpus if request.part.whole else gpus * (request.part.of // request.part.shards)
    if request.count > fits:
        most = "" if request.part.whole else f", which is {number_of(fits, 'such part')}"
        raise LeaseError(f"{request.text} requested, the pool has {several(gpus, 'GPU')} ({detail}){most}")
    if request.spread and request.count > len(nodes):
        raise LeaseError(
            f"--apart: {number_of(request.count, 'part')} need {number_of(request.count, 'server')}, one "
            f"each, and there are {len(nodes)} "
            f"({', '.join(node.name for node in nodes)}); whole GPUs are apart on one server too"
        )


def clients_for(host: Host, nodes: Sequence[PoolNode], servers: Mapping[str, Any]) -> tuple[str, ...]:
    """The addresses from which this machine reaches these servers, as they are described in `servers` (pool.json): they
    alone are admitted. LeaseError where it reaches none."""
    told = [str(servers.get(node.name, {}).get("address", "")) for node in nodes]
    if not any(told):
        raise LeaseError("this machine has no record of where the pool's servers listen; run site.yml")
    found = tuple(dict.fromkeys(a for a in map(host.network.source_address, filter(None, told)) if a))
    if not found:
        raise LeaseError(f"this machine has no route to {', '.join(filter(None, told))}, where the servers listen")
    if len(found) > MAX_CLIENTS:
        raise LeaseError(
            f"this machine reaches the servers from {number_of(len(found), 'address')}; name some servers by -l"
        )
    return found


def _each(request: LeaseRequest) -> list[str]:
    """--gres of one job for each device; of one job on several servers where they are to be apart.

    A whole GPU is asked for as all its shards: Slurm 22.05 counts shards right, but takes a GPU for free of them as
    soon as one of several jobs on it has ended, and would then give it out as a whole.
    """
    if request.where == "server" and (request.unequal or request.on_each > 1):
        return [f"gpu:{request.on_each}"]
    one = f"shard:{request.part.shards}" if request.part.of > 1 else "gpu:1"
    return [one] if request.spread or request.where == "server" else [one] * request.count


def _resources(request: LeaseRequest, gpus: Sequence[PoolGpu]) -> list[str]:
    """--gres of each job: one job for several whole GPUs where one server has them free, else one for each device."""
    free: dict[str, int] = {}
    for gpu in gpus:
        free[gpu.node] = free.get(gpu.node, 0) + (gpu.free == gpu.of)
    together = (
        request.where == "client"
        and request.part.whole
        and request.count > 1
        and any(count >= request.count for count in free.values())
    )
    return [f"gpu:{request.count}"] if together else _each(request)


def _given(request: LeaseRequest, resource: str) -> list[str]:
    """--mem and --gres of a job: host memory for each of its devices, of which a whole GPU may be several. In unequal
    numbers on several servers: that of the job, and memory by the GPU."""
    if request.unequal:
        return [f"--mem-per-gpu={max(request.host_mib, JOB_MEMORY_MIB)}", f"--gpus={request.count}"]
    kind, _, count = resource.partition(":")
    devices = int(count) if kind == "gpu" else 1
    return [f"--mem={max(request.host_mib * devices, JOB_MEMORY_MIB)}", f"--gres={resource}"]


def host_mib(host: Host, request: LeaseRequest, nodes: Sequence[PoolNode], servers: Mapping[str, Any]) -> int:
    """Host memory that each device of the request needs on these servers, as they are described in `servers`: the most
    of them, because any of them may serve it; for a program on the server its share of the smallest. LeaseError where
    an engine is needed and none is installed here."""
    if request.where == "server":
        return min((int(n.memory_mib * MEMORY_SHARE) // n.gpus for n in _large(request, nodes)), default=0)
    stated = load(installed(host.engine_dir).engine).HOST_MEMORY_MIB
    needs = []
    for name in [node.name for node in nodes]:
        server = servers.get(name, {})
        emulated = [int(gpu["memory_mib"]) for gpu in server.get("gpus", []) if gpu.get("emulated")]
        part = memory_limit_mib(max(emulated), request.part.shards, request.part.of) if emulated else None
        needs.append(host_memory_mib(int(server.get("memory_mib", 0)) or stated, [part]))
    return max(needs, default=stated)


def _large(request: LeaseRequest, nodes: Sequence[PoolNode]) -> list[PoolNode]:
    """Servers that have so many GPUs at all as each of the program's is to give."""
    return [node for node in nodes if node.gpus >= max(request.on_each, 1)]


def cpus_for(request: LeaseRequest, nodes: Sequence[PoolNode]) -> int:
    """Processors of a program on the server on each of its servers: the GPUs' share of the smallest that may take it;
    of a server with fewer processors than GPUs no more than it has."""
    return max(min((node.cpus * request.on_each // node.gpus for node in _large(request, nodes)), default=1), 1)


def cpus_per_gpu(request: LeaseRequest, nodes: Sequence[PoolNode]) -> int:
    """Processors for each GPU, where a server's share is not known before Slurm has chosen; 0 where a server has fewer
    processors than GPUs, or the numbers are equal."""
    return min((node.cpus // node.gpus for node in nodes), default=0) if request.unequal else 0


def options(
    request: LeaseRequest,
    nodes: Sequence[PoolNode],
    everyone: Sequence[PoolNode],
    gpus: Sequence[PoolGpu],
    clients: tuple[str, ...],
) -> list[list[str]]:
    """sbatch's options of each of the lease's jobs. nodes: the eligible of `everyone`; clients: our addresses.

    The last two options of each are its --mem and --gres.
    """
    resources = _resources(request, gpus)
    names = {node.name for node in nodes}
    others = [node.name for node in everyone if node.name not in names]
    minutes = [] if request.seconds is None else [f"--time={max(-(-request.seconds // 60), 1)}"]
    mode = "hold" if request.mode == "hold" else "run"
    servers = request.count if request.spread else request.servers_there
    comment = JobComment(
        clients=clients,
        host=socket.gethostname().split(".")[0][:64],
        mode=mode,  # type: ignore[arg-type]
        what=request.text,
        ttl_s=request.seconds if request.seconds is not None and request.seconds % 60 else 0,
        memory_mib=request.memory_mib,
        parts=len(resources),
        where=request.where,
    )
    common = [
        f"--job-name={JOB_NAME}",
        _COMMENT + comment.text(),
        f"--nodes={servers}",
        f"--ntasks={servers}",
        f"--cpus-per-gpu={request.cpus_per_gpu}" if request.cpus_per_gpu else f"--cpus-per-task={request.cpus}",
        "--no-requeue",
        "--oversubscribe",
        "--chdir=/",
        *(f"--{stream}=/dev/null" for stream in ("input", "output", "error")),
        *minutes,
        *([f"--partition={request.gpu_class}"] if request.gpu_class else []),
        *([f"--exclude={','.join(others)}"] if others and request.servers else []),
    ]
    return [[*common, *_given(request, resource)] for resource in resources]


def _device_by_device(request: LeaseRequest, job: Sequence[str]) -> list[list[str]]:
    """The jobs of a request of which one could not start: one for each device."""
    resources, common = _each(request), []
    for word in job[:-2]:
        if word.startswith(_COMMENT):
            comment = parse_comment(word.removeprefix(_COMMENT))
            word = _COMMENT + replace(comment, parts=len(resources)).text()
        common.append(word)
    return [[*common, *_given(request, resource)] for resource in resources]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until what is inside is done, so that no job is made that nobody knows of."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def explain(fault: SlurmError, request: LeaseRequest) -> str:
    """Slurm's refusal in a sentence for users."""
    named = f"class {request.gpu_class}: " if request.gpu_class else ""
    if fault.kind is Complaint.NOT_PERMITTED:
        which = "use it" if request.gpu_class else "use all classes; name one of yours by --class"
        return f"{named}you may not {which} (Slurm: {fault}); toolkit gpus lists the classes"
    if fault.kind is Complaint.POLICY:
        return f"{named}the pool's policy does not allow you that much (Slurm: {fault})"
    if fault.kind is Complaint.NEVER:
        return f"{named}no server of the pool can ever give {request.text} (Slurm: {fault})"
    if fault.kind in (Complaint.NO_ANSWER, Complaint.BUSY):
        return f"Slurm does not answer: {fault}; it may have taken the request: toolkit lease list shows it"
    return f"Slurm does not answer: {fault}" if fault.kind is Complaint.AWAY else f"Slurm refuses: {fault}"


def submit(host: Host, request: LeaseRequest, parts: Sequence[Sequence[str]]) -> int:
    """Hand the jobs to Slurm; the lease's number."""
    began, refused_before = host.clock.monotonic(), False
    while True:
        try:
            return host.slurm.submit(parts[0], len(parts))
        except SlurmError as fault:
            # Of a refusal alone nobody knows whether all servers had registered when it was made: of the next one, yes.
            early = any(n.awaited for n in host.slurm.nodes()) if fault.kind is Complaint.NEVER else False
            again = early or (fault.kind is Complaint.NEVER and not refused_before)
            if again and host.clock.monotonic() - began < AWAITED_S:
                refused_before = not early
                host.clock.sleep(AGAIN_PAUSE_S)
                continue
            later = fault.kind in (Complaint.AWAY, Complaint.NO_ANSWER, Complaint.BUSY)
            raise LeaseError(explain(fault, request), Exit.RETRY if later else fault.code) from None


def _cancel(host: Host, lease: int, say: Callable[[str], None]) -> None:
    """Give a lease back, whatever interrupts. One for a program that Slurm does not take now ends on its servers."""
    with uninterrupted():
        try:
            host.slurm.cancel(lease)
        except LeaseError as fault:
            say(f"lease {lease}: Slurm cannot cancel it now ({fault}); later: toolkit lease release {lease}")


def obtain(
    host: Host, request: LeaseRequest, parts: Sequence[Sequence[str]], say: Callable[[str], None]
) -> tuple[int, list[LeaseEndpoint]]:
    """Ask and wait until all parts run, and where they are served. What started in part only, or not on its server, or
    was taken back for another before it could be used is given back and asked for again; whatever interrupts the wait
    gives the lease back.

    Slurm starts the jobs of a lease one by one: its heterogeneous jobs would start them together, but never two of
    them on one server.
    """
    tries = 0
    while True:
        with uninterrupted():
            lease = submit(host, request, parts)
        try:
            return lease, endpoints_of(host, wait(host, lease, request.text, say, len(parts)))
        except StartedInPart:
            why = "only some of its parts could start"
        except NotStarted as fault:
            tries += 1
            if tries == TRIES:
                _cancel(host, lease, say)
                raise
            why = str(fault)
            parts = _device_by_device(request, parts[0]) if request.where == "client" else parts
        except HeldBack as fault:
            tries += 1
            if tries == TRIES:
                _cancel(host, lease, say)
                raise
            why = fault.why
        except LeaseError as fault:
            end = fault if isinstance(fault, Over) else cause_of(host, lease)
            if end is None or not end.preempted:
                _cancel(host, lease, say)
                raise (end or fault) from None
            why = end.why
        except BaseException:
            _cancel(host, lease, say)
            raise
        _cancel(host, lease, say)
        say(f"lease {lease}: {why}; it is released and requested again")
        host.clock.sleep(1 + secrets.randbelow(8000) / 1000)
