"""A storm of leases on a provisioned lab, seen from outside it, and what it shows: what leaked, what was given twice.

The programs run on client1 (lease_storm.py), a watcher on each server (lease_watch.py). Two witnesses say what was
given: the instances' files on the servers, and what the clients were told and when.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.lease_lab import SERVERS, Lab, left, put
from toolkit.lease import SHARDS_PER_GPU as GPU
from toolkit.lease.jobs.slurm_text import index_list
from toolkit.lease.wire import WORDS, EndCode

SUPPORT = Path(__file__).parent
#: Devices of each wish of lease_storm.py, and shards of each where the client is not told another number.
WISHES = {
    "-n 1": (1, GPU), "-p 1/7": (1, GPU // 7), "-p 1/2": (1, GPU // 2), "-n 2 -p 1/4": (2, GPU // 4),
    "-n 3 -p 1/7": (3, GPU // 7), "-p 5/20": (1, GPU // 4), "-n 2": (2, GPU), "-m 100": (1, -(-100 * GPU // 256)),
    "--where server -n 1": (1, GPU), "--where server -n 2": (2, GPU), "--where server -n 2 --apart": (2, GPU),
    "--where server -n 5": (5, GPU),
}  # fmt: skip
#: A client hears of an end a moment after its server, so two clients' words may overlap by so much, seconds.
HEARS_S = 1.0
#: A program that took longer was stopped by the storm itself, seconds.
STUCK_S = 280
#: Every so many seconds, at random between these, the controller is started anew.
RESTART_S = (15.0, 40.0)
#: The policy under which some leases take others' GPUs back; lease_storm.py asks for some of alice's as `urgent`.
PREEMPTING: dict[str, Any] = {
    "slurm_pool": {
        "users": {
            "patient": {"users": ["alice", "bob"]},
            "urgent": {"users": ["alice"], "priority": 100, "preempts": ["patient"]},
        },
        "preemption": {"after_minutes": 0, "grace_s": 5},
    }
}


@dataclass(frozen=True)
class Storm:
    """What was seen: outcomes as lease_storm.py prints them; watched: for each server the most shards of a GPU at once,
    and how many instances; rows of sacct; what was left in the end."""

    outcomes: list[dict[str, Any]]
    watched: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rows: Sequence[Sequence[str]] = ()
    queue: str = ""
    left: Mapping[str, str] = field(default_factory=dict)
    nodes: frozenset[str] = frozenset({"idle none"})  # state and reason, as sinfo says them
    restarts: int = 0


def settles(what: Callable[[], Any], wanted: Any, limit_s: float) -> Any:
    """The value when it is as wanted, else the last one after so many seconds."""
    end = time.monotonic() + limit_s
    while (seen := what()) != wanted and time.monotonic() < end:
        time.sleep(1)
    return seen


def run(
    lab: Lab, leases: int, clients: int, seed: int, limit_s: int = 3600, urgents: int = 0, restarting: bool = False
) -> Storm:
    """Let it happen; the users alice and bob are on all nodes. urgents: of so many of alice's leases one is urgent."""
    storm = put(lab, "client1", SUPPORT / "lease_storm.py")
    watch = {node: put(lab, node, SUPPORT / "lease_watch.py") for node in SERVERS}
    first = int(lab.ssh("head", "sbatch --parsable -o /dev/null -D / --mem=16 --wrap true").strip())
    over, restarts = threading.Event(), 0

    def restart() -> int:
        dice, count = random.Random(seed), 0
        while not over.wait(dice.uniform(*RESTART_S)):
            lab.ssh("head", "systemctl restart slurmctld")
            count += 1
        return count

    with ThreadPoolExecutor(len(SERVERS) + 1) as worker:
        watching = {
            node: worker.submit(lab.ssh, node, f"rm -f /root/stop; python3 {watch[node]} /root/stop")
            for node in SERVERS
        }
        troubling = worker.submit(restart) if restarting else None
        try:
            outcomes = json.loads(lab.ssh("client1", f"python3 {storm} {leases} {clients} {seed} {limit_s} {urgents}"))
            over.set()
            restarts = troubling.result() if troubling else 0
            queue = settles(lambda: lab.ssh("head", "squeue -h || echo no answer").strip(), "", 120)
            stays = settles(lambda: left(lab), {}, 60)
        finally:
            over.set()
            for node in SERVERS:
                lab.ssh(node, "touch /root/stop")
        watched = {node: json.loads(watching[node].result()) for node in SERVERS}
    # of a controller that was started anew at the end all have to register first
    seen = settles(lambda: frozenset(lab.ssh("head", "sinfo -h -N -o '%T %E'").splitlines()), Storm([]).nodes, 60)
    nodes = frozenset(seen)
    form = "sacct -a -n -P -X -D --format=jobid,jobname,state,alloctres -S now-2hours"
    rows = [line.split("|") for line in lab.ssh("head", form).splitlines()]
    return Storm(outcomes, watched, _leases_of(rows, first), queue, stays, nodes, restarts)


