"""Slurm's commands: the only place that runs them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

from toolkit.lease import Exit, LeaseError
from toolkit.lease.slurm_text import Complaint, PoolNode, SlurmJob, complaint_of, parse_jobs, parse_nodes

#: Long enough for a controller that is busy; short enough that a person still waits.
TIMEOUT_S = 60
#: What a user may still say by the environment: which of his classes, or reservations, it is for.
PASSED_ON = ("SLURM_CONF", "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION")
SCRIPT = "#!/bin/sh\nexec sleep infinity\n"


class SlurmError(LeaseError):
    """A command of Slurm's failed; `kind` says in what way."""

    def __init__(self, words: str, code: int = Exit.USAGE, kind: Complaint | None = None) -> None:
        """`kind` as the words have it, unless it is given."""
        super().__init__(words, code)
        self.kind = kind or complaint_of(words)


def clean_environment() -> dict[str, str]:
    """Ours without what would change the meaning of Slurm's commands: a lease inside a job is a lease of its own."""
    prefixes = ("SLURM_", "SBATCH_", "SQUEUE_", "SALLOC_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(prefixes) or k in PASSED_ON}
    return kept | {"LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}


def run(args: Sequence[str], stdin: str = "", timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands. LeaseError when it is not there or does not answer."""
    try:
        return subprocess.run(
            list(args),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=clean_environment(),
            check=False,
        )
    except FileNotFoundError:
        words = f"{args[0]} is not installed here; leases are asked for on a machine of the pool (role slurm)"
        raise LeaseError(words) from None
    except subprocess.TimeoutExpired:
        words = f"Slurm did not answer within {timeout_s:.0f} s ({args[0]}); try again"
        raise SlurmError(words, Exit.RETRY, Complaint.BUSY) from None


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What a command complained about, in one line."""
    lines = [re.sub(r"^\w+: (?:error: )?", "", line.strip()) for line in done.stderr.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(lines[-2:])) or f"exit {done.returncode}"


def _show(args: Sequence[str]) -> str:
    done = run(["scontrol", *args])
    if done.returncode != 0:
        raise LeaseError(f"Slurm does not answer: {said(done)}", Exit.RETRY)
    return done.stdout


def nodes() -> list[PoolNode]:
    """All servers of the pool."""
    return parse_nodes(_show(["show", "node"]))


def jobs() -> list[SlurmJob]:
    """All jobs that the controller remembers, the ended ones of the last minutes among them."""
    return parse_jobs(_show(["show", "job", "-d"]))


def job_parts(lease: int) -> list[SlurmJob]:
    """The jobs of one lease, in order; [] when the controller has forgotten it."""
    done = run(["scontrol", "show", "job", "-d", str(lease)])
    if done.returncode != 0:
        if complaint_of(done.stderr) is Complaint.NO_JOB:
            return []
        raise LeaseError(f"Slurm does not answer: {said(done)}", Exit.RETRY)
    return sorted((j for j in parse_jobs(done.stdout) if j.lease == lease or j.id == lease), key=lambda j: j.task)


def submit(options: Sequence[str], parts: int) -> int:
    """sbatch of a job, or of several alike as an array; its number."""
    done = run(["sbatch", "--parsable", *options, *([f"--array=0-{parts - 1}"] if parts > 1 else [])], stdin=SCRIPT)
    match = re.match(r"(\d+)", done.stdout.strip())
    if done.returncode != 0 or not match:
        raise SlurmError(said(done))
    return int(match[1])


def cancel(lease: int) -> None:
    """Cancel a lease; nothing where it is gone already. LeaseError when Slurm does not do it."""
    done = run(["scancel", str(lease)])
    if done.returncode != 0 and complaint_of(done.stderr) is not Complaint.NO_JOB:
        raise SlurmError(said(done), Exit.RETRY)


def place_in_queue(lease: int) -> int | None:
    """1 for the pending job that is next, by the order in which Slurm looks at them."""
    done = run(["squeue", "--noheader", "--states=PENDING", "--sort=-p,i", "--format=%A"])
    order = list(dict.fromkeys(done.stdout.split())) if done.returncode == 0 else []
    return order.index(str(lease)) + 1 if str(lease) in order else None


def expected_start(lease: int) -> str:
    """When Slurm expects to start it, '' where it does not know (yet)."""
    done = run(["squeue", "--noheader", "--start", f"--jobs={lease}", "--format=%S"])
    times = [word for word in done.stdout.split() if word != "N/A"] if done.returncode == 0 else []
    return max(times, default="")


def read_on_node(job: SlurmJob, path: str, timeout_s: float = 30) -> str:
    """A file that only the owner may read, on the job's server."""
    where = [f"--jobid={job.id}"]
    step = ["--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--gres=none", "--mpi=none", "--chdir=/", "--quiet"]
    done = run(["srun", *where, *step, "--input=none", "cat", path], timeout_s=timeout_s)
    if done.returncode != 0:
        raise SlurmError(said(done), Exit.RETRY)
    return done.stdout


def default_partition() -> str:
    """The name of Slurm's default partition, '' when there is none."""
    done = run(["sinfo", "--noheader", "--format=%P"])
    return next((word[:-1] for word in done.stdout.split() if word.endswith("*")), "")
