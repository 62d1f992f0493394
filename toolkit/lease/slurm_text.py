"""What Slurm says, as data: jobs and nodes as leases see them, and the small texts in which Slurm writes lists.

Text for people is read of nodes and errors alone (`scontrol show node`, stderr), in which nothing is a user's. Jobs,
whose names, comments and paths are, come as JSON: module slurm_json.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from toolkit.lease import LeaseError

#: One resource of a job on a node: gpu:v100:2(IDX:0-1), shard:35(35/140,0/140), gpu:(null):1(IDX:0).
_GRES = re.compile(r"([A-Za-z][\w/.-]*)(?::(\(null\)|[A-Za-z][\w.-]*))?:(\d+)[KMGTP]?(?:\(([^()]*)\))?")
_PLAIN_GRES = re.compile(r"(gpu|shard)(?::([A-Za-z][\w.-]*))?:(\d+)")
_RANGES = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
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


@dataclass(frozen=True)
class Held:
    """What a job holds of one GPU: `shards` 0 means the whole GPU."""

    node: str
    index: int
    shards: int


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
    #: The lease that it is a part of, and which part; pending parts are one job.
    array: int | None = None
    task: int = 0
    nodes: tuple[str, ...] = ()
    qos: str = ""
    #: Host memory that it asked for on each node; None where it asked in another way.
    memory_mib: int | None = None
    #: Slurm takes it back for another job; `end` is then the end of its grace.
    preempted: bool = False
    #: Its class of users, '' in a pool without.
    account: str = ""
    #: How often Slurm has put it back into the queue.
    restarts: int = 0
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

    @property
    def serves(self) -> bool:
        """Whether it takes work."""
        flags = {word.strip("*~#!%$@^-").lower() for word in self.state.split("+")}
        return not flags & {"down", "drain", "draining", "drained", "fail", "unknown", "not_responding", "maint"}


def index_list(text: str) -> list[int]:
    """The numbers of '0-2,5'; none of 'N/A'."""
    if not _RANGES.fullmatch(text):
        return []
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


class Unclear(LeaseError):
    """What one job holds cannot be told; other jobs are not concerned."""


def parse_gres(node: str, text: str) -> list[Held]:
    """What a job holds on a node, from Slurm's detail of its resources there.

    Whole GPUs `gpu:v100:2(IDX:0-1)`; shards `shard:v100:35(IDX:0)` on one GPU, or, in later releases, by GPU:
    `shard:v100:35(35/140,0/140)`. Unclear where shards lie on GPUs that cannot be told, or the text is another.
    """
    held: list[Held] = []
    rest = text
    while rest:
        match = _GRES.match(rest)
        if not match or rest[match.end() :][:1] not in ("", ","):
            raise Unclear(f"Slurm's words for what a job has of {node} are unknown here: {text[:80]}")
        rest = rest[match.end() + 1 :]
        kind, _type, count, where = match.groups()
        if kind in ("gpu", "shard") and int(count):
            held += _held(node, kind, int(count), where or "")
    return held


def _held(node: str, kind: str, count: int, where: str) -> list[Held]:
    """The GPUs of one resource: `where` is IDX:0-1, or 35/140,0/140."""
    if where.startswith("IDX:"):
        indices = index_list(where[4:])
        if kind == "gpu" and len(indices) == count:
            return [Held(node, i, 0) for i in indices]
        if kind == "shard" and len(indices) == 1:
            return [Held(node, indices[0], count)]
    elif kind == "shard" and re.fullmatch(r"\d+/\d+(,\d+/\d+)*", where):
        parts = [int(part.split("/")[0]) for part in where.split(",")]
        if sum(parts) == count:
            return [Held(node, i, part) for i, part in enumerate(parts) if part]
    raise Unclear(f"{count} {kind}s of {node} are on several GPUs, or unknown ones ({where}); a part is on one GPU")


def epoch(text: str) -> float | None:
    """Seconds since the epoch as Slurm prints them with SLURM_TIME_FORMAT=%s; None of 'Unknown' and 'N/A'."""
    return float(text) if re.fullmatch(r"\d+", text) else None


def duration_s(text: str) -> int | None:
    """Seconds of Slurm's D-HH:MM:SS, None where there is no limit."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?", text)
    if not match:
        return None
    days, a, b, c = (int(g) if g else 0 for g in match.groups())
    return days * 86400 + (a * 3600 + b * 60 + c if match[4] is not None else a * 60 + b)


def expand_hosts(text: str) -> tuple[str, ...]:
    """Node names of 'gpu[1-2,07],head'; () of '(null)'."""
    if text in ("", "(null)"):
        return ()
    names: list[str] = []
    for match in re.finditer(r"([^,\[\]]+)(?:\[([^\]]*)\])?([^,\[\]]*)", text):
        stem, ranges, tail = match.groups()
        if ranges is None:
            names.append(stem)
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            names += [f"{stem}{n:0{len(first)}d}{tail}" for n in range(int(first), int(last or first) + 1)]
    return tuple(names)


def _line(block: str, key: str) -> str:
    """The value of a key that has a line of its own."""
    values = re.findall(rf"^ +{key}=(.*)$", block, re.MULTILINE)
    return values[0] if len(values) == 1 and values[0] != "(null)" else ""


def _configured(block: str, resource: str) -> int:
    """How much of it slurm.conf gives the node."""
    counts = [
        entry.partition("=")[2] for entry in _line(block, "CfgTRES").split(",") if entry.startswith(f"{resource}=")
    ]
    return int(counts[0]) if len(counts) == 1 and counts[0].isdigit() else 0


def parse_nodes(text: str) -> list[PoolNode]:
    """All nodes of `scontrol show node`."""
    nodes = []
    for block in re.split(r"\n\s*\n(?=NodeName=)", text.strip()):
        name = re.match(r"NodeName=(\S+)", block)
        if not name:
            continue
        gres = _PLAIN_GRES.findall(re.sub(r"\([^)]*\)", "", _line(block, "Gres")))
        state = re.search(r"^ +State=(\S+)", block, re.MULTILINE)
        shards = sum(int(n) for kind, _t, n in gres if kind == "shard")
        cpus, memory = (
            re.search(rf"^ +(?:.* )?{key}=(\d+)\b", block, re.MULTILINE) for key in ("CPUTot", "RealMemory")
        )
        configured = _configured(block, "gres/shard")
        nodes.append(
            PoolNode(
                name=name[1],
                state=state[1] if state else "UNKNOWN",
                reason=re.sub(r" \[.*\]$", "", _line(block, "Reason")),
                gpus=sum(int(n) for kind, _t, n in gres if kind == "gpu"),
                gpu_class=next((t for kind, t, _n in gres if kind == "gpu" and t), ""),
                shards=shards or configured,
                partitions=tuple(p for p in _line(block, "Partitions").strip().split(",") if p),
                awaited=shards < configured or bool(state and state[1].startswith("UNKNOWN")),
                cpus=int(cpus[1]) if cpus else 0,
                memory_mib=int(memory[1]) if memory else 0,
            )
        )
    return nodes
