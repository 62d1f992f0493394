"""Facts of two departments' jobs on siloed and on pooled GPUs (kind remoting-pooled), and what they are judged on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_validator

from validation.base.counting import number_of
from validation.judging.case import Case
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_object, number, short
from validation.measures.remoting.facts import Remoting
from validation.measures.remoting.remoting_pooled_probe import ARRANGEMENTS, HEADING, INFER, Job
from validation.measures.remoting.wrong import Happened, judge_wrong
from validation.model import Judgement, Measurement, Result, Sample, Scalar, Subject
from validation.model.base import Model
from validation.model.facts import Count, Name, once
from validation.probes import ProbeDoc
from validation.probes.remoting_program import tool_of
from validation.rules.criterion import Criterion

Arrangement = Literal["siloed", "pooled"]
_BOTH: tuple[Arrangement, ...] = ("siloed", "pooled")
Part = Annotated[str, Field(pattern=r"^[1-9][0-9]*(/[1-9][0-9]*)?$")]
#: How long the first in line may wait beside a GPU that is free for it: Slurm's record has whole seconds, a lease's
#: end is recorded before its server has given the GPU back, and what could not start at once is looked at every 5 s. On
#: a lab's machine at load 23 it was 4 s at most.
GIVEN_ON_S = 20


class JobRun(Model):
    """A job in an arrangement. status: exit status of its command, `words` what it said where that is not 0. gpu: as
    gpu1:0, "" where its lease told it none. Moments are Slurm's record, in seconds since the first job of the
    arrangement was asked for; None where there is none. result: the digest of all that it computed, "" where it failed.
    """

    arrangement: Arrangement
    job: Name
    department: Name
    program: Name
    part: Part
    status: int = Field(ge=-64, le=255)
    words: str
    gpu: str
    submit_s: Count | None
    start_s: Count | None
    end_s: Count | None
    result: str = Field(pattern=r"^([0-9a-f]{64})?$")

    @property
    def share(self) -> Fraction:
        """Of a GPU."""
        return Fraction(self.part)

    @property
    def wait_s(self) -> int | None:
        """From its request to its lease."""
        return None if self.submit_s is None or self.start_s is None else self.start_s - self.submit_s

    @property
    def leased_gpu_s(self) -> float:
        """Seconds of a GPU that it had."""
        return 0.0 if self.start_s is None or self.end_s is None else float(self.share * (self.end_s - self.start_s))


class Interval(NamedTuple):
    """A time in which nothing changed: who had a GPU, and who waited, in the order of the requests."""

    seconds: int
    holding: tuple[JobRun, ...]
    waiting: tuple[JobRun, ...]


class Share(NamedTuple):
    """What an arrangement was for a department, or for both: GPU-seconds leased, and idle while one of its jobs waited;
    its waits, and the time from its first request to the end of its last lease."""

    jobs: int
    leased_gpu_s: float
    idle_gpu_s: float
    wait_median_s: float
    wait_most_s: float
    makespan_s: float


class PooledFacts(Remoting):
    """All jobs in both arrangements. gpus: of each server that took part. free: whether they all were, at the end.
    unmade: why nothing was tried, "" where it was."""

    type: Literal["pooled"] = "pooled"
    servers: tuple[Name, ...] = Field(min_length=2)
    gpus: Count = Field(ge=1)
    torch_release: str
    unmade: str
    free: bool
    runs: tuple[JobRun, ...]

    @field_validator("runs")
    @classmethod
    def _runs_once(cls, runs: tuple[JobRun, ...]) -> tuple[JobRun, ...]:
        return once(runs, "arrangement", "job")

    @property
    def departments(self) -> dict[str, str]:
        """Each department's own server."""
        return dict(zip(sorted({run.department for run in self.runs}), self.servers, strict=False))

    def of(self, arrangement: Arrangement, department: str = "") -> list[JobRun]:
        """Jobs of an arrangement, of one department or of all, in the order of their requests."""
        mine = [r for r in self.runs if r.arrangement == arrangement and department in ("", r.department)]
        return sorted(mine, key=lambda run: (run.submit_s is None, run.submit_s or 0, run.job))

    def may_use(self, run: JobRun) -> tuple[str, ...]:
        """Servers whose GPUs it asked for."""
        return (self.departments[run.department],) if run.arrangement == "siloed" else self.servers

    def recorded(self, arrangement: Arrangement) -> bool:
        """Whether it is known of each job when it had which GPU."""
        return all(None not in (r.submit_s, r.start_s, r.end_s) and r.gpu for r in self.of(arrangement))

    def intervals(self, arrangement: Arrangement) -> Iterator[Interval]:
        """From the first request to the last lease's end; none where not all is recorded."""
        runs = self.of(arrangement) if self.recorded(arrangement) else []
        spans = [(run, run.submit_s or 0, run.start_s or 0, run.end_s or 0) for run in runs]
        moments = sorted({moment for _, *times in spans for moment in times})
        for begin, end in pairwise(moments):
            holding = tuple(run for run, _, start, over in spans if start <= begin < over)
            waiting = tuple(run for run, submit, start, _ in spans if submit <= begin < start)
            yield Interval(end - begin, holding, waiting)

    def share(self, arrangement: Arrangement, department: str = "") -> Share | None:
        """What it was for a department, or for both ("")."""
        runs = self.of(arrangement, department)
        if not runs or not self.recorded(arrangement):
            return None
        idle = sum(
            at.seconds * float(self.gpus * len(self.servers) - sum(run.share for run in at.holding))
            for at in self.intervals(arrangement)
            if any(department in ("", run.department) for run in at.waiting)
        )
        waits = [float(run.wait_s or 0) for run in runs]
        span = max(run.end_s or 0 for run in runs) - min(run.submit_s or 0 for run in runs)
        leased = sum(run.leased_gpu_s for run in runs)
        return Share(len(runs), leased, idle, median(waits), max(waits), float(span))

    def beside_free_s(self, arrangement: Arrangement) -> dict[str, int]:
        """Job -> seconds that it waited beside a GPU that was free for it, while it was the first in line there: nobody
        who had asked before it waited for a GPU of the same servers."""
        found: dict[str, int] = {}
        for at in self.intervals(arrangement):
            ahead: set[str] = set()
            for run in at.waiting:
                servers = self.may_use(run)
                if not ahead & set(servers) and self._free_for(run, servers, at.holding):
                    found[run.job] = found.get(run.job, 0) + at.seconds
                ahead |= set(servers)
        return found

    def _free_for(self, run: JobRun, servers: tuple[str, ...], holding: tuple[JobRun, ...]) -> bool:
        for server in servers:
            taken: dict[str, Fraction] = {}
            for other in holding:
                if other.gpu.rpartition(":")[0] == server:
                    taken[other.gpu] = taken.get(other.gpu, Fraction(0)) + other.share
            if len(taken) < self.gpus or any(share + run.share <= 1 for share in taken.values()):
                return True
        return False

    def held_twice(self, arrangement: Arrangement) -> dict[str, int]:
        """GPU -> seconds in which leases had more than the whole of it."""
        found: dict[str, int] = {}
        for at in self.intervals(arrangement):
            for gpu in {run.gpu for run in at.holding}:
                if sum(run.share for run in at.holding if run.gpu == gpu) > 1:
                    found[gpu] = found.get(gpu, 0) + at.seconds
        return found

    def wrong(self) -> list[str]:
        """What must not be, in words."""
        found = []
        for run in self.runs:
            if run.status:
                found.append(f"{run.job} {run.arrangement} ended with {run.status}: {run.words}")
            elif run.end_s is None:
                found.append(f"{run.job} {run.arrangement}: Slurm has no end of its lease")
        siloed = {run.job: run for run in self.of("siloed")}
        for run in self.of("pooled"):
            if run.result and siloed[run.job].result and run.result != siloed[run.job].result:
                found.append(f"{run.job} computed something else pooled than siloed")
        for arrangement in _BOTH:
            found += [
                f"{job} {arrangement} was first in line and waited {seconds} s beside a GPU that was free for it"
                for job, seconds in self.beside_free_s(arrangement).items()
                if seconds > GIVEN_ON_S
            ]
            found += [
                f"{arrangement}: leases had more than the whole of {gpu} for {seconds} s"
                for gpu, seconds in self.held_twice(arrangement).items()
            ]
        if not self.free and not self.unmade:
            found.append("not all GPUs were free again after the last job")
        return found


