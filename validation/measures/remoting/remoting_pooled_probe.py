"""Two departments' programs on siloed and on pooled GPUs: the same jobs, the same GPUs, once by each arrangement.

Each department has a GPU server. Siloed, its jobs ask for GPUs of that server alone; pooled, for those of any. Of each
server so many GPUs take part; the others are leased for the while. Each job is `toolkit run` of a program on a GPU or a
part of one, started when its time has come, and waits in the pool's own queue. When which lease was asked for, began
and ended is Slurm's record.

`stdout`: under a line `== siloed A1` (pooled, the job's name) what became of it: `{"status", "words", "lease", "gpus",
"report", "record"}`: exit status, the last thing that it said where it failed, what its lease told it (ELASTIC_AI_LEASE
and ELASTIC_AI_GPUS), the program's own document, and of Slurm's record `submit_s`, `start_s`, `end_s` (whole seconds
since 1970, None where there is none) and `node`. `facts`: servers, emulated, engine, engine_release, torch_release (""
where nothing was trained by PyTorch), unmade (why nothing was tried, ""), free (whether all GPUs were, afterwards).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from validation.base.counting import number_of
from validation.measures.remoting.remoting_shares_probe import END_S
from validation.probes import ProbeDoc, remoting, remoting_program
from validation.probes.supervise import die_with_parent
from validation.probes.tool import Ran, Stopped, document, stopped

ARRANGEMENTS = ("siloed", "pooled")
HEADING = re.compile(r"^== (siloed|pooled) (\S+)$", re.MULTILINE)
LOOK_S = 0.2
RECORD_S = 30.0  # the accounting hears of an end some seconds later
#: The program's first line is what its lease told it.
TELLS = 'printf \'{"lease": %s, "gpus": %s}\\n\' "$ELASTIC_AI_LEASE" "$ELASTIC_AI_GPUS"; exec "$@"'
TRAIN, INFER = "train", "infer"


@dataclass
class Asked:
    """What is asked of this probe."""

    servers: list[str]  # a GPU server of each department, in the order of their names
    gpus: int  # of each server that take part
    jobs: list[str]  # in words, see Job
    limit_s: float  # everything may take so long


class Job(NamedTuple):
    """One program of a department. part: of a GPU, as `1/2`, or `1`. program: `train` or `infer` of elastic-ai-train,
    or the network that PyTorch trains. pace_ms: that a step takes at least, as of a program that waits for its data.
    """

    name: str
    department: str
    submit_s: float  # after the first one
    part: str
    program: str
    batch: int  # images of a step
    steps: int
    pace_ms: int
    inputs: int = 0  # of elastic-ai-train: numbers of an image
    hidden: int = 0  # and width of the network
    side_px: int = 0  # of PyTorch's: side of an image
    thin: int = 1  # by how much channels are divided
    every: int = 1  # after how many steps the loss is read

    @classmethod
    def read(cls, fields: str) -> Job:
        """`name=A1 department=A submit_s=0 part=1/2 program=train batch=8 ...`; ValueError where they are none."""
        told = dict(word.split("=", 1) for word in fields.split())
        whole = {"batch", "steps", "pace_ms", "inputs", "hidden", "side_px", "thin", "every"}
        values: dict[str, Any] = {key: int(value) if key in whole else value for key, value in told.items()}
        if set(values) - set(cls._fields) or set(cls._fields[:8]) - set(values):
            raise ValueError(f"not the fields of a job: {fields}")
        return cls(**{**values, "submit_s": float(values["submit_s"])})

    @property
    def words(self) -> str:
        """What read() reads; fields that say nothing of the program are left out."""
        told = {**self._asdict(), "submit_s": f"{self.submit_s:g}"}
        usual = self._field_defaults
        return " ".join(f"{key}={value}" for key, value in told.items() if usual.get(key, "") != value)

    @property
    def load(self) -> tuple[str, ...]:
        """What PyTorch trains; nothing where elastic-ai-train works."""
        if self.program in (TRAIN, INFER):
            return ()
        sizes = ("--side", str(self.side_px), "--thin", str(self.thin), "--every", str(self.every))
        return ("--network", self.program, *sizes)

    def command(self, servers: Sequence[str]) -> list[str]:
        """The user's command, with GPUs of these servers."""
        cut = [] if self.part == "1" else ["-p", self.part]
        lease = ["-n", "1", *cut, "-l", ",".join(servers), "--time", remoting.LEASE_TIME]
        program = [*remoting_program.here(self.load), "--gpus", "1", "--batch", str(self.batch)]
        program += ["--steps", str(self.steps), "--pace", str(self.pace_ms)]
        if not self.load:
            program += ["--json", "--inputs", str(self.inputs), "--hidden", str(self.hidden)]
        program += ["--infer"] if self.program == INFER else []
        # behind a shell, of which nobody knows what its program needs
        needs = remoting_program.wish(self.load) or ["--driver-api"]
        return [remoting.COMMAND, "run", *lease, "--where", "client", *needs, "--", "sh", "-c", TELLS, "sh", *program]


