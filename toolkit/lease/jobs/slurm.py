"""Slurm's commands: the only place that runs them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from toolkit.lease import Exit, LeaseError
from toolkit.lease.jobs.slurm_json import parse_jobs
from toolkit.lease.jobs.slurm_text import (
    Complaint,
    JobState,
    PoolNode,
    SlurmError,
    SlurmJob,
    complaint_of,
    epoch,
    parse_nodes,
)
from toolkit.lease.jobs.submission import Submission
from validation.base import bounded

#: Long enough for a controller that is busy; short enough that a person still waits.
TIMEOUT_S = 60
#: How long a controller that starts anew is asked again: a start takes it seconds. Slurm's own commands have tried for
#: 10 s by then (MessageTimeout).
AGAIN_S, AGAIN_PAUSE_S = 15.0, 1.0
#: What a user may still say by the environment: which of his classes, or reservations, it is for.
PASSED_ON = ("SLURM_CONF", "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION")
SCRIPT = "#!/bin/sh\nexec sleep infinity\n"
#: A question about jobs without a further one about a federation of clusters, which a pool is not part of. squeue of
#: Slurm 22.05 then asks its controller twice: for the jobs and for the partitions (sdiag).
JOBS = ("squeue", "--all", "--local", "--noheader")
#: How an error begins that is the controller's.
NO_ANSWER = "Slurm does not answer: "
T = TypeVar("T")


def clean_environment() -> dict[str, str]:
    """Ours without what would change the meaning of Slurm's commands: a lease inside a job is a lease of its own.

    By sudo not even SLURM_CONF counts: it names the plugins that root would load.
    """
    prefixes = ("SLURM_", "SBATCH_", "SQUEUE_", "SALLOC_")
    passed_on = () if "SUDO_UID" in os.environ else PASSED_ON
    kept = {k: v for k, v in os.environ.items() if not k.startswith(prefixes) or k in passed_on}
    return kept | {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


def _run(args: Sequence[str], stdin: str = "", timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[bytes]:
    try:
        return bounded.run(
            args,
            most=bounded.SLURM_BYTES,
            timeout=timeout_s,
            stdin=stdin.encode("utf-8", "surrogateescape"),
            env=clean_environment(),
        )
    except FileNotFoundError:
        words = f"{args[0]} is not installed here; leases are asked for on a machine of the pool (role slurm)"
        raise LeaseError(words) from None
    except subprocess.TimeoutExpired:
        words = f"Slurm did not answer within {timeout_s:.0f} s ({args[0]}); try again"
        raise SlurmError(words, Exit.RETRY, Complaint.BUSY) from None
    except bounded.TooMuch as fault:
        raise LeaseError(f"the answer of Slurm cannot be used: {fault}") from None


def _told(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(done.args, done.returncode, _words(done.stdout), _words(done.stderr))


def _words(output: bytes) -> str:
    """Text that may not be UTF-8: users name their jobs, and Slurm prints what they chose."""
    return output.decode("utf-8", "backslashreplace")


def run(args: Sequence[str], stdin: str = "", timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands. LeaseError when it is not there or does not answer."""
    return _told(_run(args, stdin, timeout_s))


