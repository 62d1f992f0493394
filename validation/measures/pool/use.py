"""Who held how much of the pool and for how long (kind pool-use)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from validation.base.counting import number_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, real, short
from validation.measures.pool.pool_use_probe import FIELDS, counted, first_s
from validation.model import Sample, Scalar
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, once
from validation.probes import ProbeDoc

GONE = "servers that left"
"""The class of GPUs of a server that Slurm does not know any more."""
NOBODY = "no class of users"
"""Who has no account in Slurm."""


class PoolClass(Model):
    """GPUs of one class as they are now. `busy_s`: GPU-seconds in which a kernel ran, `seen_s`: for which monitoring
    has a reading; both None where there is none.
    """

    name: Name
    gpus: Count
    busy_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    seen_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class PoolRequest(Model):
    """What somebody asked for and got: a lease, or a job on the server itself. Times: seconds since 1970.

    `parts`: of a GPU, `parts_per_gpu` make one. `ended_s` None: it still runs. `users`: the class of users. `asked`:
    parts that it asked for, `limit_s`: how long it may last (None: without a limit), `state` how it ended; none of them
    in runs of before.
    """

    gpu_class: Name
    users: Name
    parts: int = Field(ge=1)
    arrived_s: Count
    started_s: Count
    ended_s: Count | None
    asked: Count | None = None
    limit_s: Count | None = None
    state: str = ""

    @model_validator(mode="after")
    def _in_order(self) -> PoolRequest:
        times = (self.arrived_s, self.started_s, self.started_s if self.ended_s is None else self.ended_s)
        if list(times) != sorted(times):
            raise ValueError("a request arrives, starts and ends, in this order")
        return self


class Utilised(Model):
    """Share of the time in which a kernel ran, of all GPUs that monitoring knew; it has readings of `seconds`."""

    ratio: float = Field(ge=0, le=1, allow_inf_nan=False)
    seconds: float = Field(gt=0, allow_inf_nan=False)


class PoolHistory(Model):
    """Utilisation before and since a GPU of the pool was first leased, by the monitoring's own series. Times: seconds
    since 1970; `first_s`: of the first reading; `pooled_s` None: nothing was leased yet.
    """

    series: Name
    first_s: float = Field(ge=0, allow_inf_nan=False)
    pooled_s: float | None = Field(ge=0, allow_inf_nan=False)
    before: Utilised | None
    since: Utilised | None

    @model_validator(mode="after")
    def _in_order(self) -> PoolHistory:
        if self.pooled_s is None and self.since is not None:
            raise ValueError("nothing was leased yet, and there is a time since")
        return self


class PoolUseFacts(Facts):
    """The record of a time. `waiting`: requests that had nothing by its end, `never`: that ended before they had.
    `history`: of a longer one, None where monitoring has nothing of it, and in runs of earlier releases; `unread`: why
    it could not be read.
    """

    type: Literal["pool-use"] = "pool-use"
    from_s: Count
    until_s: Count
    parts_per_gpu: int = Field(ge=1)
    emulated: bool | None
    unwatched: str
    classes: tuple[PoolClass, ...]
    requests: tuple[PoolRequest, ...]
    waiting: Count
    never: Count
    history: PoolHistory | None = None
    unread: str = ""

    @model_validator(mode="after")
    def _whole(self) -> PoolUseFacts:
        once(self.classes, "name")
        if self.until_s <= self.from_s:
            raise ValueError("a time ends after it began")
        unknown = {r.gpu_class for r in self.requests} - {c.name for c in self.classes}
        if unknown:
            raise ValueError(f"requests of a class that is not there: {min(unknown)}")
        return self

    @property
    def seconds(self) -> int:
        """How long the time is."""
        return self.until_s - self.from_s

    def held_s(self, request: PoolRequest) -> float:
        """GPU-seconds that a request held within the time."""
        end = self.until_s if request.ended_s is None else min(request.ended_s, self.until_s)
        return max(end - max(request.started_s, self.from_s), 0) * request.parts / self.parts_per_gpu


# --- Slurm's accounting of the pool: rows of sacct as requests for GPUs ----------------------------------------------


_NO_TIME = ("Unknown", "None", "N/A", "NONE", "NOT_SET", "")
"""What sacct prints where there is no such time (yet)."""
_GOES_ON = ("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING")
"""States of sacct's jobs that have not ended, as its manual lists them."""