class Unmade(Exception):
    """Why nothing is tried on this pool; one sentence."""


class Running(NamedTuple):
    """A job's command, and where it writes: not to pipes, which would hold it when they are full."""

    job: Job
    process: subprocess.Popen[str]
    out: IO[str]
    err: IO[str]


def begin(job: Job, servers: Sequence[str], stack: ExitStack) -> Running:
    """The job's command; it ends with the stack."""
    out = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))  # noqa: SIM115
    err = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))  # noqa: SIM115
    process = subprocess.Popen(
        job.command(servers),
        stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True, cwd="/", env={**os.environ, "LC_ALL": "C"},
        preexec_fn=die_with_parent,
    )  # fmt: skip
    stack.callback(end, process)
    return Running(job, process, out, err)


def end(process: subprocess.Popen[str]) -> None:
    """One that another's fault leaves behind: it gives its lease back."""
    for last_word in (process.terminate, process.kill):
        if process.poll() is not None:
            return
        last_word()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
            return


def awaited(until: float, done: Any, what: str) -> None:
    """Returns when it is done; Unmet where it takes too long."""
    while not done():
        if stopped():
            raise Stopped
        if time.monotonic() > until:
            raise remoting.Unmet(what)
        time.sleep(LOOK_S)


def outcome(one: Running) -> dict[str, Any]:
    """What became of a job whose command has ended."""
    one.out.seek(0)
    one.err.seek(0)
    out, status = one.out.read(), one.process.returncode
    made: dict[str, Any] = {"status": status, "words": "", "lease": None, "gpus": [], "report": None}
    for line in out.splitlines():
        printed = json.loads(line) if line.startswith("{") else {}
        if set(printed) == {"lease", "gpus"}:
            made |= {"lease": int(printed["lease"]), "gpus": printed["gpus"]}
        elif printed:
            made["report"] = printed
    if status:
        made["words"] = remoting.said(Ran([], status, "", one.err.read()))
    return made


def records(leases: Sequence[int]) -> dict[int, dict[str, Any]]:
    """What Slurm's accounting has of them, when it has an end of each or nothing more is awaited."""
    until = time.monotonic() + RECORD_S
    while True:
        rows = remoting.slurm_output(
            "sacct", "-nPX", "-j", ",".join(map(str, leases)), "-o", "JobIDRaw,Submit,Start,End,NodeList"
        ).splitlines()
        found: dict[int, dict[str, Any]] = {}
        for row in rows:
            lease, *times, node = row.split("|")
            moments = [int(time_) if time_.isdigit() else None for time_ in times]
            if lease.isdigit() and len(moments) == 3:
                found[int(lease)] = dict(zip(("submit_s", "start_s", "end_s"), moments)) | {"node": node}
        ended = [lease for lease in leases if found.get(lease, {}).get("end_s") is not None]
        if len(ended) == len(leases) or time.monotonic() > until:
            return found
        time.sleep(1.0)