# --- What the probe says ----------------------------------------------------------------------------------------------


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`wrong`: how many things must not be (facts.wrong()); `wait_ARRANGEMENT_s` of each job, `makespan_ARRANGEMENT_s`.
    No sample where nothing was tried."""
    raw = doc["facts"]
    servers = tuple(raw["servers"])
    expect(params, "servers", servers, "pooled: servers")
    known = {key: raw[key] for key in ("emulated", "engine", "engine_release", "torch_release", "unmade", "free")}
    flag(known["emulated"], "emulated")
    facts: dict[str, Any] = {**known, "servers": servers, "gpus": params["gpus"], "runs": []}
    if raw["unmade"]:
        return [], as_facts(PooledFacts, facts, "pooled")
    jobs = {job.name: job for job in map(Job.read, _words(params["jobs"]))}
    runs = list(_runs(doc["stdout"], jobs, raw))
    read = as_facts(PooledFacts, {**facts, "runs": runs}, "pooled")
    _places(read)
    samples = [Sample(metric="wrong", value=len(read.wrong()), unit="count")]
    for arrangement in _BOTH:
        whole = read.share(arrangement)
        if whole is None:
            continue
        waits = [run.wait_s or 0 for run in read.of(arrangement)]
        samples += [Sample(metric=f"wait_{arrangement}_s", value=wait, unit="s") for wait in waits]
        samples.append(Sample(metric=f"makespan_{arrangement}_s", value=whole.makespan_s, unit="s"))
    return samples, read


def _words(value: object) -> list[str]:
    if not isinstance(value, tuple | list):
        raise ParseError("pooled: the plan has no list of jobs")
    return [str(words) for words in value]


def _runs(text: str, jobs: Mapping[str, Job], raw: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each job in both arrangements; ParseError unless all are there, once each."""
    words = HEADING.split(text)
    if words[0].strip():
        raise ParseError(f"pooled: {short(words[0].strip())} stands before the first job")
    found = {(words[at], words[at + 1]): words[at + 2] for at in range(1, len(words), 3)}
    wanted = {(arrangement, name) for arrangement in ARRANGEMENTS for name in jobs}
    if set(found) != wanted or len(words) != 1 + 3 * len(wanted):
        raise ParseError(f"pooled: {len(wanted & set(found))} of {number_of(len(wanted), 'planned job')} are there")
    for arrangement in ARRANGEMENTS:
        made = {name: json_object(found[arrangement, name], f"pooled: {arrangement} {name}") for name in jobs}
        first = min((_moment(one, "submit_s", name) or 0 for name, one in made.items() if one["record"]), default=0)
        for name, one in made.items():
            yield _run(arrangement, jobs[name], one, first, raw)


