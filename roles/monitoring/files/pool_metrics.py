#!/usr/bin/python3
"""The pool for Prometheus: what Slurm says of GPUs, leases and who waits, as a file that node-exporter serves.

    pool_metrics.py --output FILE.prom [--interval S] [--once]

Runs on the head. Whole GPUs and shards add up in one figure: GPUs.
"""

import re
import subprocess
import sys
from datetime import datetime

from textfile import run_command

HELP = {
    "elastic_ai_pool_up": "1 where Slurm's controller answers, 0 where it does not.",
    "elastic_ai_pool_node_up": "1 where the node takes leases; 0 where it is down, drained or does not answer.",
    "elastic_ai_pool_gpus": "GPUs of the node.",
    "elastic_ai_pool_leased_gpus": "GPUs of the node that are leased, fractions added up.",
    "elastic_ai_pool_user_gpus": "GPUs that a user has (state running) or waits for (state pending).",
    "elastic_ai_pool_leases": "Leases by class of users and state.",
    "elastic_ai_pool_longest_wait_seconds": "How long the oldest waiting lease has waited.",
}
#: States of a node in which it takes no work. Source: man page of sinfo, node state codes.
OUT_OF_SERVICE = ("DOWN", "DRAIN", "FAIL", "UNKNOWN", "NOT_RESPONDING", "MAINT", "REBOOT", "POWERED_DOWN", "INVAL")
#: Columns and their widths. The one that a user may write is the last, so that a line end in it hides nothing.
JOB_FIELDS = {"State": 20, "UserName": 40, "SubmitTime": 25, "tres-alloc": 300, "Account": 40}


def ask(*command):
    """Lines that a command of Slurm printed."""
    done = subprocess.run(command, capture_output=True, text=True, errors="backslashreplace", check=True, timeout=30)
    return done.stdout.splitlines()


def gpus_of(tres, shards_per_gpu):
    """GPUs in a list like cpu=1,gres/gpu=2,gres/gpu:v100=2,gres/shard=35; those with a class are in the first."""
    counts = {"gpu": 0, "shard": 0}
    for name, value in re.findall(r"gres/(gpu|shard)=(\d+)", tres):
        counts[name] = int(value)
    return counts["gpu"] + (counts["shard"] / shards_per_gpu if shards_per_gpu else 0)


def shards_of(lines):
    """Parts that a GPU is counted in, from `scontrol -o show node`: the same on all nodes, 0 where there are none."""
    for line in lines:
        gpus, shards = (re.search(rf"[=,]{name}:(?:[^:,()]+:)?(\d+)", line) for name in ("gpu", "shard"))
        if gpus and shards:
            return int(shards[1]) // int(gpus[1])
    return 0


def nodes(lines, shards_per_gpu):
    """Samples of `scontrol -o show node`."""
    samples = []
    for line in lines:
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        kind = re.search(r"gpu:(?:([^:,()]+):)?(\d+)", fields.get("Gres", ""))
        if not kind:
            continue
        labels = {"node": fields["NodeName"], "class": kind[1] or "gpu"}
        serves = not any(state in fields.get("State", "UNKNOWN") for state in OUT_OF_SERVICE)
        samples.append(("elastic_ai_pool_node_up", labels, int(serves)))
        samples.append(("elastic_ai_pool_gpus", labels, int(kind[2])))
        samples.append(("elastic_ai_pool_leased_gpus", labels, gpus_of(fields.get("AllocTRES", ""), shards_per_gpu)))
    return samples


def jobs(lines, shards_per_gpu, now):
    """Samples of squeue: who has GPUs, and who waits for them. Jobs without a GPU are none of the pool's."""
    had, counted, longest = {}, {}, 0.0
    for line in lines:
        fields, at = {}, 0
        for name, width in JOB_FIELDS.items():
            fields[name] = line[at : at + width].strip()
            at += width
        state = {"RUNNING": "running", "COMPLETING": "running", "PENDING": "pending"}.get(fields["State"])
        gpus = gpus_of(fields["tres-alloc"], shards_per_gpu)
        if state is None or not gpus:
            continue
        user = (fields["Account"], fields["UserName"], state)
        had[user] = had.get(user, 0) + gpus
        counted[fields["Account"], state] = counted.get((fields["Account"], state), 0) + 1
        if state == "pending":
            longest = max(longest, (now - datetime.fromisoformat(fields["SubmitTime"])).total_seconds())
    samples = [
        ("elastic_ai_pool_user_gpus", {"account": account, "user": user, "state": state}, gpus)
        for (account, user, state), gpus in sorted(had.items())
    ]
    samples += [
        ("elastic_ai_pool_leases", {"account": account, "state": state}, count)
        for (account, state), count in sorted(counted.items())
    ]
    return [*samples, ("elastic_ai_pool_longest_wait_seconds", {}, longest)]


def reading():
    """(samples, what went wrong or None)."""
    wanted = ",".join(f"{name}:{width}" for name, width in JOB_FIELDS.items())
    try:
        lines = ask("scontrol", "-o", "show", "node")
        shards_per_gpu = shards_of(lines)
        found = nodes(lines, shards_per_gpu)
        found += jobs(ask("squeue", "--all", "--noheader", "-O", wanted), shards_per_gpu, datetime.now())
    except subprocess.CalledProcessError as fault:
        said = " ".join((fault.stderr or "").split()) or f"exit {fault.returncode}"
        return [("elastic_ai_pool_up", {}, 0)], f"{fault.cmd[0]}: {said}"
    except (subprocess.TimeoutExpired, FileNotFoundError) as fault:
        return [("elastic_ai_pool_up", {}, 0)], str(fault)
    return [("elastic_ai_pool_up", {}, 1), *found], None


if __name__ == "__main__":
    sys.exit(run_command(__doc__, HELP, reading))
