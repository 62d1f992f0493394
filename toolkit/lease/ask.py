"""Asking for a lease: from what the user wishes to Slurm jobs that start together, and the wait for them."""

from __future__ import annotations

import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from toolkit.lease import JOB_NAME, Exit, LeaseError, slurm
from toolkit.lease.endpoint import Endpoint, NotStarted, endpoints_of
from toolkit.lease.fraction import Part
from toolkit.lease.pool import PoolGpu
from toolkit.lease.request import MAX_CLIENTS, Request
from toolkit.lease.slurm_text import Job, PoolNode
from toolkit.lease.text import several

#: Host memory of the job itself, MiB: a shell that sleeps. What the instance may have is the server's matter.
JOB_MEMORY_MIB = 16
POLL_FIRST_S, POLL_LAST_S = 0.25, 2.0
#: How long the parts of one lease may start apart; servers keep those that run for twice as long and more.
PART_S = 25.0
#: How often a lease that its server could not start is asked for before the user hears of it.
TRIES = 5


@dataclass(frozen=True)
class Wish:
    """What a user asks for: `count` devices, each `part` of a GPU, for so many seconds (None: what the pool allows)."""

    count: int
    part: Part
    servers: tuple[str, ...] = ()
    gpu_class: str = ""
    seconds: int | None = None
    mode: str = "run"
    memory_mib: int = 0

    @property
    def text(self) -> str:
        """2 x 1/2 GPU, 1 GPU."""
        if self.part.whole:
            return several(self.count, "GPU")
        return f"{self.count} x {self.part.text} GPU" if self.count > 1 else f"{self.part.text} GPU"


def client_addresses() -> tuple[str, ...]:
    """This machine's IPv4 addresses by which a server may see it; loopback only where there is nothing else."""
    done = slurm.run(["ip", "-4", "-oneline", "address", "show", "scope", "global"])
    found = [line.split()[3].split("/")[0] for line in done.stdout.splitlines() if len(line.split()) > 3]
    if not found:
        raise LeaseError("this machine has no IPv4 address that a GPU server could answer to")
    return tuple(dict.fromkeys(found))[:MAX_CLIENTS]


def eligible(wish: Wish, nodes: Sequence[PoolNode], partition: str) -> list[PoolNode]:
    """Servers that may take the wish; LeaseError naming what is wrong with the choice."""
    names = {node.name for node in nodes}
    unknown = [name for name in wish.servers if name not in names]
    if unknown:
        raise LeaseError(f"-l {unknown[0]}: no such server; there are {', '.join(sorted(names))}")
    partitions = {p for node in nodes for p in node.partitions}
    if wish.gpu_class and wish.gpu_class not in partitions:
        raise LeaseError(
            f"--class {wish.gpu_class}: the pool has no such class; it has {', '.join(sorted(partitions))}"
        )
    wanted = wish.gpu_class or partition
    found = [n for n in nodes if n.gpus and (not wish.servers or n.name in wish.servers)]
    return [n for n in found if not wanted or wanted in n.partitions]


