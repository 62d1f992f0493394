"""What Slurm says, as data: jobs and nodes as leases see them, and the small texts in which Slurm writes lists.

Text for people is read of nodes and errors alone (`scontrol show node`, stderr), in which nothing is a user's. Jobs,
whose names, comments and paths are, come as JSON: module slurm_json.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from toolkit.lease import Exit, LeaseError
from toolkit.lease.jobs.slurm_lists import (
    Gres,
    duration_s,
    epoch,
    expand_hosts,
    gres_list,
    index_list,
    takes_work,
    tres,
)

#: States that a job does not leave again.
ENDED = (
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
)


__all__ = [
    "ENDED",
    "Complaint",
    "Held",
    "JobState",
    "PoolNode",
    "SlurmError",
    "SlurmJob",
    "Unclear",
    "complaint_of",
    "duration_s",
    "epoch",
    "expand_hosts",
    "index_list",
    "parse_gres",
    "parse_nodes",
]


class Complaint(Enum):
    """What an error message of Slurm's commands comes to."""

    NOT_PERMITTED = "the account, class or job is not the user's"
    POLICY = "the policy does not allow so much"
    NEVER = "no server can ever give it"
    NO_JOB = "no such job"
    NO_FILE = "the job's server has no such file"
    BUSY = "not now; it may work in a moment"
    AWAY = "the controller does not run, and has not heard it"
    NO_ANSWER = "the controller has not answered, and may have heard it"
    OTHER = "anything else"


#: Parts of Slurm's messages (and cat's, which srun passes on), the first that fits decides. From Slurm's slurm_errno.c.
_COMPLAINTS = (
    (Complaint.NO_FILE, ("No such file",)),
    (Complaint.BUSY, ("Requested nodes are busy", "still configuring", "try again")),
    (Complaint.NO_JOB, ("Invalid job id",)),
    (Complaint.AWAY, ("connect failure", "Connection refused", "standby mode")),
    (Complaint.NO_ANSWER, ("Unable to contact slurm controller", "Zero Bytes were transmitted", "Socket timed out")),
    (
        Complaint.NOT_PERMITTED,
        ("Invalid account", "ccess/permission", "not permitted", "Invalid qos", "Job's account"),
    ),
    (Complaint.POLICY, ("violates", "QOSMax", "AssocMax", "limit")),
    (Complaint.NEVER, ("configuration is not available", "Requested node configuration")),
)


def complaint_of(text: str) -> Complaint:
    """What an error message of Slurm's commands comes to."""
    # Of a step in a job that runs and has its memory: a controller that starts anew says so for a moment.
    if "create step" in text and "Memory required" in text:
        return Complaint.BUSY
    return next((kind for kind, parts in _COMPLAINTS if any(part in text for part in parts)), Complaint.OTHER)


class SlurmError(LeaseError):
    """A command of Slurm's failed; `kind` says in what way."""

    def __init__(self, complaint: str, code: int = Exit.USAGE, kind: Complaint | None = None, before: str = "") -> None:
        """complaint: what the command printed, which alone says the kind where none is given. before: for people."""
        super().__init__(before + complaint, code)
        self.kind = kind or complaint_of(complaint)


