"""Who held how much of the pool, and for how long: the jobs with GPUs in Slurm's accounting, on the head.

`stdout`: rows as sacct printed them, fields FIELDS, times in seconds since 1970; no field holds a user's own words,
and no user is named. `facts`: lines (how many), until_s (now, seconds since 1970), from_s (so far back as was asked,
or when the first job came), nodes (name, class, gpus, shards,
mps; as Slurm has them now), used (node -> busy_s and seen_s,
GPU-seconds in which a kernel ran, and for which there is a reading), unwatched (why there is nothing of it, ""),
history (HISTORY_DAYS of utilisation before and since somebody first had a GPU of the pool, by the monitoring's own
series; None where it says nothing), unread (why there is nothing of that), emulated (None: nobody says).
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from validation.probes import ProbeDoc
from validation.probes.tool import Ran, document, run_tool

URL = "http://127.0.0.1:9090"
FIELDS = (
    *("JobIDRaw", "Account", "Partition", "State", "Eligible", "Start", "End", "AllocTRES", "ReqTRES", "NodeList"),
    "TimelimitRaw",  # not in runs of before
)
STEP_S = 300
"""Seconds between the readings of a GPU that are added up. Prometheus loads at most 50 million of them for a query
(query.max-samples); a month of 1000 GPUs is 9 million."""
_BUSY = "elastic_ai_gpu_utilization_ratio"
HISTORY_DAYS = 400
"""How far back utilisation is looked for: what Prometheus keeps (role monitoring, monitoring_retention_days)."""
HOUR_S = 3600
"""Of each hour of that time one value is asked for, 9,600 (Prometheus gives 11,000): 0.01 s for nine days that are
recorded. Looking for the first of readings a minute apart took Prometheus 2.42 more than 30 s."""
UTILISED, LEASED = "elastic_ai:gpu_utilization:ratio", "elastic_ai:pool_leased:ratio"


@dataclass
class Asked:
    """What is asked of this probe."""

    days: float  # how far back
    url: str = URL  # where Prometheus answers on this node


def sacct(days: float) -> list[str]:
    """The command: all users' jobs, no steps, of the last days."""
    since = f"now-{round(days * 86400)}seconds"
    return ["sacct", "--allusers", "--allocations", "--noheader", "--parsable2", "-S", since, "-o", ",".join(FIELDS)]


def first_s(rows: Sequence[str]) -> int | None:
    """When the first of all jobs, with GPUs or without, could have begun; None where there is no job."""
    times = [row.split("|")[FIELDS.index("Eligible")] for row in rows if row.count("|") >= len(FIELDS) - 2]
    return min((int(time) for time in times if time.isdigit()), default=None)


def _number(text: str) -> int:
    """A count of Slurm's, which may be in units of 1024: 4, 1K. ValueError for anything else."""
    found = re.fullmatch(r"(\d+)([KMGTP]?)", text.upper())
    if found is None:
        raise ValueError(text)
    return int(found[1]) * int(1024 ** (" KMGTP".index(found[2]) if found[2] else 0))


def resources(text: str) -> list[tuple[str, str, int]]:
    """(name, type, count) of each resource in a list like gpu:2080ti:8(S:0-1),shard:35,vgpu:4. ValueError where it is
    no such list; without a count there is one."""
    found = []
    for token in re.sub(r"\(null\)|\([^()]*\)", "", text).split(","):
        name, *rest = [part for part in token.split(":") if part != "no_consume"]
        if len(rest) > 2 or "(" in token or ")" in token:
            raise ValueError(token)
        count = _number(rest.pop()) if rest and rest[-1][:1].isdigit() else 1
        rest = [part for part in rest if part or len(rest) > 1]
        if len(rest) > 1:
            raise ValueError(token)
        found.append((name, rest[0] if rest else "", count))
    return [] if text in ("", "(null)", "N/A") else found


def counted(tres: str, name: str) -> int:
    """How much of it a list like cpu=1,gres/gpu=2,gres/gpu:v100=2 has; those with a class are in the first."""
    found = {key: int(value) for key, value in re.findall(rf"(?:^|,){name}((?::[^=,]*)?)=([0-9]{{1,9}})(?=,|$)", tres)}
    return found.get("", sum(found.values()))


def nodes(lines: Sequence[str]) -> list[dict[str, Any]]:
    """GPU servers in what `scontrol -o show node` printed; those without GPUs are none. Where its words for what a node
    has cannot be read, Slurm's own count of GPUs (CfgTRES) stands."""
    found = []
    for line in lines:
        fields = dict(reversed(re.findall(r"(\w+)=(\S*)", line)))  # what an administrator wrote comes last
        try:
            has = resources(fields.get("Gres", ""))
        except ValueError:
            has = [(name, "", counted(fields.get("CfgTRES", ""), f"gres/{name}")) for name in ("gpu", "shard", "mps")]
        gpus, shards, mps = (sum(n for name, _, n in has if name == wanted) for wanted in ("gpu", "shard", "mps"))
        if gpus and "NodeName" in fields:
            kind = next((kind for name, kind, _ in has if name == "gpu" and kind), "gpu")
            found.append({"name": fields["NodeName"], "class": kind, "gpus": gpus, "shards": shards, "mps": mps})
    return found


