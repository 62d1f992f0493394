"""Steps of a recovery, by ssh: a node is read, rebooted, drained, and let die under a job."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from validation.probes.tool import Ran, last_line, run_tool, stopped

POLL_S, ASK_S, GONE_S, JOB_S, SILENT_S = 1.0, 20.0, 180.0, 90.0, 150.0
"""Between two looks; for an answer; until a node is down; until a job runs; how long a node is dead, which is longer
than the 120 s in which it has to be found."""
DIE = (
    "sleep 1; r=$(ip route show default | head -n 1); "
    "all() { for p in /sys/class/net/*; do n=${p##*/}; [ $n = lo ] || ip link set $n $1; done; }; "
    f'all down; sleep {SILENT_S:g}; all up; [ -z "$r" ] || ip route add $r; '  # a container's outlive its boot
    "systemctl reboot --force --force || reboot -f -f"
)
SETTLED = ("running", "degraded")
OUT = ("down", "drain", "fail", "error", "unk", "not_resp")
PASSING = (
    "proc sysfs tmpfs devtmpfs devpts cgroup cgroup2 mqueue hugetlbfs debugfs tracefs securityfs pstore bpf configfs "
    "fusectl autofs binfmt_misc nsfs ramfs efivarfs rpc_pipefs fuse.lxcfs"
)
"""File systems that belong to the kernel or to what runs, and say nothing of a boot."""


class Failed(Exception):
    """Something did not work, in words."""


@dataclass
class Asked:
    """`ssh`, `head`: how node and head are reached, up to the command; `head` empty: no Slurm. `times`: reboots."""

    what: str
    node: str
    ssh: list[str]
    head: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    times: int = 3
    ready_s: float = 3600.0


def script(ports: list[str]) -> str:
    """What is read of a node that has booted."""
    links = "".join(f"echo EAI link {p} $(cat /sys/class/net/{p}/carrier 2>/dev/null || echo 0); " for p in ports)
    skip = "|".join(PASSING.split())
    return (
        "LC_ALL=C; export LC_ALL; echo EAI boot $(cat /proc/sys/kernel/random/boot_id); "
        "echo EAI system $(systemctl is-system-running); "
        + links
        + "nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null | grep ^GPU- | sed 's/^/EAI gpu /'; "
        f"awk '$3 !~ /^({skip})$/ && $2 !~ /^.(run|var.lib.docker)./ "
        '{print "EAI mount", $2, $3}\' /proc/mounts | sort -u; '
        "systemctl --failed --plain --no-legend | awk '{print \"EAI failed\", $1}'; echo EAI end"
    )


def ask(ssh: list[str], words: str, timeout_s: float = ASK_S) -> Ran:
    """A shell's answer from the other end; 255 where there is none."""
    return run_tool([*ssh, line(ssh, words)], timeout_s)


def line(ssh: list[str], words: str) -> str:
    """For the shell at the other end, as root."""
    sudo = "" if ssh[-1].startswith("root@") else "sudo -n "
    return f"{sudo}sh -c {shlex.quote(words)}"


def reading(ssh: list[str], ports: list[str]) -> dict[str, Any] | None:
    """What a node says of its boot; None where it does not answer whole."""
    ran = ask(ssh, script(ports))
    found: dict[str, Any] = {"boot": "", "system": "", "link": [], "gpu": [], "mount": [], "failed": []}
    ended = False
    for line in ran.stdout.splitlines():
        mark, _, rest = line.partition(" ")
        key, _, value = rest.partition(" ")
        ended = ended or (mark, key) == ("EAI", "end")
        if mark != "EAI" or key not in found:
            continue
        if isinstance(found[key], list):
            found[key].append(value)
        else:
            found[key] = value
    if not ended or not found["boot"]:
        return None
    return {key: sorted(value) if isinstance(value, list) else value for key, value in found.items()}


def wait_for_boot(asked: Asked, old: str, begin: float, by: str = "systemctl reboot") -> dict[str, Any]:
    """The reading of a boot other than `old`, once systemd has come to its end."""
    while time.monotonic() - begin < asked.ready_s:
        found = reading(asked.ssh, asked.ports)
        if found is not None and found["boot"] != old and found["system"] in SETTLED:
            return {"ready_s": round(time.monotonic() - begin, 3), "reading": found}
        if found is not None and found["boot"] == old and time.monotonic() - begin > GONE_S:
            raise Failed(f"{asked.node} did not go down within {GONE_S:g} s of {by}")
        time.sleep(POLL_S)
    raise Failed(f"{asked.node} was not ready within {asked.ready_s:g} s of {by}")


def reboots(asked: Asked) -> dict[str, Any]:
    """The node is rebooted `times` times."""
    before = reading(asked.ssh, asked.ports)
    if before is None:
        raise Failed(f"{asked.node} does not answer; nothing was rebooted")
    with drained(asked):
        boots, last = [], before
        for _ in range(asked.times):
            begin = time.monotonic()
            ask(asked.ssh, "nohup sh -c 'sleep 1; systemctl reboot' >/dev/null 2>&1 &")
            boots.append(wait_for_boot(asked, last["boot"], begin))
            last = boots[-1]["reading"]
    return {"what": "reboots", "node": asked.node, "before": before, "boots": boots}


