"""The pool as it is now: GPUs, who has what of them, what is free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolkit.lease import JOB_NAME, SHARDS_PER_GPU
from toolkit.lease.fraction import share_text
from toolkit.lease.jobs.job_comment import is_lease_comment
from toolkit.lease.jobs.slurm_text import PoolNode, SlurmJob
from toolkit.lease.pool_file import PoolDescription, ServerGpu


@dataclass(frozen=True)
class Use:
    """A share of one GPU that somebody has."""

    user: str
    shards: int
    until: float | None
    lease: int
    is_lease: bool


@dataclass(frozen=True)
class PoolGpu:
    """One GPU of the pool. memory_mib 0: its server was not reached when the pool was described."""

    node: str
    index: int
    gpu_class: str
    model: str
    memory_mib: int
    emulated: bool
    of: int
    uses: tuple[Use, ...]
    reserved_mib: int = 0  # what the driver keeps of its memory
    context_bytes: int = 0  # what a program's context takes, 0 where it is not known
    state: str = ""  # why its server takes no work, "" when it does

    @property
    def free(self) -> int:
        """Free shards, 0 where the server takes no work."""
        return 0 if self.state else max(self.of - sum(use.shards for use in self.uses), 0)


def shards_per_gpu(node: PoolNode) -> int:
    """Parts that a node's GPUs are counted in; 0 where it offers whole GPUs only."""
    return node.shards // node.gpus if node.gpus else SHARDS_PER_GPU


def servers_of(nodes: Sequence[PoolNode], pool_file: PoolDescription) -> list[PoolNode]:
    """The nodes that are the pool's: all, or in a cluster of the site's own those that this machine was told of."""
    return [node for node in nodes if not pool_file.joined or node.name in pool_file.servers]


def is_lease(job: SlurmJob) -> bool:
    """Whether a job is a lease, for those who look at it."""
    return job.name == JOB_NAME and is_lease_comment(job.comment)


def gpus_of(nodes: Iterable[PoolNode], jobs: Sequence[SlurmJob], pool_file: PoolDescription) -> list[PoolGpu]:
    """Every GPU of the pool in the order of servers and indices."""
    uses: dict[tuple[str, int], list[Use]] = {}
    sizes = {node.name: shards_per_gpu(node) or 1 for node in nodes}
    unclear: dict[str, str] = {}
    for job in jobs:
        if job.ended:
            continue
        if job.problem and job.state != "PENDING":
            unclear |= dict.fromkeys(job.nodes, f"what job {job.id} has here is not known: {job.problem}")
        for held in job.held:
            shards = held.parts(sizes.get(held.node, 1))
            use = Use(job.user, shards, job.until, job.lease, is_lease(job))
            uses.setdefault((held.node, held.index), []).append(use)
    found = []
    for node in servers_of(list(nodes), pool_file):
        known = {gpu.index: gpu for gpu in pool_file.server(node.name).gpus}
        state = "" if node.serves else f"{node.state.lower()}{f': {node.reason}' if node.reason else ''}"
        state = node.problem or state or unclear.get(node.name, "")
        for index in range(node.gpus):
            gpu = known.get(index, ServerGpu(index))
            found.append(
                PoolGpu(
                    node=node.name,
                    index=index,
                    gpu_class=node.class_of(index),
                    model=gpu.name,
                    memory_mib=gpu.memory_mib,
                    emulated=gpu.emulated,
                    of=sizes[node.name],
                    uses=tuple(uses.get((node.name, index), ())),
                    reserved_mib=gpu.reserved_mib,
                    context_bytes=gpu.context_bytes,
                    state=state,
                )
            )
    return found


def free_text(gpus: Sequence[PoolGpu]) -> str:
    """How much of them is free, in GPUs: 7.5."""
    free = sum(gpu.free / gpu.of for gpu in gpus)
    return f"{free:.3g}"


def where_text(gpus: Iterable[tuple[str, int]]) -> str:
    """gpu1:0-1, gpu2:3 of servers and indices."""
    by_node: dict[str, list[int]] = {}
    for node, index in gpus:
        by_node.setdefault(node, []).append(index)
    words = []
    for node, indices in by_node.items():
        parts: list[list[int]] = []
        for index in sorted(set(indices)):
            if parts and parts[-1][1] == index - 1:
                parts[-1][1] = index
            else:
                parts.append([index, index])
        words.append(f"{node}:" + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts))
    return ", ".join(words)


def used_text(use: Use, of: int, until: str) -> str:
    """alice 1/2 until 16:20 (lease 41)."""
    kind = "lease" if use.is_lease else "job"
    end = f" until {until}" if use.until is not None else ""
    return f"{use.user} {share_text(use.shards, of)}{end} ({kind} {use.lease})"