@dataclass(frozen=True)
class Held:
    """What a job holds of one GPU: `shards` 0 means the whole GPU. of: where the parts are others than the pool's, as
    those of CUDA MPS (100 of each GPU by default), how many of them a GPU is."""

    node: str
    index: int
    shards: int
    of: int = 0

    def parts(self, per_gpu: int) -> int:
        """In parts of which a GPU has so many, rounded up."""
        return -(-self.shards * per_gpu // self.of) if self.of else self.shards or per_gpu


@dataclass(frozen=True)
class SlurmJob:
    """A job, as far as leases are concerned. Times in seconds since the epoch, None where Slurm knows none."""

    id: int
    name: str
    user: str
    uid: int
    state: str
    reason: str
    partition: str
    start: float | None
    end: float | None
    time_limit_s: int | None
    held: tuple[Held, ...] = ()
    comment: str = ""
    admin_comment: str = ""
    #: When it was submitted, None where Slurm does not say.
    submitted: float | None = None
    #: The lease that it is a part of, and which part; pending parts are one job.
    array: int | None = None
    task: int = 0
    nodes: tuple[str, ...] = ()
    qos: str = ""
    #: Host memory that it asked for on each node; None where it asked in another way.
    memory_mib: int | None = None
    #: Its processors on all its nodes together; None where Slurm does not say.
    cpus: int | None = None
    #: Slurm takes it back for another job; `end` is then the end of its grace.
    preempted: bool = False
    #: Its class of users, '' in a pool without.
    account: str = ""
    #: How often Slurm has put it back into the queue.
    restarts: int = 0
    #: Its place in the queue: the highest number is looked at first.
    priority: int = 0
    #: Why it cannot be told what the job holds; "" where `held` says it.
    problem: str = ""

    @property
    def until(self) -> float | None:
        """When its time is over, or its grace where it is taken back; the time a year ahead that Slurm names for jobs
        without a limit is none."""
        return None if self.time_limit_s is None and not self.preempted else self.end

    @property
    def lease(self) -> int:
        """The number that users know the lease by: the job's, or that of the first of several."""
        return self.array or self.id

    @property
    def ended(self) -> bool:
        """Whether it will never run again."""
        return self.state in ENDED


@dataclass(frozen=True)
class JobState:
    """How far a job is; the reason while it waits."""

    id: int
    state: str
    reason: str

    @property
    def ended(self) -> bool:
        """Whether it will never run again."""
        return self.state in ENDED


@dataclass(frozen=True)
class PoolNode:
    """A server of the pool as Slurm sees it."""

    name: str
    state: str
    reason: str
    gpus: int
    gpu_class: str
    shards: int
    partitions: tuple[str, ...] = field(default=())
    #: The controller, started anew, has not heard of it yet. Until then it says that the node can give no shards, with
    #: the state UNKNOWN or any other (seen of Slurm 22.05).
    awaited: bool = False
    #: What it has for the programs of jobs; 0 where Slurm does not say.
    cpus: int = 0
    memory_mib: int = 0
    #: GPUs of each type in the order of Slurm's list, '' where they have none; `gpu_class` is the first type.
    gpu_types: tuple[tuple[str, int], ...] = ()
    #: Why it cannot be told what it has; "" where the other fields say it.
    problem: str = ""

    @property
    def serves(self) -> bool:
        """Whether it takes work."""
        return takes_work(self.state)

    def class_of(self, index: int) -> str:
        """The type of one of its GPUs: Slurm numbers them type by type."""
        for name, count in self.gpu_types:
            if index < count:
                return name or self.gpu_class
            index -= count
        return self.gpu_class


class Unclear(LeaseError):
    """What one job holds cannot be told; other jobs are not concerned."""


def parse_gres(node: str, text: str) -> list[Held]:
    """What a job holds on a node, from Slurm's detail of its resources there.

    Whole GPUs `gpu:v100:2(IDX:0-1)`; shards `shard:v100:35(IDX:0)` on one GPU, or, in later releases, by GPU:
    `shard:v100:35(35/140,0/140)`, as parts by CUDA MPS: `mps:50(50/100,0/100)`. Unclear where they lie on GPUs that
    cannot be told, or the text is another.
    """
    try:
        resources = gres_list(text)
    except ValueError:
        raise Unclear(f"Slurm's words for what a job has of {node} are unknown here: {text[:80]}") from None
    return [held for one in resources if one.name in ("gpu", "shard", "mps") for held in _held(node, one)]


def _held(node: str, one: Gres) -> list[Held]:
    """The GPUs of one resource: `where` is IDX:0-1, or 35/140,0/140."""
    if one.where.startswith("IDX:"):
        indices = index_list(one.where[4:])
        if one.name == "gpu" and len(indices) == one.count:
            return [Held(node, i, 0) for i in indices]
        if one.name == "shard" and len(indices) == 1 and one.count:
            return [Held(node, indices[0], one.count)]
        if not indices and not one.count:
            return []
    elif one.name != "gpu" and re.fullmatch(r"\d+/\d+(,\d+/\d+)*", one.where):
        parts = [tuple(map(int, part.split("/"))) for part in one.where.split(",")]
        if sum(mine for mine, _ in parts) == one.count and all(mine <= of for mine, of in parts):
            scale = one.name == "mps"
            return [Held(node, i, mine, of if scale else 0) for i, (mine, of) in enumerate(parts) if mine]
    raise Unclear(
        f"{one.count} {one.name}s of {node} are on several GPUs, or unknown ones ({one.where}); a part is on one GPU"
    )


def _line(block: str, key: str) -> str:
    """The value of a key that has a line of its own."""
    values = re.findall(rf"^ +{key}=(.*)$", block, re.MULTILINE)
    return values[0] if len(values) == 1 and values[0] != "(null)" else ""


def _gpus_of(text: str) -> tuple[dict[str, int], int]:
    """GPUs by type, and shards, of a node's resources; ValueError with the resource that cannot be read."""
    gpus: dict[str, int] = {}
    shards = 0
    for one in gres_list(text):
        if one.name == "gpu":
            gpus[one.type] = gpus.get(one.type, 0) + one.count
        elif one.name == "shard":
            shards += one.count
    return gpus, shards


def parse_nodes(text: str) -> list[PoolNode]:
    """All nodes of `scontrol show node`."""
    nodes = []
    for block in re.split(r"\n\s*\n(?=NodeName=)", text.strip()):
        name = re.match(r"NodeName=(\S+)", block)
        if not name:
            continue
        gpus: dict[str, int] = {}
        shards, problem = 0, ""
        try:
            gpus, shards = _gpus_of(_line(block, "Gres").strip())
        except ValueError as fault:
            problem = f"Slurm's words for what {name[1]} has are unknown here: {str(fault)[:80]}"
        state = re.search(r"^ +State=(\S+)", block, re.MULTILINE)
        cpus, memory = (
            re.search(rf"^ +(?:.* )?{key}=(\d+)\b", block, re.MULTILINE) for key in ("CPUTot", "RealMemory")
        )
        configured = tres(_line(block, "CfgTRES"), "gres/shard")
        nodes.append(
            PoolNode(
                name=name[1],
                state=state[1] if state else "UNKNOWN",
                reason=re.sub(r" \[[^\[\]]*@[^\[\]]*\]$", "", _line(block, "Reason")),
                gpus=sum(gpus.values()) or (tres(_line(block, "CfgTRES"), "gres/gpu") if problem else 0),
                gpu_class=next((kind for kind in gpus if kind), ""),
                shards=shards or configured,
                partitions=tuple(p for p in _line(block, "Partitions").strip().split(",") if p),
                awaited=shards < configured or bool(state and state[1].startswith("UNKNOWN")),
                cpus=int(cpus[1]) if cpus else 0,
                memory_mib=int(memory[1]) if memory else 0,
                gpu_types=tuple(gpus.items()),
                problem=problem,
            )
        )
    return nodes