@contextlib.contextmanager
def drained(asked: Asked) -> Iterator[None]:
    """Slurm gives the node no work meanwhile; refused where a job runs there. Nothing where there is no Slurm."""
    there = bool(asked.head) and ask(asked.head, f"scontrol show node {asked.node}").returncode == 0
    if not there:
        yield
        return
    serves = not any(mark in node_state(asked) for mark in OUT)
    jobs = ask(asked.head, f"squeue --noheader --nodelist {asked.node} --format=%i")
    if jobs.returncode != 0 or jobs.stdout.strip():
        raise Failed(f"{asked.node}: {last_line(jobs.stdout + jobs.stderr)} runs there; nothing was rebooted")
    if serves:
        ask(asked.head, f"scontrol update nodename={asked.node} state=drain reason=elastic-ai-recovery")
    try:
        yield
    finally:
        if serves:
            there = resume(asked)
    if serves and not there:
        raise Failed(f"{asked.node} was not given back to Slurm: scontrol update nodename={asked.node} state=resume")


def resume(asked: Asked) -> bool:
    """Work there again; the probe may have been told to stop."""
    words = [*asked.head, line(asked.head, f"scontrol update nodename={asked.node} state=resume")]
    return told(words) == 0


def told(words: list[str]) -> int:
    """How a command ended of which nothing is read; also while the probe is told to stop."""
    english = {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}
    return subprocess.run(words, capture_output=True, check=False, timeout=60, env=english).returncode


def node_state(asked: Asked) -> str:
    """Slurm's word on the node, in small letters; "" where it does not answer."""
    ran = ask(asked.head, f"LC_ALL=C sinfo --noheader --nodes={asked.node} --format=%T")
    return last_line(ran.stdout).lower()


def job_state(asked: Asked, job: str) -> str:
    """Slurm's word on the job."""
    ran = ask(asked.head, f"scontrol show job {job} --oneliner")
    found = [word for word in ran.stdout.split() if word.startswith("JobState=")]
    return found[0].partition("=")[2] if found else ""


def dead(asked: Asked) -> dict[str, Any]:
    """A job runs on the node, which dies; then it has its power again."""
    if not asked.head:
        raise Failed("the inventory has no head, and so no Slurm that could find a dead node")
    before = reading(asked.ssh, asked.ports)
    if before is None or any(mark in node_state(asked) for mark in OUT):
        raise Failed(f"{asked.node} does not serve; nothing was done")
    wrap = f"sbatch --parsable --nodelist={asked.node} --job-name=elastic-ai-recovery --no-requeue --output=/dev/null "
    submitted = ask(asked.head, f"{wrap} --chdir=/ --time=90 --wrap 'sleep 5000'")
    job = last_line(submitted.stdout).partition(";")[0]
    if submitted.returncode != 0 or not job.isdigit():
        raise Failed(f"no job could be submitted: {last_line(submitted.stderr)}")
    try:
        return _killed(asked, job, before["boot"])
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            told([*asked.head, line(asked.head, f"scancel {job}")])


def _killed(asked: Asked, job: str, boot: str) -> dict[str, Any]:
    begin, states = time.monotonic(), list[list[Any]]()

    def look() -> tuple[str, str]:
        node, work = node_state(asked), job_state(asked, job)
        if not states or states[-1][1:] != [node, work]:
            states.append([round(time.monotonic() - begin, 3), node, work])
        return node, work

    while look()[1] != "RUNNING":
        if time.monotonic() - begin > JOB_S or stopped():
            raise Failed(f"job {job} did not run within {JOB_S:g} s; the node was left as it is")
        time.sleep(POLL_S)
    ask(asked.ssh, f"nohup setsid sh -c {shlex.quote(DIE)} >/dev/null 2>&1 &")
    dead_at = round(time.monotonic() - begin, 3)
    alive_at = dead_at + SILENT_S
    while time.monotonic() - begin < alive_at and not stopped():
        node, work = look()
        if any(mark in node for mark in OUT) and work != "RUNNING":
            break
        time.sleep(POLL_S)
    while time.monotonic() - begin < alive_at + asked.ready_s and not stopped():
        node, _ = look()
        found = reading(asked.ssh, asked.ports) if node and not any(mark in node for mark in OUT) else None
        if found is not None and found["boot"] != boot and not node.endswith("*"):
            states.append([round(time.monotonic() - begin, 3), node, "back"])
            break
        time.sleep(POLL_S)
    how = f"all its ports down for {SILENT_S:g} s, then rebooted without an orderly stop"
    return {"what": "dead", "node": asked.node, "how": how, "job": job, "dead_at": dead_at, "alive_at": alive_at,
            "states": states}  # fmt: skip
