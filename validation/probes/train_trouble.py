"""Why a training job came to no end, from its log: which rank died with which last words, and what else is known."""

from __future__ import annotations

import re

NO_MPIRUN = "the training container has no mpirun"
LINES = 4  # of a rank that died
SIGNALLED = re.compile(
    r"mpirun noticed that process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node (?P<node>\S+) exited on signal "
    r"(?P<signal>\d+)(?: \((?P<name>[^)]*)\))?"
)
EXITED = re.compile(
    r"mpirun detected that one or more processes exited with non-zero status.*?"
    r"Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>\d+)",
    re.DOTALL,
)
TORCHRUN = re.compile(r"^Root Cause \(first observed failure\):.*", re.MULTILINE | re.DOTALL)
ENDED = re.compile(
    r"^\s+host\s+: (?P<node>\S+)\s+rank\s+: (?P<rank>\d+) .*\s+exitcode\s+: (?P<code>-?\d+)", re.MULTILINE
)
OF_TORCHRUN = -15  # it ends the ranks that are left with SIGTERM
PARTNER = re.compile(r"[Cc]onnection (?:reset|closed) by peer|remote worker|Broken pipe")
"""Last words of a rank that lost another: those of the one that is to blame are of something else."""
SAID = re.compile(r"^\[rank (?P<rank>\d+) on (?P<node>\S+)\] (?P<words>.*)$", re.MULTILINE)
LOST = re.compile(
    r"^Connection to (?P<ssh>\S+) closed by remote host|"
    r"lost communication with a remote daemon\.\s+HNP daemon.*?Remote daemon: \[\S+\] on node (?P<orte>\S+)",
    re.MULTILINE | re.DOTALL,
)
"""What ssh and mpirun say of a node that is gone; mpirun then also says that it could not start its daemons."""
KNOWN = (
    (
        r"Host key verification failed|authenticity of host .* can't be established",
        "ssh asks whether it knows a node's host key; the training's known_hosts must have it",
    ),
    (
        r"Permission denied \(publickey|[Pp]assword:\s*$|'s password:",
        "ssh asks for a password; the training's key is not authorised on a node",
    ),
    (
        r"accepted a TCP connection from what appears to be|inbound MPI TCP connection request from a peer"
        r"|\b(?:docker0|virbr0|cni0)\b.*(?:tcp|connect)|(?:tcp|connect).*\b(?:docker0|virbr0|cni0)\b",
        "MPI went over an interface that every node has with the same address, as docker0; it must take the fabric's",
    ),
    (
        r"[Tt]imeout: mpirun|The user-provided time limit for job execution has been\s+reached|SIGALRM|Alarm clock",
        "the job did not end within its time",
    ),
)
"""Words of a log, and what they mean."""


def trouble(log: str) -> str:
    """What the log tells of a job that failed, in words; "" where it tells nothing that is known here."""
    dead = _died(log)
    lost = LOST.search(log)
    if lost:
        gone = f"the node {lost['ssh'] or lost['orte']} was lost in the middle of the job"
        dead = f"{gone}; {dead}" if dead else gone
    found = [words for pattern, words in KNOWN if re.search(pattern, log, re.MULTILINE)]
    return "; ".join([*([dead] if dead else []), *found])


def _of_torchrun(log: str) -> re.Match[str] | None:
    """Which of the ranks that torchrun lists ended the job; the first that it saw may only have lost that one."""
    root = TORCHRUN.search(log)
    first = ENDED.search(root[0]) if root else None
    if first is None:
        return None
    every = [first, *(one for one in ENDED.finditer(log) if one["rank"] != first["rank"])]
    killed = [one for one in every if int(one["code"]) < 0 and int(one["code"]) != OF_TORCHRUN]
    alone = [one for one in every if int(one["code"]) > 0 and not PARTNER.search(_words(log, one["rank"]))]
    return next(iter([*killed, *alone]), first)


def _words(log: str, rank: str) -> str:
    return "\n".join(said["words"] for said in SAID.finditer(log) if said["rank"] == rank)


def _died(log: str) -> str:
    signalled, exited = SIGNALLED.search(log), EXITED.search(log) or _of_torchrun(log)
    if signalled:
        rank, name = signalled["rank"], signalled["name"]
        how = f"rank {rank} on {signalled['node']} was ended by signal {signalled['signal']}"
        how += f" ({name})" if name else ""
    elif exited:
        rank = exited["rank"]
        node = next((said["node"] for said in SAID.finditer(log) if said["rank"] == rank), "")
        node, code = node or exited.groupdict().get("node", ""), int(exited["code"])
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit status {code}"
        how = f"rank {rank}{f' on {node}' if node else ''} {ended}"
    elif first := SAID.search(log):
        rank, how = first["rank"], f"rank {first['rank']} on {first['node']} failed"
    else:
        return ""
    words = [said["words"].strip() for said in SAID.finditer(log) if said["rank"] == rank and said["words"].strip()]
    if not words and signalled:  # its libraries begin their lines with node and process
        begins = f"{signalled['node']}:" + (f"{signalled['pid']}:" if signalled["pid"] != "0" else "")
        words = [line.strip() for line in log.splitlines() if line.startswith(begins)]
    return f"{how}; its last lines: {' | '.join(words[-LINES:])}" if words else f"{how}, without a word"