def refuse_impossible(wish: Wish, nodes: Sequence[PoolNode]) -> None:
    """LeaseError when the pool could not meet the wish even if it were empty."""
    if wish.count < 1:
        raise LeaseError(f"-n {wish.count}: ask for at least 1 GPU")
    gpus = sum(node.gpus for node in nodes)
    detail = ", ".join(f"{node.name}: {node.gpus}" for node in nodes) or "no server fits"
    fits = gpus if wish.part.whole else gpus * (wish.part.of // wish.part.shards)
    if wish.count > fits:
        most = "" if wish.part.whole else f", which is {fits} such parts"
        raise LeaseError(f"asks for {wish.text}, the pool has {several(gpus, 'GPU')} ({detail}){most}")


def _apart(wish: Wish) -> list[str]:
    """--gres of one job for each device.

    A whole GPU is asked for as all its shards: Slurm 22.05 counts shards right, but takes a GPU for free of them as
    soon as one of several jobs on it has ended, and would then give it out as a whole.
    """
    return [f"shard:{wish.part.shards}" if wish.part.of > 1 else "gpu:1"] * wish.count


def _resources(wish: Wish, gpus: Sequence[PoolGpu]) -> list[str]:
    """--gres of each job: one job for several whole GPUs where one server has them free, else one for each device."""
    free: dict[str, int] = {}
    for gpu in gpus:
        free[gpu.node] = free.get(gpu.node, 0) + (gpu.free == gpu.of)
    together = wish.part.whole and wish.count > 1 and any(count >= wish.count for count in free.values())
    return [f"gpu:{wish.count}"] if together else _apart(wish)


def options(
    wish: Wish, nodes: Sequence[PoolNode], everyone: Sequence[PoolNode], gpus: Sequence[PoolGpu]
) -> list[list[str]]:
    """sbatch's options of each of the lease's jobs. nodes: the eligible of `everyone`."""
    names = {node.name for node in nodes}
    others = [node.name for node in everyone if node.name not in names]
    minutes = [] if wish.seconds is None else [f"--time={max(-(-wish.seconds // 60), 1)}"]
    mode = "hold" if wish.mode == "hold" else "run"
    request = Request(
        clients=client_addresses(),
        host=socket.gethostname().split(".")[0][:64],
        mode=mode,  # type: ignore[arg-type]
        what=wish.text,
        ttl_s=wish.seconds if wish.seconds is not None and wish.seconds % 60 else 0,
        memory_mib=wish.memory_mib,
    )
    common = [
        f"--job-name={JOB_NAME}",
        f"--comment={request.comment()}",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=1",
        f"--mem={JOB_MEMORY_MIB}",
        "--no-requeue",
        "--oversubscribe",
        "--chdir=/",
        *(f"--{stream}=/dev/null" for stream in ("input", "output", "error")),
        *minutes,
        *([f"--partition={wish.gpu_class}"] if wish.gpu_class else []),
        *([f"--exclude={','.join(others)}"] if others and wish.servers else []),
    ]
    return [[*common, f"--gres={resource}"] for resource in _resources(wish, gpus)]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until what is inside is done, so that no job is made that nobody knows of."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def explain(words: str, wish: Wish) -> str:
    """Slurm's refusal in a sentence for users."""
    named = f"class {wish.gpu_class}: " if wish.gpu_class else ""
    if any(
        text in words
        for text in ("Invalid account", "access/permission", "not permitted", "Invalid qos", "Job's account")
    ):
        which = "use it" if wish.gpu_class else "use all classes; name one of yours by --class"
        return f"{named}you may not {which} (Slurm: {words}); toolkit gpus lists the classes"
    if any(text in words for text in ("violates", "QOSMax", "AssocMax", "limit")):
        return f"{named}the pool's policy does not allow you that much (Slurm: {words})"
    if "configuration is not available" in words or "Requested node configuration" in words:
        return f"{named}no server of the pool can ever give {wish.text} (Slurm: {words})"
    return f"Slurm refuses: {words}"


def submit(wish: Wish, parts: Sequence[Sequence[str]]) -> int:
    """Hand the jobs to Slurm; the lease's number."""
    try:
        return slurm.submit(parts[0], len(parts))
    except LeaseError as fault:
        raise LeaseError(explain(str(fault), wish), fault.code) from None


def ended_words(job: Job) -> str:
    """Why a lease's job is over."""
    left = job.admin_comment.removeprefix("ended: ") if job.admin_comment.startswith("ended: ") else ""
    by_state = {
        "TIMEOUT": "its time is over",
        "PREEMPTED": "a job of higher priority needed the GPUs",
        "NODE_FAIL": f"{', '.join(job.nodes) or 'its server'} failed",
        "CANCELLED": "it was taken back",
        "DEADLINE": "its time is over",
    }
    state = job.state.split("+")[0]
    return left or by_state.get(state, f"Slurm says {state.lower()}{f' ({job.reason})' if job.reason else ''}")


class StartedInPart(Exception):
    """Some parts of a lease run and others do not: two leases may each have what the other waits for."""


def obtain(wish: Wish, parts: Sequence[Sequence[str]], say: Callable[[str], None]) -> tuple[int, list[Endpoint]]:
    """Ask and wait until all parts run, and where they are served. What started in part only, or not on its server, is
    given back and asked for again; whatever interrupts the wait gives the lease back.

    Slurm starts the jobs of a lease one by one: its heterogeneous jobs would start them together, but never two of
    them on one server.
    """
    tries = 0
    while True:
        with uninterrupted():
            lease = submit(wish, parts)
        try:
            return lease, endpoints_of(wait(lease, wish.text, say, len(parts)))
        except StartedInPart:
            why = "only some of its parts could start"
        except NotStarted as fault:
            tries += 1
            if tries == TRIES:
                with uninterrupted():
                    slurm.cancel(lease)
                raise
            why = str(fault)
            parts = [[*parts[0][:-1], f"--gres={resource}"] for resource in _apart(wish)]
        except BaseException:
            with uninterrupted():
                slurm.cancel(lease)
            raise
        with uninterrupted():
            slurm.cancel(lease)
        say(f"lease {lease}: {why}; it is given back, and asked for again")
        time.sleep(1 + secrets.randbelow(8000) / 1000)


def wait(lease: int, wish_text: str, say: Callable[[str], None], parts: int = 1) -> list[Job]:
    """Wait until all jobs of a lease run, and say what it waits for whenever that changes."""
    pause, told, began, first = POLL_FIRST_S, "", time.monotonic(), 0.0
    while True:
        jobs = slurm.job_parts(lease)
        if not jobs:
            raise LeaseError(f"lease {lease} is gone from Slurm's memory", Exit.RETRY)
        over = next((job for job in jobs if job.ended), None)
        if over is not None:
            raise LeaseError(f"lease {lease} has ended: {ended_words(over)}", Exit.RETRY)
        running = [job for job in jobs if job.state == "RUNNING"]
        if len(running) == len(jobs) == parts:
            return jobs
        first = first or (time.monotonic() if running else 0.0)
        if running and time.monotonic() - first > PART_S:
            raise StartedInPart
        if time.monotonic() - began > 1 and any(job.state == "PENDING" for job in jobs):
            place, start = slurm.place_in_queue(lease), slurm.expected_start(lease)
            reason = next((job.reason for job in jobs if job.state == "PENDING"), "")
            words = f"lease {lease}: waits for {wish_text}"
            words += f", place {place} in the queue" if place else ""
            words += f" ({reason})" if reason not in ("", "None") else ""
            words += f", expected {start.replace('T', ' ')}" if start else ""
            if words != told and (place or not told):
                say(words)
                told = words
        time.sleep(pause)
        pause = min(pause * 1.5, POLL_LAST_S)