def ask(url: str, query: str) -> list[Any]:
    """Series of an instant query; OSError or ValueError where Prometheus gives none."""
    address = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - http to this node
        found = json.load(answer)
    if found.get("status") != "success":
        raise ValueError(str(found.get("error", "no success")))
    return list(found["data"]["result"])


def used(url: str, seconds: int) -> dict[str, dict[str, float]]:
    """GPU-seconds of each node by the monitoring's readings: busy, and seen at all."""
    found: dict[str, dict[str, float]] = {}
    for key, how in (("busy_s", "sum"), ("seen_s", "count")):
        for series in ask(url, f"sum_over_time({how} by (node) ({_BUSY})[{seconds}s:{STEP_S}s])"):
            found.setdefault(str(series["metric"]["node"]), {})[key] = float(series["value"][1]) * STEP_S
    return found


def hourly(url: str, how: str, now_s: float) -> list[tuple[float, float]]:
    """A query over [1h] for each hour of HISTORY_DAYS in which there is a reading: when it ended, and its value."""
    words = {"query": how, "start": f"{now_s - HISTORY_DAYS * 86400:.3f}", "end": f"{now_s:.3f}", "step": str(HOUR_S)}
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{urllib.parse.urlencode(words)}", timeout=60) as answer:  # noqa: S310
        found = json.load(answer)
    if found.get("status") != "success":
        raise ValueError(str(found.get("error", "no success")))
    series = found["data"]["result"]
    return [(float(end), float(value)) for end, value in series[0]["values"]] if series else []


def history(url: str, now_s: float) -> dict[str, Any] | None:
    """Utilisation of all GPUs that monitoring knows, before and since one of the pool was first leased: first_s and
    pooled_s (seconds since 1970, to the hour; pooled_s None: nothing was leased yet), before and since (ratio: the mean
    of the hours with readings, seconds: all of these; None without one), series, look_s. None without any reading.
    """
    used_, leased = (
        hourly(url, f"{how}_over_time({of}[1h])", now_s) for how, of in (("avg", UTILISED), ("max", LEASED))
    )
    if not used_:
        return None
    pooled = next((end - HOUR_S for end, share in leased if share > 0), None)
    found: dict[str, Any] = {"series": UTILISED, "look_s": HOUR_S, "first_s": used_[0][0] - HOUR_S, "pooled_s": pooled}
    before = [share for end, share in used_ if pooled is None or end <= pooled]
    for name, shares in (("before", before), ("since", [share for _, share in used_[len(before) :]])):
        known = {"ratio": sum(shares) / len(shares), "seconds": len(shares) * HOUR_S} if shares else None
        found[name] = known
    return found


def probe(args: Asked) -> ProbeDoc:
    """What accounting and monitoring have of the pool."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        shown = run_tool(["scontrol", "-o", "show", "node"], 30)
        until = round(time.time())
        # %s of strftime(3): seconds since 1970, the same in every time zone and over a change of summer time
        ran = run_tool(sacct(args.days), 120, {**os.environ, "SLURM_TIME_FORMAT": "%s"})
        asked = until - round(args.days * 86400)
        since = min(max(first_s(ran.stdout.splitlines()) or asked, asked), until - 1)
        facts: dict[str, Any] = {"from_s": since, "until_s": until, "used": {}, "unwatched": "", "emulated": None}
        facts["lines"] = ran.stdout.count("\n")
        facts |= {"history": None, "unread": ""}
        facts["nodes"] = nodes(shown.stdout.splitlines())
        try:
            facts["used"] = used(args.url, until - since)
            facts["emulated"] = bool(ask(args.url, 'count(elastic_ai_gpu_info{emulated="true"})'))
        except (urllib.error.URLError, OSError, ValueError, KeyError, IndexError, TypeError) as fault:
            facts["used"], facts["unwatched"] = {}, f"Prometheus at {args.url}: {fault}"
        try:  # by itself: a look at more than a year takes nothing from what is known of the last month
            facts["history"] = history(args.url, until)
        except (urllib.error.URLError, OSError, ValueError, KeyError, IndexError, TypeError) as fault:
            facts["unread"] = f"Prometheus at {args.url}: {fault}"
        return ran, facts, shown.failure

    return document("pool-use", "sacct", measure, lambda _: "")