def _time(text: str, what: str) -> int | None:
    if text in _NO_TIME:
        return None
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise ParseError(f"pool-use: {what}: {short(text, 40)!r} is no time in seconds since 1970")
    return int(text)


def _parts(tres: str, per_gpu: Mapping[str, int]) -> int:
    """Parts of GPUs in a list like billing=5040,cpu=1,gres/gpu=2,gres/shard=35."""
    whole = per_gpu[""]
    return sum(counted(tres, f"gres/{name}") * whole // of for name, of in per_gpu.items() if name)


def _promised(fields: Mapping[str, str], per_gpu: Mapping[str, int]) -> dict[str, Any]:
    """What a job asked for, how long it may last, how it ended; nothing in runs of before its time was asked for."""
    if "TimelimitRaw" not in fields:
        return {}
    minutes = fields["TimelimitRaw"]  # or UNLIMITED, Partition_Limit
    return {
        "asked": _parts(fields["ReqTRES"], per_gpu),
        "limit_s": 60 * int(minutes) if re.fullmatch(r"[0-9]{1,9}", minutes) else None,
        "state": short(fields["State"].partition(" ")[0], 20),
    }


def _first_host(hosts: str) -> str:
    """The first of a list as Slurm writes it: rack[01-03]n[2,4],gpu9 -> rack01n2."""
    name = re.match(r"(?:[^,\[\]]|\[[^\]]*\])*", hosts)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", name[0] if name else "")


def _nodes(told: object) -> tuple[dict[str, tuple[str, int]], dict[str, int]]:
    """Node -> class and GPUs; and how many of each resource make a GPU, "": of parts that fit all of these."""
    if not isinstance(told, list) or not told:
        raise ParseError("pool-use: Slurm knows no node with GPUs")
    found: dict[str, tuple[str, int]] = {}
    parts: dict[str, set[int]] = {"shard": set(), "mps": set()}
    for node in told:
        name, of, gpus, shards = (node[key] for key in ("name", "class", "gpus", "shards"))
        if not isinstance(name, str) or not isinstance(of, str) or not name or not of or name in found:
            raise ParseError("pool-use: a node without a name or class, or one that is there twice")
        count(gpus, f"pool-use: GPUs of {name}")
        found[name] = (of, gpus)
        for kind, many in (("shard", shards), ("mps", node.get("mps", 0))):
            count(many, f"pool-use: {kind}s of {name}")
            if gpus and many:
                if many % gpus:
                    raise ParseError(
                        f"pool-use: {many} {kind}s of {number_of(gpus, 'GPU')} of {name}: not the same for each"
                    )
                parts[kind].add(many // gpus)
    for kind, sizes in parts.items():
        if len(sizes) > 1:
            words = " or ".join(map(str, sorted(sizes)))
            raise ParseError(f"pool-use: a GPU has {words} {kind}s: not the same on all nodes")
    per_gpu = {"gpu": 1, **{kind: size for kind, sizes in parts.items() for size in sizes}}
    return found, per_gpu | {"": math.lcm(*per_gpu.values())}


def _classes(nodes: Mapping[str, tuple[str, int]], used: object, names: Sequence[str]) -> tuple[PoolClass, ...]:
    """All classes with their GPUs, and what monitoring saw of them."""
    if not isinstance(used, dict):
        raise ParseError("pool-use: used is no object")
    found = []
    for name in names:
        mine = [node for node, (of, _) in nodes.items() if of == name]
        seen = [used[node] for node in mine if node in used]
        # a GPU whose utilisation is not read has no busy_s either
        busy, readings = (sum(real(s.get(key, 0.0), f"pool-use: {key}") for s in seen) for key in ("busy_s", "seen_s"))
        gpus = sum(nodes[node][1] for node in mine)
        if busy < 0 or readings < 0 or busy > readings * 1.000001:
            raise ParseError(f"pool-use: {name}: {busy} GPU-seconds busy of {readings} seen")
        has = bool(seen) and readings > 0
        found.append(PoolClass(name=name, gpus=gpus, busy_s=busy if has else None, seen_s=readings if has else None))
    return tuple(found)


def _history(told: object, until_s: int) -> dict[str, Any] | None:
    """Utilisation before and since; ParseError where it has more time than there was."""
    if told is None:
        return None
    if not isinstance(told, dict):
        raise ParseError("pool-use: history is no object")
    first = real(told["first_s"], "pool-use: the first reading")
    pooled = until_s if told["pooled_s"] is None else real(told["pooled_s"], "pool-use: the first lease")
    step = real(told["look_s"], "pool-use: seconds between readings")
    for name, begin, end in (("before", first, pooled), ("since", pooled, until_s)):
        seconds = 0.0 if told[name] is None else real(told[name]["seconds"], f"pool-use: seconds {name}")
        # a window has a reading at both of its ends
        if seconds > max(end - begin, 0) + 2 * step:
            raise ParseError(f"pool-use: readings of {seconds:g} s {name}, and {max(end - begin, 0):g} s there were")
    return {key: value for key, value in told.items() if key != "look_s"}


def pool_use(doc: ProbeDoc, _params: Mapping[str, Scalar]) -> Parsed:
    """Every job with GPUs that held some in the time. The sample is the share of all GPU-seconds that was held: more
    than 1 where GPUs were taken away since, or where Slurm takes jobs for running that are gone.
    """
    facts = doc["facts"]
    from_s, until_s = (int(count(facts[key], f"pool-use: {key}")) for key in ("from_s", "until_s"))
    nodes, per_gpu = _nodes(facts["nodes"])
    rows = doc["stdout"].splitlines()
    # sacct's output has no end of its own: with a row fewer it would be another pool's
    if count(facts["lines"], "pool-use: lines") != doc["stdout"].count("\n") or doc["stdout"][-1:] not in ("", "\n"):
        raise ParseError(f"pool-use: {number_of(len(rows), 'row')} of sacct, not the {facts['lines']} that it printed")
    first = first_s(rows)
    if first is not None and from_s < min(first, until_s - 1):
        raise ParseError("pool-use: the time begins before the first job")
    requests: list[dict[str, Any]] = []
    waiting = never = 0
    known = {of for of, _ in nodes.values()}
    asked = FIELDS if FIELDS[-1] in ",".join(doc["command"]) else FIELDS[:-1]  # of runs of before
    for row in rows:
        cells = row.split("|")
        fields = dict(zip(asked, cells, strict=False))
        if len(cells) != len(asked) or not fields["State"]:
            raise ParseError(f"pool-use: a row of sacct is not {len(asked)} fields: {short(row, 80)!r}")
        job = fields["JobIDRaw"]
        arrived, started, ended = (_time(fields[key], f"{key} of {job}") for key in ("Eligible", "Start", "End"))
        parts = _parts(fields["AllocTRES"], per_gpu)
        if not parts or started is None:
            if _parts(fields["ReqTRES"], per_gpu):
                waiting += fields["State"] == "PENDING"
                never += fields["State"] != "PENDING"
            continue
        if ended is not None and ended <= from_s:
            continue
        if ended is None and fields["State"].partition(" ")[0] not in _GOES_ON:
            raise ParseError(f"pool-use: {job} is {short(fields['State'], 40)} and has no end")
        of = nodes.get(_first_host(fields["NodeList"]), (fields["Partition"], 0))[0]
        requests.append(
            {
                "gpu_class": of if of in known else GONE,
                "users": fields["Account"] or NOBODY,
                "parts": parts,
                # a job that was put back into the queue may be eligible anew after it began
                "arrived_s": started if arrived is None else min(arrived, started),
                "started_s": started,
                "ended_s": ended,
                **_promised(fields, per_gpu),
            }
        )
    if not requests:
        raise ParseError("pool-use: Slurm's accounting has no job that held a GPU in this time")
    names = sorted(known | {str(r["gpu_class"]) for r in requests})
    kept = as_facts(
        PoolUseFacts,
        {
            "type": "pool-use",
            "from_s": from_s,
            "until_s": until_s,
            "parts_per_gpu": per_gpu[""],
            "emulated": facts["emulated"],
            "unwatched": facts["unwatched"],
            "classes": [json.loads(c.model_dump_json()) for c in _classes(nodes, facts["used"], names)],
            "requests": requests,
            "history": _history(facts.get("history"), until_s),
            "unread": facts.get("unread", ""),
            "waiting": waiting,
            "never": never,
        },
        "pool-use",
    )
    capacity = sum(c.gpus for c in kept.classes) * kept.seconds
    if not capacity:
        raise ParseError("pool-use: Slurm's nodes have no GPUs")
    held = sum(map(kept.held_s, kept.requests))
    return [Sample(metric="held_ratio", value=held / capacity, unit="ratio")], kept
