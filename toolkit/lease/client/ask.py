"""Asking for a lease: from what the user wishes to Slurm jobs that start together, and the wait for them."""

from __future__ import annotations

import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from toolkit.errors import or_nearest
from toolkit.lease import SHARDS_PER_GPU, Exit, LeaseError, engines, kept_note
from toolkit.lease.client.endings import Over, cause_of
from toolkit.lease.client.waiting import HeldBack, StartedInPart, wait
from toolkit.lease.display import several
from toolkit.lease.endpoint import LeaseEndpoint, NotStarted, endpoints_of
from toolkit.lease.engines import all_installed, installed
from toolkit.lease.fraction import GpuPart, host_memory_mib, memory_limit_mib, parse_part, part_for_memory
from toolkit.lease.jobs.job_comment import MAX_CLIENTS
from toolkit.lease.jobs.slurm import AGAIN_PAUSE_S
from toolkit.lease.jobs.slurm_text import Complaint, PoolNode, SlurmError
from toolkit.lease.jobs.submission import Submission, jobs_of
from toolkit.lease.lease_request import LeaseRequest, LeaseWish, Mode, Where
from toolkit.lease.machine.host import Host
from toolkit.lease.on_server import servers_for
from toolkit.lease.pool import PoolGpu, gpus_of, servers_of, shards_per_gpu
from toolkit.lease.pool_file import PoolDescription, PoolServer, read_pool
from validation.base.counting import number_of

#: What of a server's memory the programs on it share by GPUs: jobs without a GPU, and leases of engines, need some too.
MEMORY_SHARE = 0.9
#: How long a controller that started anew is given to hear of its nodes, 6 s in the lab: until then it refuses for ever
#: what they can give.
AWAITED_S = 30.0
#: How often a lease that its server could not start is asked for before the user hears of it.
TRIES = 5
#: After which the user hears that a lease is being started.
STARTS_S = 2.0


def eligible_here(host: Host, request: LeaseRequest, nodes: Sequence[PoolNode]) -> list[PoolNode]:
    """`eligible` of the pool as this machine knows it: all of Slurm's nodes, or those in a cluster of the site's own
    that are the pool's."""
    pool_file = read_pool(host.pool_conf)
    if not pool_file.joined:
        return eligible(request, nodes, host.slurm.default_partition())
    mine = servers_of(nodes, pool_file)
    # There a class of GPU is no partition: nodes of other classes are left out one by one.
    of_class = {node.gpu_class for node in mine if node.gpu_class}
    if request.gpu_class and request.gpu_class not in of_class:
        raise LeaseError(_no_class(request.gpu_class, of_class))
    found = eligible(replace(request, gpu_class=""), mine, pool_file.joined)
    return [node for node in found if not request.gpu_class or node.gpu_class == request.gpu_class]


def _no_class(wanted: str, there: set[str]) -> str:
    nearest = or_nearest(wanted, sorted(there), f"it has {', '.join(sorted(there))}", numbered=True)
    return f"--class {wanted}: the pool has no such class; {nearest}"


def eligible(request: LeaseRequest, nodes: Sequence[PoolNode], partition: str) -> list[PoolNode]:
    """Servers that may take the request; LeaseError naming what is wrong with the choice."""
    names = {node.name for node in nodes}
    unknown = [name for name in request.servers if name not in names]
    if unknown:
        there = or_nearest(unknown[0], sorted(names), f"there are {', '.join(sorted(names))}", numbered=True)
        raise LeaseError(f"-l {unknown[0]}: no such server; {there}")
    partitions = {p for node in nodes for p in node.partitions}
    if request.gpu_class and request.gpu_class not in partitions:
        raise LeaseError(_no_class(request.gpu_class, partitions))
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
        what = number_of(request.count, "GPU" if request.part.whole else "part")
        hint = "; without --apart they are different GPUs too, some of one server" if request.part.whole else ""
        raise LeaseError(
            f"--apart: {what} need {number_of(request.count, 'server')}, one each, and there are {len(nodes)} "
            f"({', '.join(node.name for node in nodes)}){hint}"
        )


def clients_for(host: Host, nodes: Sequence[PoolNode], pool_file: PoolDescription) -> tuple[str, ...]:
    """The addresses from which this machine reaches these servers: they alone are admitted. LeaseError where it reaches
    none."""
    told = [pool_file.server(node.name).address for node in nodes]
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


