"""Slurm's own text, as `scontrol show job -d` and `scontrol show node -d` print it (22.05 and later), as data.

A user chooses the name, the comment and the paths of a job. What stands there must never be taken for Slurm's own
words: a job whose text repeats one of Slurm's keys is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from toolkit.lease import LeaseError

_GRES = re.compile(r"(gpu|shard)(?::([A-Za-z][\w.-]*))?:(\d+)\(([^)]*)\)")
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
    OTHER = "anything else"


#: Parts of Slurm's messages (and cat's, which srun passes on), the first that fits decides. From Slurm's slurm_errno.c.
_COMPLAINTS = (
    (Complaint.NO_FILE, ("No such file",)),
    (Complaint.BUSY, ("Requested nodes are busy", "still configuring", "try again")),
    (Complaint.NO_JOB, ("Invalid job id",)),
    (
        Complaint.NOT_PERMITTED,
        ("Invalid account", "ccess/permission", "not permitted", "Invalid qos", "Job's account"),
    ),
    (Complaint.POLICY, ("violates", "QOSMax", "AssocMax", "limit")),
    (Complaint.NEVER, ("configuration is not available", "Requested node configuration")),
)


def complaint_of(text: str) -> Complaint:
    """What an error message of Slurm's commands comes to."""
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
    wanted: str = ""

    @property
    def until(self) -> float | None:
        """When its time is over; Slurm names a time a year ahead for jobs without a limit, which is none."""
        return None if self.time_limit_s is None else self.end

    @property
    def lease(self) -> int:
        """The number that users know the lease by: the job's, or that of the first of several."""
        return self.array or self.id

    @property
    def ended(self) -> bool:
        """Whether it will never run again."""
        return self.state.split("+")[0] in ENDED


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


def parse_gres(node: str, text: str) -> list[Held]:
    """What a `GRES=` of a job's node line holds.

    Whole GPUs `gpu:v100:2(IDX:0-1)`; shards `shard:v100:35(IDX:0)` on one GPU, or, in later releases, by GPU:
    `shard:v100:35(35/140,0/140)`. LeaseError where shards lie on GPUs that cannot be told.
    """
    held: list[Held] = []
    for kind, _type, count, where in _GRES.findall(text):
        if where.startswith("IDX:"):
            indices = index_list(where[4:])
            if kind == "gpu":
                held += [Held(node, i, 0) for i in indices]
            elif len(indices) == 1:
                held.append(Held(node, indices[0], int(count)))
            elif indices:
                raise LeaseError(f"{count} shards of {node} are on several GPUs ({where}); a part must be on one GPU")
        elif "/" in where:
            parts = [part.split("/") for part in where.split(",")]
            held += [Held(node, i, int(p[0])) for i, p in enumerate(parts) if p[0].isdigit() and int(p[0])]
    return held


def epoch(text: str) -> float | None:
    """Seconds since the epoch of Slurm's local time, None of 'Unknown' and 'N/A'."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


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


def _key(block: str, key: str) -> str:
    """The value of `key` in a job's text; LeaseError if the key is repeated."""
    values = re.findall(rf"(?<![^\s]){key}=(\S*)", block)
    if len(values) > 1:
        raise LeaseError(f"the text of the job has {key} {len(values)} times: its name or comment imitates Slurm's")
    return values[0] if values else ""


def _line(block: str, key: str) -> str:
    """The value of a key that has a line of its own."""
    values = re.findall(rf"^ +{key}=(.*)$", block, re.MULTILINE)
    return values[0] if len(values) == 1 and values[0] != "(null)" else ""


def _line_word(block: str, key: str) -> str:
    """The first word of a key's line."""
    return (_line(block, key).split() or [""])[0]


def parse_job(block: str) -> SlurmJob:
    """One job's text. LeaseError when it cannot be trusted.

    Of the user's own texts only the name is above `MinCPUsNode=`; comment, command and paths are below it.
    """
    block = block.rstrip("\n")
    if any(ord(c) < 32 and c != "\n" for c in block):
        raise LeaseError("the text of the job contains control characters")
    own, _, tail = block.partition("\n   MinCPUsNode=")
    lines = own.split("\n")
    head = re.fullmatch(
        r"JobId=(\d+) (?:ArrayJobId=(\d+) ArrayTaskId=(\S+) )?(?:HetJobId=\d+ HetJobOffset=\d+ )?JobName=(.*)", lines[0]
    )
    second = next((line for line in lines[1:] if not line.startswith("   HetJobIdSet=")), "")
    if not head or not second.startswith("   UserId="):
        raise LeaseError(f"not the text of a job: {lines[0][:80]}")
    body = "\n".join(lines[1:])
    user = re.fullmatch(r"(.+)\((\d+)\)", _key(body, "UserId"))
    if not user:
        raise LeaseError(f"job {head[1]} has no owner")
    held: list[Held] = []
    for nodes, gres in re.findall(r"^ +Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)", body, re.MULTILINE):
        for node in expand_hosts(nodes):
            held += parse_gres(node, gres)
    return SlurmJob(
        id=int(head[1]),
        name=head[4],
        user=user[1],
        uid=int(user[2]),
        state=_key(body, "JobState"),
        reason=_key(body, "Reason"),
        partition=_key(body, "Partition"),
        start=epoch(_key(body, "StartTime")),
        end=epoch(_key(body, "EndTime")),
        time_limit_s=duration_s(_key(body, "TimeLimit")),
        held=tuple(held),
        comment=_line(tail, "Comment"),
        admin_comment=_line(tail, "AdminComment"),
        array=int(head[2]) if head[2] else None,
        task=int(head[3]) if (head[3] or "").isdigit() else 0,
        nodes=expand_hosts(_key(body, "NodeList")),
        wanted=_line_word(tail, "TresPerNode").replace("gres:", "").replace("gres/", ""),
    )


def parse_jobs(text: str) -> list[SlurmJob]:
    """All jobs of `scontrol show job -d`. Those whose text cannot be trusted are left out: they are no leases.

    A name with an empty line in it splits one text in two: a job id that appears twice is ignored.
    """
    jobs = []
    blocks = re.split(r"\n\s*\n(?=JobId=)", text.strip())
    ids = [match[1] for match in (re.match(r"JobId=(\d+)", block) for block in blocks) if match]
    for block in blocks:
        try:
            jobs.append(parse_job(block))
        except LeaseError:
            continue
    return [job for job in jobs if ids.count(str(job.id)) == 1]


def parse_nodes(text: str) -> list[PoolNode]:
    """All nodes of `scontrol show node`."""
    nodes = []
    for block in re.split(r"\n\s*\n(?=NodeName=)", text.strip()):
        name = re.match(r"NodeName=(\S+)", block)
        if not name:
            continue
        gres = _PLAIN_GRES.findall(re.sub(r"\([^)]*\)", "", _line(block, "Gres")))
        state = re.search(r"^ +State=(\S+)", block, re.MULTILINE)
        nodes.append(
            PoolNode(
                name=name[1],
                state=state[1] if state else "UNKNOWN",
                reason=re.sub(r" \[.*\]$", "", _line(block, "Reason")),
                gpus=sum(int(n) for kind, _t, n in gres if kind == "gpu"),
                gpu_class=next((t for kind, t, _n in gres if kind == "gpu" and t), ""),
                shards=sum(int(n) for kind, _t, n in gres if kind == "shard"),
                partitions=tuple(p for p in _line(block, "Partitions").strip().split(",") if p),
            )
        )
    return nodes