def arranged(arrangement: str, args: Asked, jobs: Sequence[Job], until: float) -> dict[str, dict[str, Any]]:
    """What became of each job, by its name."""
    own = dict(zip(sorted({job.department for job in jobs}), args.servers))
    with ExitStack() as stack:
        began, running = time.monotonic(), []
        for job in sorted(jobs, key=lambda one: one.submit_s):
            awaited(until, lambda at=began + job.submit_s: time.monotonic() >= at, f"{job.name} was not begun in time")
            servers = [own[job.department]] if arrangement == "siloed" else args.servers
            running.append(begin(job, servers, stack))
        awaited(
            until,
            lambda: all(one.process.poll() is not None for one in running),
            f"{arrangement}: not all jobs came to an end within {args.limit_s:g} s",
        )
        made = {one.job.name: outcome(one) for one in running}
    leases = sorted(one["lease"] for one in made.values() if one["lease"] is not None)
    known: Mapping[int, Any] = records(leases) if leases else {}
    for one in made.values():
        one["record"] = known.get(one["lease"])
    return made


def taking_part(args: Asked, stack: ExitStack) -> None:
    """Leases the servers' other GPUs for the while; Unmade where the jobs would be no comparison."""
    gpus = remoting.pool_of(args.servers)
    models = sorted({str(gpu.get("model", "")) for gpu in gpus})
    if len(models) > 1:
        raise Unmade(f"the departments' servers have GPUs of several models ({', '.join(models)})")
    for server in args.servers:
        others = sum(gpu["node"] == server for gpu in gpus) - args.gpus
        if others < 0:
            raise Unmade(f"{server} has fewer than {number_of(args.gpus, 'GPU')}")
        if others:
            stack.enter_context(remoting.leased("-n", str(others), "-l", server))


def all_free(args: Asked) -> bool:
    """Whether the GPUs that take part are, which is waited for: Slurm gives them back a moment after a lease."""
    until = time.monotonic() + remoting.FREE_S
    while True:
        if sum(gpu["free"] == 1 for gpu in remoting.gpus_of(args.servers)) >= args.gpus * len(args.servers):
            return True
        if time.monotonic() > until:
            return False
        time.sleep(1.0)


def measure_arrangements(args: Asked) -> tuple[str, dict[str, Any]]:
    """The output of both arrangements, and whether all GPUs were free at the end."""
    jobs = [Job.read(words) for words in args.jobs]
    outputs = []
    until = time.monotonic() + args.limit_s
    with ExitStack() as stack:
        taking_part(args, stack)
        for arrangement in ARRANGEMENTS:
            if not all_free(args):
                raise remoting.Unmet(f"{arrangement}: the GPUs were not free before it began")
            for name, made in arranged(arrangement, args, jobs, until).items():
                outputs.append(f"== {arrangement} {name}\n{json.dumps(made)}\n")
        return "".join(outputs), {"free": all_free(args)}


def probe(args: Asked) -> ProbeDoc:
    """What became of each job in each arrangement."""
    torch = any(Job.read(words).load for words in args.jobs)

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"servers": args.servers, **remoting.engine(), "unmade": "", "free": True}
        facts["torch_release"] = remoting.engine(remoting_program.ENGINE)["engine_release"] if torch else ""
        try:
            facts["emulated"] = any(gpu["emulated"] for gpu in remoting.gpus_of(args.servers))
            output, more = measure_arrangements(args)
            return Ran([remoting.COMMAND, "run"], 0, output, ""), {**facts, **more}, None
        except Unmade as fault:
            return Ran([remoting.COMMAND, "run"], 0, "", ""), {**facts, "unmade": str(fault)}, None
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND, "run"], 0, "", ""), facts, str(fault)

    return document("remoting-pooled", remoting.COMMAND, measure, lambda _: remoting.engine()["engine_release"])
