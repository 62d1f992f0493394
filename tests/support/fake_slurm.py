"""Slurm's commands, as far as a launcher sees them: one program with their names, its state a folder of files.

`nodes.json`: name -> state. `busy`: while it is there the job waits. `refused`: what salloc says instead of a job.
`job.json`: the one job. Steps run on this machine, with this Python in place of the probes'. The words are those that
Slurm 22.05 prints (src/salloc, src/srun, src/slurmd/slurmstepd).
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

PROBES = "/opt/elastic-ai/acceptance/bin/python"
WELL = ("idle", "allocated")
COMMANDS = ("salloc", "srun", "sinfo", "squeue", "scontrol", "scancel")
STATE = Path(os.environ.get("FAKE_SLURM", "."))


def install(folder: Path, nodes: dict[str, str]) -> Path:
    """The commands in a folder for PATH, and their state beside it; returns the former."""
    programs, state = folder / "bin", folder / "state"
    programs.mkdir()
    state.mkdir()
    (state / "nodes.json").write_text(json.dumps(nodes))
    for name in COMMANDS:
        given = {"FAKE_SLURM": str(state), "FAKE_SLURM_PYTHON": sys.executable}
        words = ["env", *(f"{key}={value}" for key, value in given.items()), sys.executable, "-I", "-S", __file__, name]
        text = f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return programs


def job() -> dict[str, object]:
    """The job as it is now."""
    try:
        found = json.loads((STATE / "job.json").read_text())
    except (OSError, ValueError):
        return {"state": "", "nodes": []}
    return dict(found)


def put(**changes: object) -> None:
    """Change the job."""
    new = STATE / "job.new"
    new.write_text(json.dumps({**job(), **changes}))
    new.replace(STATE / "job.json")


def option(words: list[str], name: str) -> str:
    """The value of `--name=value`, the last one of several."""
    return [word.partition("=")[2] for word in words if word.startswith(f"--{name}=")][-1]


def salloc(words: list[str]) -> int:
    """Hold the job while its command runs."""
    refused = STATE / "refused"
    if refused.exists():
        print(f"salloc: error: Job submit/allocate failed: {refused.read_text()}", file=sys.stderr)
        return 1
    at = words.index("sh")
    put(state="PENDING", nodes=option(words, "nodelist").split(","), limit=option(words, "time"), words=words)
    if (STATE / "busy").exists():
        print("salloc: Pending job allocation 7\nsalloc: job 7 queued and waiting for resources", file=sys.stderr)
        sys.stderr.flush()
        while (STATE / "busy").exists():
            time.sleep(0.05)  # it looks at its stdin only when the job has begun
            if job()["state"] == "CANCELLED":
                print("salloc: Job allocation 7 has been revoked.", file=sys.stderr)
                return 1
    print("salloc: Granted job allocation 7", file=sys.stderr, flush=True)
    put(state="RUNNING")
    code = _watched(words[at:], {**os.environ, "SLURM_JOB_ID": "7"}, lambda: job()["state"] == "RUNNING")
    if code is None:
        print("salloc: Job allocation 7 has been revoked.", file=sys.stderr)
        return 1
    put(state="COMPLETED")
    return code


def _watched(words: list[str], env: dict[str, str], good: object) -> int | None:
    """Run a command while `good()`; None where it was ended."""
    with subprocess.Popen(words, env=env, start_new_session=True) as process:
        while process.poll() is None:
            if not good():  # type: ignore[operator]
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return None
            time.sleep(0.02)
        return process.returncode


def srun(words: list[str]) -> int:
    """A step: a command on a node of the job."""
    node, state = option(words, "nodelist"), json.loads((STATE / "nodes.json").read_text())
    if job()["state"] != "RUNNING" or option(words, "jobid") != "7":
        print("srun: error: Slurm job 7 has expired", file=sys.stderr)
        return 1
    if state[node] not in WELL:
        why = "Required node not available (down, drained or reserved)"
        print(f"srun: error: Unable to create step for job 7: {why}", file=sys.stderr)
        return 1
    line = words[words.index("sh") :]
    line[-1] = line[-1].replace(PROBES, os.environ["FAKE_SLURM_PYTHON"])

    def good() -> bool:
        return job()["state"] == "RUNNING" and json.loads((STATE / "nodes.json").read_text())[node] in WELL

    with (STATE / "steps").open("a") as log:
        log.write(f"{node} {line[-1]}\n")
    code = _watched(line, dict(os.environ), good)
    if code is None:
        if job()["state"] == "RUNNING":
            print(f"srun: error: Node failure on {node}", file=sys.stderr)
            return 1
        said = " DUE TO TIME LIMIT" if job()["state"] == "TIMEOUT" else ""
        print(
            f"slurmstepd-{node}: error: *** STEP 7.0 ON {node} CANCELLED AT 2026-11-23T19:49:06{said} ***",
            file=sys.stderr,
        )
        print(f"srun: error: {node}: task 0: Terminated", file=sys.stderr)
        return 143
    if code:
        print(f"srun: error: {node}: task 0: Exited with exit code {code}", file=sys.stderr)
    return code


def formatted(words: list[str], values: dict[str, str]) -> str:
    """A line as the format of `-o` has it."""
    line = words[words.index("-o") + 1]
    for field, value in values.items():
        line = line.replace(field, value)
    return line


def main(name: str, words: list[str]) -> int:
    """One of the commands."""
    if name == "salloc":
        return salloc(words)
    if name == "srun":
        return srun(words)
    if name == "sinfo":
        for node, state in json.loads((STATE / "nodes.json").read_text()).items():
            why = "Not responding" if state == "down" else "none"
            print(formatted(words, {"%P": "all*", "%N": node, "%T": state, "%E": why}))
    elif name == "squeue":
        print(formatted(words, {"%T": str(job()["state"]), "%r": "Resources"}))
    elif name == "scancel":
        put(state="CANCELLED")
    elif name == "scontrol":
        now = job()
        ending = STATE / "ending"  # how it ended is said the second time only
        if now["state"] not in ("RUNNING", "COMPLETED") and not ending.exists():
            ending.touch()
            now["state"] = "COMPLETING"
        print(f"JobId=7 JobName=x JobState={now['state']} Reason=None TimeLimit=00:{now['limit']}:00")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
