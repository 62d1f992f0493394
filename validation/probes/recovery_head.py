"""The head is rebooted: when Slurm serves again, and whether nodes, jobs and leases are as before.

A job of the suite runs meanwhile; leases are jobs of Slurm, too. `jobs`: number -> its state before and after; `nodes`:
name -> its state before and after. Moments are seconds from the begin of the reboot.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path
from typing import Any

from validation.probes import recovery_steps as probe
from validation.probes.tool import last_line, stopped

SETTLE_S = 120.0
"""After Slurm serves again: so long nodes may take to say that they are there."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NODES = "LC_ALL=C sinfo --noheader --Node --format='%N %T'"
JOBS = "LC_ALL=C squeue --noheader --format='%i %T'"


def out(state: str) -> bool:
    """Whether a node of this state, as Slurm says it, gets no work; one that does not answer has a star."""
    return not state or state.endswith("*") or any(mark in state for mark in probe.OUT)


def _pairs(text: str) -> dict[str, str]:
    found = (line.split() for line in text.splitlines())
    return {words[0]: words[1].lower() for words in found if len(words) == 2}


def restarted(asked: probe.Asked) -> dict[str, Any]:
    """The head is rebooted once, under a job; Failed where it may not be, or did not come back."""
    before = probe.reading(asked.ssh, asked.ports)
    if before is None:
        raise probe.Failed(f"{asked.node} does not answer; nothing was rebooted")
    if before["boot"] == BOOT_ID.read_text().strip():
        raise probe.Failed(f"{asked.node} is the machine that validates; validate from another one")
    nodes = probe.ask(asked.ssh, NODES)
    if nodes.returncode != 0 or not _pairs(nodes.stdout):
        raise probe.Failed(f"Slurm does not answer on {asked.node}; nothing was rebooted")
    submitted = probe.ask(
        asked.ssh,
        "sbatch --parsable --job-name=elastic-ai-recovery --output=/dev/null --chdir=/ --time=90 --wrap 'sleep 5000'",
    )
    job = last_line(submitted.stdout).partition(";")[0]
    if submitted.returncode != 0 or not job.isdigit():
        raise probe.Failed(f"no job could be submitted: {last_line(submitted.stderr)}")
    try:
        return _rebooted(asked, before, job)
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            probe.told([*asked.ssh, probe.line(asked.ssh, f"scancel {job}")])


def _rebooted(asked: probe.Asked, before: dict[str, Any], job: str) -> dict[str, Any]:
    until = time.monotonic() + probe.JOB_S
    while probe.job_state(asked, job) == "PENDING" and time.monotonic() < until and not stopped():
        time.sleep(probe.POLL_S)
    jobs, nodes = (_pairs(probe.ask(asked.ssh, words).stdout) for words in (JOBS, NODES))
    if job not in jobs or stopped():
        raise probe.Failed(f"job {job} is not in the queue; nothing was rebooted")
    begin = time.monotonic()
    probe.ask(asked.ssh, "nohup sh -c 'sleep 1; systemctl reboot' >/dev/null 2>&1 &")
    boot = probe.wait_for_boot(asked, before["boot"], begin)
    serves = _until(begin + asked.ready_s, lambda: probe.ask(asked.ssh, NODES).returncode == 0)
    now: dict[str, str] = {}

    def same() -> bool:
        now.clear()
        now.update(_pairs(probe.ask(asked.ssh, NODES).stdout))
        return all(out(now.get(name, "")) <= out(state) for name, state in nodes.items())

    settled = _until(time.monotonic() + SETTLE_S, same) if serves is not None else None
    after = {one: probe.job_state(asked, one).lower() for one in jobs}
    return {
        "what": "head", "node": asked.node, "job": job, "before": before, "boot": boot,
        "serves_s": None if serves is None else round(serves - begin, 3),
        "settled_s": None if settled is None else round(settled - begin, 3),
        "jobs": {one: [state, after[one]] for one, state in jobs.items()},
        "nodes": {name: [state, now.get(name, "")] for name, state in nodes.items()},
    }  # fmt: skip


def _until(end: float, there: Any) -> float | None:
    """When it was so; None where that did not come."""
    while not stopped():
        if there():
            return time.monotonic()
        if time.monotonic() > end:
            return None
        time.sleep(probe.POLL_S)
    return None