#: What srun says of its own accord when a program ends; the exit code says it, and the program's words are before it.
_COUNTED = re.compile(
    r"\btasks? [\d,\[\]-]+: (?:Exited with exit code|running)|\bFirst task exited \d|^launch/slurm: |"
    r"Terminating StepId="
)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What a command complained about, in one line."""
    lines = [re.sub(r"^\w+: (?:error: )?", "", line.strip()) for line in done.stderr.splitlines() if line.strip()]
    lines = [line for line in lines if not _COUNTED.search(line)]
    return "; ".join(dict.fromkeys(lines[-2:])) or f"exit {done.returncode}"


def _again(ask: Callable[[], T], *kinds: Complaint) -> T:
    """What `ask` finds, asked again for AGAIN_S where the controller is away (and `kinds`)."""
    until = time.monotonic() + AGAIN_S
    while True:
        try:
            return ask()
        except SlurmError as fault:
            if fault.kind not in (Complaint.AWAY, *kinds) or time.monotonic() > until:
                raise
        time.sleep(AGAIN_PAUSE_S)


def _show(args: Sequence[str]) -> str:
    done = run(["scontrol", *args])
    if done.returncode != 0:
        raise SlurmError(said(done), Exit.RETRY, before=NO_ANSWER)
    return done.stdout


def nodes() -> list[PoolNode]:
    """All servers of the pool."""
    return parse_nodes(_again(lambda: _show(["show", "node"]), Complaint.NO_ANSWER))


def nodes_now() -> list[PoolNode]:
    """All servers of the pool, asked for once. SlurmError without an answer."""
    return parse_nodes(_show(["show", "node"]))


def jobs_now() -> list[SlurmJob]:
    """All jobs, asked for once. SlurmError without an answer."""
    return _jobs_now()


def _jobs(*options: str) -> list[SlurmJob]:
    return _again(lambda: _jobs_now(*options), Complaint.NO_ANSWER)


def _jobs_now(*options: str) -> list[SlurmJob]:
    """squeue --json. Slurm 22.05 prints all jobs whatever is asked for: who asks picks."""
    done = _run(["squeue", "--json", "--all", "--states=all", *options])
    if done.returncode != 0:
        words = said(_told(done))
        if re.search(r"json|openapi|serializer", words, re.IGNORECASE):
            raise LeaseError(f"this Slurm cannot answer in JSON, which leases need (21.08 or later): {words}")
        raise SlurmError(words, Exit.RETRY, before=NO_ANSWER)
    return parse_jobs(done.stdout)


def jobs() -> list[SlurmJob]:
    """All jobs that the controller remembers, the ended ones of the last minutes among them."""
    return _jobs()


def job_parts(lease: int) -> list[SlurmJob]:
    """The jobs of one lease, in order; [] when the controller has forgotten it."""
    try:
        found = _jobs(f"--jobs={lease}")
    except SlurmError as fault:
        if fault.kind is Complaint.NO_JOB:
            return []
        raise
    return sorted((j for j in found if lease in (j.lease, j.id)), key=lambda j: j.task)


def job(number: int) -> SlurmJob | None:
    """The job of exactly this number; None when the controller has forgotten it."""
    return next((j for j in job_parts(number) if j.id == number), None)


def submit(submission: Submission) -> int:
    """sbatch of a job, or of several alike as an array; its number. Never given twice to a controller that may have
    heard it."""
    return _again(lambda: _submit_now(submission))


def _submit_now(submission: Submission) -> int:
    done = run(["sbatch", "--parsable", *submission.options()], stdin=SCRIPT)
    match = re.match(r"(\d+)", done.stdout.strip())
    if done.returncode != 0 or not match:
        raise SlurmError(said(done))
    return int(match[1])


def cancel(lease: int) -> None:
    """Cancel a lease; nothing where it is gone already. LeaseError when Slurm does not do it."""
    done = run(["scancel", str(lease)])
    if done.returncode != 0 and complaint_of(done.stderr) is not Complaint.NO_JOB:
        raise SlurmError(said(done), Exit.RETRY)


def states(lease: int) -> list[JobState]:
    """What a waiting client asks again and again: single fields of a lease, none of them a user's; [] as job_parts."""
    done = run([*JOBS, "--states=all", f"--jobs={lease}", "--format=%A %T %r"])
    if done.returncode != 0:
        if complaint_of(done.stderr) is Complaint.NO_JOB:
            return []
        raise SlurmError(said(done), Exit.RETRY, before=NO_ANSWER)
    rows = [line.split(maxsplit=2) for line in done.stdout.splitlines() if line.strip()]
    if not all(len(row) == 3 and row[0].isdigit() for row in rows):
        raise LeaseError(f"Slurm says of lease {lease} what cannot be read: {done.stdout[:80]!r}")
    return [JobState(int(number), state, _reason(reason)) for number, state, reason in rows]


def reason_of(job: SlurmJob) -> str:
    """Why a job waits, in the one word that `pending` has too."""
    return _reason(job.reason)


def _reason(words: str) -> str:
    """It may go on: "ReqNodeNotAvail, UnavailableNodes:gpu[1-2]", as after a restart of the controller; some commands
    write "launch_failed_requeued_held" for its words."""
    return words.partition(",")[0].strip().replace("_", " ")


class Pending(NamedTuple):
    """A job that waits: its number, when Slurm expects to start it (seconds since the epoch), None where it does not
    know, and why it waits."""

    job: int
    start: float | None
    reason: str


def pending() -> list[Pending]:
    """All that wait, in the order in which Slurm looks at them; an array is one. SlurmError without an answer."""
    done = run([*JOBS, "--states=PENDING", "--sort=-p,i", "--format=%A %S %r"])
    if done.returncode != 0:
        raise SlurmError(said(done), Exit.RETRY, before=NO_ANSWER)
    found: dict[int, Pending] = {}
    for line in done.stdout.splitlines():
        row = line.split(maxsplit=2)
        if len(row) != 3 or not row[0].isdigit():
            raise LeaseError(f"the answer of squeue cannot be used: {line[:80]!r}")
        found.setdefault(int(row[0]), Pending(int(row[0]), epoch(row[1]), _reason(row[2])))
    return list(found.values())


class Turn(NamedTuple):
    """A lease in the queue: its place, 1 for the next by the order in which Slurm looks at pending jobs (None: not
    pending), when Slurm expects to start it, '' where it does not know (yet), and why it waits."""

    place: int | None
    start: str = ""
    reason: str = ""


def turn(lease: int) -> Turn:
    """Where it stands among the pending jobs. A controller that does not answer knows of none."""
    try:
        order = pending()
    except LeaseError:
        return Turn(None)
    place = next((number for number, one in enumerate(order, 1) if one.job == lease), None)
    if place is None:
        return Turn(None)
    own = order[place - 1]
    start = "" if own.start is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(own.start))
    return Turn(place, start, own.reason)


def read_on_node(job: SlurmJob, path: str, node: str, timeout_s: float = 30) -> str:
    """A file that only the owner may read, on one of the job's servers."""
    where = [f"--jobid={job.id}", *([f"--nodelist={node}"] if len(job.nodes) > 1 else [])]
    step = ["--overlap", "--nodes=1", "--ntasks=1", "--mem=0", "--gres=none", "--mpi=none", "--chdir=/", "--quiet"]
    done = run(["srun", *where, *step, "--input=none", "cat", path], timeout_s=timeout_s)
    if done.returncode != 0:
        raise SlurmError(said(done), Exit.RETRY)
    return done.stdout


def default_partition() -> str:
    """The name of Slurm's default partition, '' when there is none."""
    done = run(["sinfo", "--noheader", "--format=%P"])
    return next((word[:-1] for word in done.stdout.split() if word.endswith("*")), "")