def _moment(one: Mapping[str, Any], key: str, name: str) -> int | None:
    found = (one["record"] or {}).get(key)
    return None if found is None else int(count(found, f"pooled: {name}: {key}"))


def _run(arrangement: str, job: Job, one: Mapping[str, Any], first: int, raw: Mapping[str, Any]) -> dict[str, Any]:
    what = f"pooled: {arrangement} {job.name}"
    moments = {key: _moment(one, key, job.name) for key in ("submit_s", "start_s", "end_s")}
    told = [moment for moment in moments.values() if moment is not None]
    if told != sorted(told) or (moments["start_s"] is None) > (moments["end_s"] is None):
        raise ParseError(f"{what}: its lease ended before it began, or began before it was asked for")
    gpus = list(one["gpus"])
    if len(gpus) > 1 or (not gpus and one["status"] == 0):
        raise ParseError(f"{what}: its lease has {number_of(len(gpus), 'GPU')}")
    gpu = f"{gpus[0]['server']}:{gpus[0]['server_index']}" if gpus else ""
    if gpus and one["record"] and one["record"]["node"] != gpus[0]["server"]:
        raise ParseError(f"{what}: Slurm's record has it on {short(one['record']['node'])}, its lease on {gpu}")
    if gpus and bool(gpus[0]["emulated"]) and not flag(raw["emulated"], "emulated"):
        raise ParseError(f"{what}: pool and lease do not agree whether the GPU is emulated")
    return {
        "arrangement": arrangement,
        **{key: getattr(job, key) for key in ("department", "program", "part")},
        "job": job.name,
        "status": one["status"],
        "words": short(one["words"]),
        "gpu": gpu,
        **{key: None if moment is None else moment - first for key, moment in moments.items()},
        "result": _result(one["report"], job, gpus, what) if one["status"] == 0 else "",
    }