def host_mib(host: Host, request: LeaseRequest, nodes: Sequence[PoolNode], pool_file: PoolDescription) -> int:
    """Host memory that each device of the request needs on these servers: the most of them, because any of them may
    serve it; for a program on the server its share of the smallest. LeaseError where an engine is needed and none is
    installed here."""
    if request.where == "server":
        return min((int(n.memory_mib * MEMORY_SHARE) // n.gpus for n in _large(request, nodes)), default=0)
    engine, whole = installed(host.engine_dir, request.engine).engine, request.part.whole
    needs = []
    for server in (pool_file.server(node.name) for node in nodes):
        emulated = [gpu.memory_mib for gpu in server.gpus if gpu.emulated]
        part = memory_limit_mib(max(emulated), request.part.shards, request.part.of) if emulated else None
        stated = engines.host_memory_mib(engine, bool(emulated), whole)
        needs.append(host_memory_mib(server.memory_mib or stated, [part]))
    return max(needs, default=engines.host_memory_mib(engine, False, whole))


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


def submission_of(
    request: LeaseRequest,
    nodes: Sequence[PoolNode],
    everyone: Sequence[PoolNode],
    gpus: Sequence[PoolGpu],
    clients: tuple[str, ...],
) -> Submission:
    """What Slurm is asked for. nodes: the eligible of `everyone`; clients: our addresses."""
    names = {node.name for node in nodes}
    others = tuple(node.name for node in everyone if node.name not in names)
    each, jobs = jobs_of(request, gpus)
    this_machine = socket.gethostname().split(".")[0][:64]
    return Submission(request, each, jobs, clients, this_machine, others if request.servers else ())


def _part_of(wish: LeaseWish, gpus: Sequence[PoolGpu], of: int) -> GpuPart:
    """How much of each GPU is wished, of a pool whose GPUs have `of` shards."""
    if wish.memory_mib is not None:
        sizes = {gpu.memory_mib - gpu.reserved_mib for gpu in gpus if gpu.memory_mib}
        if not sizes:
            raise LeaseError("-m: the GPUs' memory size is not known here; run site.yml, or use -p")
        return part_for_memory(wish.memory_mib, min(sizes), of, max(gpu.context_bytes for gpu in gpus))
    return parse_part(wish.part, of) if wish.part is not None else GpuPart(max(of, 1), max(of, 1))


def _ceiling(up_to: str, request: LeaseRequest, nodes: Sequence[PoolNode], pool_file: PoolDescription) -> int:
    """Shards of the ceiling; LeaseError where it is below the part, or where a server cannot take it back again."""
    ceiling = parse_part(up_to, request.part.of)
    if ceiling.shards < request.part.shards:
        raise LeaseError(f"--up-to {up_to} is less than the part, {request.part.text}; give more, or omit it")
    if request.where == "server":
        raise LeaseError("--up-to is for programs that run here, their GPUs by an engine; on the server omit it")
    fixed = {node.name: pool_file.server(node.name).enforcement for node in nodes}
    fixed = {name: how for name, how in fixed.items() if how in ("mps", "mig")}
    if fixed:
        name, how = next(iter(fixed.items()))
        raise LeaseError(f"--up-to: {name} holds parts by {how.upper()}, which fixes a share at the start; omit it")
    return ceiling.shards


def engine_told(host: Host, name: str) -> str:
    """What the servers are told of the engine of that name: "" where it is the only one, so that a site with one engine
    asks as it always has. LeaseError where it is not installed here."""
    chosen = installed(host.engine_dir, name)
    return chosen.engine if len(all_installed(host.engine_dir)) > 1 else ""


def lacks_engine(server: PoolServer, name: str) -> bool:
    """Whether this machine was told of the server's engines, and that of this name is none of them."""
    return bool(name and server.engines) and name not in server.engines


def against_pool(
    host: Host, wish: LeaseWish, mode: Mode, say: Callable[[str], None], where: Where = "client"
) -> Submission:
    """The wish against the pool as it is; all refusals happen here, and what is rounded is said."""
    wish.check()
    everyone, jobs, pool_file = host.slurm.nodes(), host.slurm.jobs(), read_pool(host.pool_conf)
    seconds = wish.seconds
    request = LeaseRequest(
        wish.count, GpuPart(1, 1), wish.names, wish.gpu_class, seconds, mode, apart=wish.apart, where=where,
        engine=engine_told(host, wish.engine) if where == "client" else "",
    )  # fmt: skip
    nodes = eligible_here(host, request, everyone)
    lacking = [node.name for node in nodes if lacks_engine(pool_file.server(node.name), request.engine)]
    if lacking and len(lacking) == len(nodes):
        raise LeaseError(
            f"no server has the engine {request.engine} ({', '.join(lacking)}); choose another by --engine, run the "
            "program there (--where server), or set the engine's variables and run site.yml"
        )
    nodes = [node for node in nodes if node.name not in lacking]
    of = next((shards_per_gpu(node) for node in nodes), SHARDS_PER_GPU)
    gpus = [gpu for gpu in gpus_of(everyone, jobs, pool_file) if gpu.node in {node.name for node in nodes}]
    request = replace(request, part=_part_of(wish, gpus, of))
    if wish.up_to is not None:
        request = replace(request, up_to=_ceiling(wish.up_to, request, nodes, pool_file))
    refuse_impossible(request, nodes)
    if where == "server":
        there, unequal = servers_for(request.count, request.apart, [node.gpus for node in nodes])
        request = replace(request, servers_there=there, unequal=unequal)
        request = replace(request, cpus=cpus_for(request, nodes), cpus_per_gpu=cpus_per_gpu(request, nodes))
    request = replace(request, host_mib=host_mib(host, request, nodes, pool_file))
    if request.part.note:
        say(request.part.note)
    submission = submission_of(request, nodes, everyone, gpus, clients_for(host, nodes, pool_file))
    names, joined = {node.name for node in nodes}, pool_file.joined
    others = [node.name for node in everyone if joined in node.partitions and node.name not in names] if joined else []
    excluded = tuple(dict.fromkeys([*submission.excluded, *lacking, *others]))
    return replace(submission, excluded=excluded, partition=joined)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until what is inside is done, so that no job is made that nobody knows of."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def explain(fault: SlurmError, request: LeaseRequest, joined: str = "") -> str:
    """Slurm's refusal in a sentence for users. joined: the partition of leases in a cluster of the site's own."""
    named = f"class {request.gpu_class}: " if request.gpu_class else ""
    if fault.kind is Complaint.NOT_PERMITTED and joined:
        return (
            f"the cluster gives you nothing in its partition {joined} (Slurm: {fault}); ask its administrator for an "
            "account there"
        )
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


def submit(host: Host, submission: Submission) -> int:
    """Hand the jobs to Slurm; the lease's number."""
    began, refused_before = host.clock.monotonic(), False
    while True:
        try:
            return host.slurm.submit(submission)
        except SlurmError as fault:
            # Of a refusal alone nobody knows whether all servers had registered when it was made: of the next one, yes.
            early = any(n.awaited for n in host.slurm.nodes()) if fault.kind is Complaint.NEVER else False
            again = early or (fault.kind is Complaint.NEVER and not refused_before)
            if again and host.clock.monotonic() - began < AWAITED_S:
                refused_before = not early
                host.clock.sleep(AGAIN_PAUSE_S)
                continue
            later = fault.kind in (Complaint.AWAY, Complaint.NO_ANSWER, Complaint.BUSY)
            raise LeaseError(
                explain(fault, submission.request, submission.partition), Exit.RETRY if later else fault.code
            ) from None


def _cancel(host: Host, lease: int, say: Callable[[str], None]) -> None:
    """Give a lease back, whatever interrupts. One for a program that Slurm does not take now ends on its servers."""
    with uninterrupted():
        try:
            host.slurm.cancel(lease)
        except LeaseError as fault:
            say(f"lease {lease}: Slurm cannot cancel it now ({fault}); later: toolkit lease release {lease}")


@contextmanager
def _told_later(say: Callable[[str], None], words: str) -> Iterator[None]:
    """Say so if what is inside takes longer than STARTS_S: a server that imports PyTorch is not ready at once."""
    later = threading.Timer(STARTS_S, say, [words])
    later.daemon = True
    later.start()
    try:
        yield
    finally:
        later.cancel()
        later.join()  # none may run when the program is started


def obtain(host: Host, submission: Submission, say: Callable[[str], None]) -> tuple[int, list[LeaseEndpoint]]:
    """Ask and wait until all parts run, and where they are served. What started in part only, or not on its server, or
    was taken back for another before it could be used is given back and asked for again; whatever interrupts the wait
    gives the lease back.

    Slurm starts the jobs of a lease one by one: its heterogeneous jobs would start them together, but never two of
    them on one server.
    """
    tries = 0
    while True:
        with uninterrupted():
            lease = submit(host, submission)
            kept_note.note_lease(lease)
        try:
            jobs = wait(host, lease, submission.request.text, say, submission.jobs)
            servers = ", ".join(dict.fromkeys(node for job in jobs for node in job.nodes))
            with _told_later(say, f"lease {lease}: starting on {servers}"):
                return lease, endpoints_of(host, jobs)
        except StartedInPart:
            why = "only some of its parts could start"
        except NotStarted as fault:
            tries += 1
            if tries == TRIES:
                _cancel(host, lease, say)
                raise
            why = str(fault)
            submission = submission.device_by_device()
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
