"""Facts of answers natively and remotely, in turns (kind remoting-infer)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator

from validation.analysis.stats import summarize
from validation.base.counting import number_of
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, number
from validation.kinds.record import names
from validation.measures.remoting.facts import SAME_BITS, Trained
from validation.measures.remoting.train import RATE_WITHIN, Way, alike, load_of, of_load
from validation.measures.remoting.train_judge import subject_of
from validation.model import Judgement, Measurement, Sample, Scalar
from validation.model.base import Model
from validation.model.facts import Count, Name, Positive, once
from validation.probes import ProbeDoc
from validation.probes.remoting_program import tool_of
from validation.rules.criterion import Criterion


class InferRun(Model):
    """One job of elastic-ai-train --infer. The times are of each step but the first, which pays for what is done once:
    the one that half of them (99 of 100) do not exceed. answers_sha256: of the last step's answers.
    """

    way: Way
    turn: Count
    batch: Count = Field(ge=1)
    images_per_s: Positive
    p50_us: Positive
    p99_us: Positive
    answers_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class InferFacts(Trained):
    """The same answers of the same GPU in both ways, with several batch sizes, in the order in which they came."""

    type: Literal["remote-infer"] = "remote-infer"
    server: str
    device: Name
    inputs: Count
    hidden: Count
    steps: Count = Field(ge=2)
    runs: tuple[InferRun, ...] = Field(min_length=1)

    @field_validator("runs")
    @classmethod
    def _runs_once(cls, runs: tuple[InferRun, ...]) -> tuple[InferRun, ...]:
        for batch in {run.batch for run in runs}:
            if {run.way for run in runs if run.batch == batch} != {"native", "remote"}:
                raise ValueError(f"batch {batch} was not answered both ways")
        return once(runs, "way", "turn", "batch")

    def batches(self) -> tuple[int, ...]:
        """Each batch size once, the smallest first."""
        return tuple(sorted({run.batch for run in self.runs}))

    def differing(self, batch: int) -> list[str]:
        """The jobs with other answers than the first native one with this batch size, in words; none where
        kernels normalise them that are not the native ones."""
        if not self.emulated and self.network not in SAME_BITS:
            return []
        mine = [run for run in self.runs if run.batch == batch]
        first = next(run for run in mine if run.way == "native")
        return [f"turn {r.turn}, {r.way}, batch {batch}" for r in mine if r.answers_sha256 != first.answers_sha256]


# --- Answers natively and remotely, in turns: each job's document under its heading ----------------------------------


def metric_of(way: str, batch: object) -> str:
    """`answer_us_native_64`."""
    return f"answer_us_{way}_{batch}"


def at_percent(times: list[float], percent: int) -> float:
    """The time that so many of a hundred do not exceed."""
    ordered = sorted(times)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`answer_us_WAY_BATCH`: one sample for each step but the first of each turn; `differing_runs`: how many jobs have
    other answers than the first native one of their batch size.
    """
    raw, reports = doc["facts"], alike(doc, params)
    first = next(iter(reports.values()))
    samples, runs = [], []
    for (turn, way, batch), report in reports.items():
        times = _times(report, f"answers: turn {turn}, {way}, batch {batch}", tool_of(load_of(params)))
        at = {f"p{percent}_us": at_percent(times, percent) * 1e6 for percent in (50, 99)}
        run = {"way": way, "turn": turn, "batch": batch, "images_per_s": batch * len(times) / sum(times)}
        runs.append({**run, **at, "answers_sha256": report["answers_sha256"]})
        samples += [Sample(metric=metric_of(way, batch), value=seconds * 1e6, unit="us") for seconds in times]
    facts = as_facts(
        InferFacts,
        {
            **{key: raw[key] for key in ("emulated", "engine", "engine_release", "server")},
            **{key: first[key] for key in ("inputs", "hidden", "steps")},
            **of_load(first, params),
            "device": first["devices"][0]["name"],
            "runs": runs,
        },
        "answers",
    )
    differing = sum(len(facts.differing(batch)) for batch in facts.batches())
    return [Sample(metric="differing_runs", value=differing, unit="count"), *samples], facts


def _times(report: Mapping[str, Any], what: str, tool: str) -> list[float]:
    """Seconds of each step but the first; ParseError where they are those of no whole job on one GPU."""
    if report["tool"] != tool or report["infer"] is not True or report["gpus"] != 1 or len(report["devices"]) != 1:
        raise ParseError(f"{what}: no answers by {tool} --infer on one GPU")
    steps = int(count(report["steps"], f"{what}: steps"))
    times = [number(value, f"{what}: seconds of a step") for value in report["step_s"]]
    if steps < 2 or len(times) != steps:
        raise ParseError(f"{what}: {len(times)} times of {number_of(steps, 'step')}")
    rate = number(report["images_per_s"], f"{what}: images/s")
    if abs(rate * sum(times[1:]) / (report["batch"] * (steps - 1)) - 1) > RATE_WITHIN:
        raise ParseError(f"{what}: {rate:g} images/s do not follow from its steps")
    return times[1:]


# --- Judging answers through the engine beside the same ones natively ------------------------------------------------
# How long they take is reported. That they are the same is judged, on any device.


UNIT = "us"


@method("remote-infer", "answers of a network natively and through the engine, by batch", counts="batches")
def judge_remote_infer(case: Case, criterion: Criterion) -> list[Judgement]:
    """For each batch size: latency at 50 and 99 %, images/s, both ways; other answers fail."""
    judged: list[Judgement] = []
    for job in case.serving(criterion):
        subject = subject_of(job)
        gone = unusable(case, criterion, subject, (job.id,), None)
        if gone is not None:
            judged.append(gone)
            continue
        facts = [known for r in case.tries(job.id) if (known := r.facts_of(InferFacts)) is not None]
        if not facts or len(facts) != len(case.tries(job.id)):
            why = f"{job.id} has a result, but no answers in it"
            judged.append(judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id]))
            continue
        judged += [_batch(case, criterion, job, facts, int(batch)) for batch in names(job, "batches")]
    return judged


def _batch(case: Case, criterion: Criterion, job: Measurement, facts: list[InferFacts], batch: int) -> Judgement:
    about = subject_of(job, f"batch {batch}")
    if wrong := [words for known in facts if batch in known.batches() for words in known.differing(batch)]:
        why = f"{number_of(len(wrong), 'job')} with other answers: {'; '.join(wrong[:4])}"
        return judgement(criterion, about, "fail", "not-equal", why, [job.id])
    found: dict[str, list[float]] = {}
    planned = int(str(job.params.get("turns", 0))) * (int(str(job.params.get("steps", 0))) - 1)
    tries = case.tries(job.id)
    for way in ("remote", "native"):
        mine = [s.value for r in tries for s in r.samples if s.metric == metric_of(way, batch) and s.unit == UNIT]
        if not mine or len(mine) != len(tries) * planned or min(mine) <= 0:
            why = f"{job.id}: {way}, batch {batch}: not all of {planned} answers of each attempt are there"
            return judgement(criterion, about, "not-measured", "missing-metric", why, [job.id])
        found[way] = mine
    text = "; ".join(
        f"{way} {at_percent(times, 50):.4g} us, at 99 % {at_percent(times, 99):.4g} us, "
        f"{batch * len(times) / sum(times) * 1e6:.4g} images/s"
        for way, times in found.items()
    )
    emulated = "GPUs are emulated: " if any(known.emulated for known in facts) else ""
    why, summary = f"reported: {emulated}{text}", summarize(found["remote"])
    return judgement(criterion, about, "not-applicable", "reported", why, [job.id], summary=summary, text=text)