def _result(report: Mapping[str, Any], job: Job, gpus: list[Mapping[str, Any]], what: str) -> str:
    """The digest of losses and weights, or of answers; ParseError where the report is not of that job."""
    if not isinstance(report, Mapping) or report["tool"] != tool_of(job.load):
        raise ParseError(f"{what}: no document of {tool_of(job.load)}")
    if not report["servers"]:
        raise ParseError(f"{what}: its GPU was not reached through an engine")
    if [one["uuid"] for one in report["devices"]] != [one["uuid"] for one in gpus]:
        raise ParseError(f"{what}: its program had another GPU than its lease")
    infer = job.program == INFER
    wanted: dict[str, Any] = {"infer": infer, "gpus": 1, "steps": job.steps, "batch": job.batch}
    wanted |= {"network": job.program} if job.load else {"inputs": job.inputs, "hidden": job.hidden}
    if other := [key for key, value in wanted.items() if report[key] != value]:
        raise ParseError(f"{what}: {other[0]} is {short(report[other[0]])}, not as planned")
    losses = [] if infer else [number(value, f"{what}: loss") for value in report["losses"]]
    if not infer and (len(losses) != job.steps or len(set(losses)) == 1):
        raise ParseError(f"{what}: {len(losses)} losses of {number_of(job.steps, 'step')}, or all the same")
    made = [losses, report["weights_sha256"], report["answers_sha256"] if infer else ""]
    return hashlib.sha256(json.dumps(made).encode()).hexdigest()


def _places(facts: PooledFacts) -> None:
    """ParseError where jobs were on GPUs that they may not use, or on more than take part."""
    for run in facts.runs:
        if run.gpu and run.gpu.rpartition(":")[0] not in facts.may_use(run):
            raise ParseError(f"pooled: {run.arrangement} {run.job}: on {run.gpu}, of which it asked for none")
    if len({run.department for run in facts.runs}) != len(facts.servers):
        raise ParseError(f"pooled: {number_of(len(facts.servers), 'server')}, and not as many departments")
    for server in facts.servers:
        used = {run.gpu for run in facts.runs if run.gpu.rpartition(":")[0] == server}
        if len(used) > facts.gpus:
            raise ParseError(f"pooled: {number_of(len(used), 'GPU')} of {server} were used, {facts.gpus} take part")


# ----------------------------------------------------------------------------------------------------------------------
# Judging: what must not be, on any device; hours and waits are reported.


def said(facts: PooledFacts) -> str:
    """Hours and waits side by side, in words."""
    told = []
    for arrangement in _BOTH:
        whole = facts.share(arrangement)
        if whole is None:
            told.append(f"{arrangement}: not all leases are recorded")
            continue
        beside = max(facts.beside_free_s(arrangement).values(), default=0)
        told.append(
            f"{arrangement}: {number_of(whole.jobs, 'job')} in {whole.makespan_s:g} s, waits of "
            f"{whole.wait_median_s:g} s (median) and {whole.wait_most_s:g} s (longest), {whole.idle_gpu_s:g} "
            f"GPU-seconds idle while a job waited, the first in line at most {beside} s beside a free GPU"
        )
    return "; ".join(told)


@method("remote-pooled", "what must not be where two departments' jobs run siloed and pooled; hours and waits reported")
def judge_remote_pooled(case: Case, criterion: Criterion) -> list[Judgement]:
    """For each measurement."""
    return [_pooled(case, criterion, job) for job in case.serving(criterion)]


def _pooled(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    return judge_wrong(case, criterion, job, Subject(kind="cluster", op=f"from {job.nodes[0]}"), _happened)


def _happened(result: Result) -> Happened:
    facts = result.facts_of(PooledFacts)
    if facts is None or facts.unmade or not facts.runs:
        return Happened(facts.unmade if facts is not None else "", None)
    emulated = " (GPUs are emulated: the hours are of processors that all of them share)" if facts.emulated else ""
    return Happened("", facts.wrong(), f"{said(facts)}{emulated}")
