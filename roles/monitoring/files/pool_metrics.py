#!/usr/bin/python3
"""The pool for Prometheus: what Slurm says of GPUs, leases and who waits, as a file that node-exporter serves.

    pool_metrics.py --output FILE.prom [--interval S] [--once]

Runs on the head. Whole GPUs and shards add up in one figure: GPUs.
"""

import os
import re
import resource
import signal
import subprocess
import sys
from datetime import datetime

from textfile import run_command

MOST_BYTES = 512 << 20  # of an answer of Slurm's, as validation/base/bounded.py has it
HELP = {
    "elastic_ai_pool_up": "1 where Slurm's controller answers, 0 where it does not.",
    "elastic_ai_pool_node_up": "1 where the node takes leases; 0 where it is down, drained or does not answer.",
    "elastic_ai_pool_gpus": "GPUs of the node, or MIG instances where Slurm gives these out.",
    "elastic_ai_pool_leased_gpus": "GPUs of the node that are leased, fractions added up.",
    "elastic_ai_pool_user_gpus": "GPUs that a user has (state running) or waits for (state pending).",
    "elastic_ai_pool_leases": "Leases by class of users and state.",
    "elastic_ai_pool_accounting_queue": "Messages that wait for the accounting's database.",
    "elastic_ai_pool_longest_wait_seconds": "How long the oldest waiting lease has waited.",
}
#: States of a node, and flags of it, in which it takes work; in all others it takes none. Source: slurm_protocol_defs.c
#: and man page of sinfo, node state codes.
IN_SERVICE = ("IDLE", "MIXED", "ALLOCATED", "COMPLETING", "PLANNED", "RESERVED")
HARMLESS = (*IN_SERVICE, "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "REBOOT_REQUESTED", "UNDRAIN", "")
MIG = re.compile(r"\d+g\.\d+gb", re.IGNORECASE)  # in the type of MIG instances, of which several are of one GPU
MARKS = {"@": "REBOOT_REQUESTED", "-": "PLANNED"}  # behind a state; each of the others keeps work away
#: States of a job in which it holds what it was given. Source: man page of squeue, job state codes.
HOLDING = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT")
#: Columns and their widths. The one that a user may write is the last, so that a line end in it hides nothing.
JOB_FIELDS = {"State": 20, "UserName": 40, "SubmitTime": 25, "tres-alloc": 300, "Account": 40}


def _bounded():
    """In the child: the kernel ends a command that prints more than MOST_BYTES into a file, also one in memory."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))


def ask(*command):
    """Lines that a command of Slurm printed."""
    with os.fdopen(os.memfd_create("out"), "w+b") as out, os.fdopen(os.memfd_create("err"), "w+b") as err:
        done = subprocess.run(
            command,
            stdout=out,
            stderr=err,
            check=False,
            timeout=30,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
            preexec_fn=_bounded,
        )
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode("utf-8", "backslashreplace"))
    if done.returncode == -signal.SIGXFSZ:
        said[1] = f"{command[0]} printed more than {MOST_BYTES >> 20} MiB and was ended"
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, *said)
    return said[0].splitlines()


def number(text):
    """A count of Slurm's, which may be in units of 1024: 4, 1K. ValueError for anything else."""
    found = re.fullmatch(r"(\d+)([KMGTP]?)", text.upper())
    if not found:
        raise ValueError(text)
    return int(found[1]) * 1024 ** (" KMGTP".index(found[2]) if found[2] else 0)


def resources(text):
    """(name, type, count) of each resource in a list like gpu:2080ti:8(S:0-1),shard:35,vgpu:4. ValueError where it is
    no such list; without a count there is one."""
    found = []
    for token in re.sub(r"\(null\)|\([^()]*\)", "", text).split(","):
        name, *rest = [part for part in token.split(":") if part != "no_consume"]
        if len(rest) > 2 or "(" in token or ")" in token:
            raise ValueError(token)
        count = number(rest.pop()) if rest and rest[-1][:1].isdigit() else 1
        rest = [part for part in rest if part or len(rest) > 1]
        if len(rest) > 1:
            raise ValueError(token)
        found.append((name, rest[0] if rest else "", count))
    return [] if text in ("", "(null)", "N/A") else found


def counted(tres, name):
    """How much of it a list like cpu=1,gres/gpu=2,gres/gpu:v100=2 has; those with a class are in the first."""
    said = re.findall(rf"(?:^|,){name}((?::[^=,]*)?)=(\d+[KMGTP]?)(?=,|$)", tres)
    found = {key: number(value) for key, value in said}
    return found.get("", sum(found.values()))


def gpus_of(tres, shards_per_gpu, mps_per_gpu=100):
    """GPUs in a list like cpu=1,gres/gpu=2,gres/gpu:v100=2,gres/shard=35; 100 parts of CUDA MPS are Slurm's default."""
    parts = {"gpu": 1, "shard": shards_per_gpu, "mps": mps_per_gpu}
    return sum(counted(tres, f"gres/{name}") / of for name, of in parts.items() if of)


def fields_of(line):
    """Of a node: what an administrator wrote of it comes after what Slurm says."""
    return dict(reversed(re.findall(r"(\w+)=(\S*)", line)))


def has(fields):
    """(count of each resource, class of its GPUs); by Slurm's own count where its words cannot be read."""
    try:
        found = resources(fields.get("Gres", ""))
    except ValueError:
        found = [(name, "", counted(fields.get("CfgTRES", ""), f"gres/{name}")) for name in ("gpu", "shard", "mps")]
    counts = {}
    for name, _, count in found:
        counts[name] = counts.get(name, 0) + count
    kinds = sorted((kind for name, kind, _ in found if name == "gpu" and kind), key=lambda kind: not MIG.search(kind))
    return counts, next(iter(kinds), "gpu")


def shards_of(lines, name="shard"):
    """Parts that a GPU is counted in, from `scontrol -o show node`: the same on all nodes, 0 where there are none."""
    for line in lines:
        counts, _ = has(fields_of(line))
        if counts.get("gpu") and counts.get(name):
            return counts[name] // counts["gpu"]
    return 0


def serves(state):
    """Whether a node takes work: of a state like MIXED+CLOUD, or idle*."""
    base, *flags = state.upper().split("+")
    word = base.rstrip("*~#!%$@^-")
    flags += [MARKS.get(mark, mark) for mark in base[len(word) :]]
    return word in IN_SERVICE and set(flags) <= set(HARMLESS)


def nodes(lines, shards_per_gpu, mps_per_gpu=100):
    """Samples of `scontrol -o show node`."""
    samples = []
    for line in lines:
        fields = fields_of(line)
        counts, kind = has(fields)
        if not counts.get("gpu") or "NodeName" not in fields:
            continue
        labels = {"node": fields["NodeName"], "class": kind}
        leased = gpus_of(fields.get("AllocTRES", ""), shards_per_gpu, mps_per_gpu)
        samples.append(("elastic_ai_pool_node_up", labels, int(serves(fields.get("State", "UNKNOWN")))))
        samples.append(("elastic_ai_pool_gpus", labels, counts["gpu"]))
        samples.append(("elastic_ai_pool_leased_gpus", labels, leased))
    return samples


def waited_s(submitted, now):
    """Seconds since a job was submitted; 0 where Slurm does not know (Unknown, N/A)."""
    try:
        return (now - datetime.fromisoformat(submitted)).total_seconds()
    except ValueError:
        return 0.0


def jobs(lines, shards_per_gpu, now, mps_per_gpu=100):
    """Samples of squeue: who has GPUs, and who waits for them. Jobs without a GPU are none of the pool's."""
    had, counted, longest = {}, {}, 0.0
    for line in lines:
        fields, at = {}, 0
        for name, width in JOB_FIELDS.items():
            fields[name] = line[at : at + width].strip()
            at += width
        state = "pending" if fields["State"] == "PENDING" else "running" if fields["State"] in HOLDING else None
        gpus = gpus_of(fields["tres-alloc"], shards_per_gpu, mps_per_gpu)
        if state is None or not gpus:
            continue
        user = (fields["Account"], fields["UserName"], state)
        had[user] = had.get(user, 0) + gpus
        counted[fields["Account"], state] = counted.get((fields["Account"], state), 0) + 1
        if state == "pending":
            longest = max(longest, waited_s(fields["SubmitTime"], now))
    samples = [
        ("elastic_ai_pool_user_gpus", {"account": account, "user": user, "state": state}, gpus)
        for (account, user, state), gpus in sorted(had.items())
    ]
    samples += [
        ("elastic_ai_pool_leases", {"account": account, "state": state}, count)
        for (account, state), count in sorted(counted.items())
    ]
    return [*samples, ("elastic_ai_pool_longest_wait_seconds", {}, longest)]


def accounting(lines):
    """Samples of sdiag: what slurmctld keeps for slurmdbd; none where it does not say."""
    found = (re.fullmatch(r"\s*DBD Agent queue size:\s*(\d+)\s*", line) for line in lines)
    return [("elastic_ai_pool_accounting_queue", {}, int(m[1])) for m in found if m][:1]


def reading():
    """(samples, what went wrong or None)."""
    wanted = ",".join(f"{name}:{width}" for name, width in JOB_FIELDS.items())
    try:
        lines = ask("scontrol", "-o", "show", "node")
        shards_per_gpu = shards_of(lines)
        mps_per_gpu = shards_of(lines, "mps")
        found = nodes(lines, shards_per_gpu, mps_per_gpu)
        found += jobs(ask("squeue", "--all", "--noheader", "-O", wanted), shards_per_gpu, datetime.now(), mps_per_gpu)
        found += accounting(ask("sdiag"))
    except subprocess.CalledProcessError as fault:
        said = " ".join((fault.stderr or "").split()) or f"exit {fault.returncode}"
        return [("elastic_ai_pool_up", {}, 0)], f"{fault.cmd[0]}: {said}"
    except (subprocess.TimeoutExpired, FileNotFoundError) as fault:
        return [("elastic_ai_pool_up", {}, 0)], str(fault)
    return [("elastic_ai_pool_up", {}, 1), *found], None


if __name__ == "__main__":
    sys.exit(run_command(__doc__, HELP, reading))