def _number(job: str) -> int:
    """46 of 46, 46_0 and 46+0."""
    return int(re.split(r"[+_]", job)[0])


def _leases_of(rows: Sequence[Sequence[str]], first: int) -> list[Sequence[str]]:
    """Leases after the job `first`; a job whose name has line breaks makes rows of other lengths."""
    return [r for r in rows if len(r) == 4 and r[1] == "elastic-ai-lease" and _number(r[0]) > first]


def _shards(outcome: Mapping[str, Any]) -> int:
    """Of each of its devices."""
    return int(outcome["shards"] or WISHES[outcome["wish"]][1])


def preempted(outcome: Mapping[str, Any]) -> bool:
    """Whether a program lost its lease to one that goes before it."""
    return WORDS[EndCode.PREEMPTED] in outcome["said"]


def given_twice(outcomes: Sequence[Mapping[str, Any]]) -> list[str]:
    """GPUs of which clients were told at the same time that they have more than there is."""
    moments: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for one in outcomes:
        if not one["where"] or one["until_s"] - HEARS_S <= one["from_s"]:
            continue
        shards = _shards(one)
        for node, indices in re.findall(r"(gpu\d+):([\d,-]*\d)", one["where"]):
            for index in index_list(indices):
                moments[f"{node}:{index}"] += [
                    (one["from_s"], shards, one["lease"]), (one["until_s"] - HEARS_S, -shards, one["lease"])
                ]  # fmt: skip
    found = []
    for gpu, changes in sorted(moments.items()):
        had: Counter[int] = Counter()
        for _when, shards, lease in sorted(changes):
            had[lease] += shards
            if sum(had.values()) > GPU:
                who = ", ".join(f"lease {number}: {count}" for number, count in sorted(had.items()) if count)
                found.append(f"{gpu} was given twice, of {GPU} shards: {who}")
                break
    return found


def fallen(storm: Storm, urgents: bool) -> list[str]:
    """Programs that did not end well though nothing happened to them. With `urgents` losing to one is what happens."""
    return [
        f"{o['wish']} ended with {o['code']} after {o['seconds']} s: {o['said'][-300:]}"
        for o in storm.outcomes
        if o["death"] == "none" and o["code"] != 0 and not (urgents and preempted(o) and not o["urgent"])
    ]


def accounting(storm: Storm) -> list[str]:
    """What Slurm's records say otherwise than the clients: leases that are not there, do not end or had something
    else."""
    had: dict[str, int] = {}
    for job, _name, _state, resources in storm.rows:
        shares = {"gpu": GPU, "shard": 1}
        had[job] = sum(shares[kind] * int(n) for kind, n in re.findall(r"gres/(gpu|shard)=(\d+)", resources))
    leases: Counter[int] = Counter()
    for job, shards in had.items():
        leases[_number(job)] += shards
    found = []
    for one in (o for o in storm.outcomes if o["lease"]):
        if leases[one["lease"]] != WISHES[one["wish"]][0] * _shards(one):
            found.append(f"lease {one['lease']} ({one['wish']}) had {leases[one['lease']]} shards in Slurm's records")
    over = {"CANCELLED", "COMPLETED", "TIMEOUT", "FAILED", "PREEMPTED"}
    return found + [
        f"job {row[0]} is {row[2]} in Slurm's records" for row in storm.rows if row[2].split()[0] not in over
    ]


def faults(storm: Storm, urgents: bool = False) -> list[str]:
    """Everything that must not be, in words."""
    found = given_twice(storm.outcomes)
    most = {node: seen["most"] for node, seen in storm.watched.items() if seen["most"] > GPU}
    found += [f"{node} gave {shards} of {GPU} shards of a GPU at the same time" for node, shards in most.items()]
    found += [f"left on {node}: {words}" for node, words in storm.left.items()]
    found += [f"still in the queue: {storm.queue}"] if storm.queue else []
    found += [f"servers are {', '.join(sorted(storm.nodes))}, and not idle"] if storm.nodes != {"idle none"} else []
    found += [f"{o['wish']} took {o['seconds']} s ({o['death']})" for o in storm.outcomes if o["seconds"] > STUCK_S]
    return found + fallen(storm, urgents) + accounting(storm)


def summary(storm: Storm) -> str:
    """How much of what happened."""
    deaths = Counter(o["death"] for o in storm.outcomes if o["death"] != "none")
    lost = sum(map(preempted, storm.outcomes))
    words = [f"{len(storm.outcomes)} leases asked for, {sum(bool(o['lease']) for o in storm.outcomes)} of them given"]
    there = [o for o in storm.outcomes if "server" in o["wish"]]
    words += [f"{len(there)} for programs on the server, {sum(bool(o['lease']) for o in there)} of them given"]
    words += [f"{count} x {death}" for death, count in sorted(deaths.items())]
    words += [f"{lost} lost to a lease that goes before them", f"controller started anew {storm.restarts} times"]
    words += [f"{sum(seen['instances'] for seen in storm.watched.values())} instances seen on the servers"]
    return "\n".join(words)
