"""Facts of a tenant beside its neighbours, and of changes of parts (kinds remoting-neighbours, remoting-noreboot)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from validation.analysis.denial import explains, loss_of
from validation.analysis.scaling import efficiency
from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.attempts import too_noisy
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import STEPS, against, bound_of, impossible, most_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, expect, flag, json_object, number, real, short
from validation.measures.remoting.facts import Remoting, Trained
from validation.measures.remoting.remoting_neighbours_probe import HEADING, cases_of
from validation.measures.remoting.train import load_of, loaded, of_load, same_keys, trained
from validation.measures.remoting.train_judge import unjudged
from validation.model import Judgement, Measurement, Sample, Scalar, Subject
from validation.model.base import Model
from validation.model.facts import Count, Name, Positive, once
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion

Neighbour = Literal["alone", "noise", "fault"]


class TenantRun(Model):
    """The tenant's training beside such a neighbour; what it said instead, where it did not train (`failed`)."""

    beside: Neighbour
    turn: Count
    failed: str
    losses: tuple[Positive, ...]
    weights_sha256: str = Field(pattern=r"^([0-9a-f]{64})?$")


class NeighbourEnd(Model):
    """How the neighbour's program with the failing kernel ended, and the one that came after it (exit statuses)."""

    turn: Count
    status: int = Field(ge=-64, le=255)
    words: Name
    after: int = Field(ge=-64, le=255)


class NeighbourFacts(Trained):
    """Turns of a tenant alone, beside noise, and, where elastic-ai-train was trained, beside a fault."""

    type: Literal["neighbours"] = "neighbours"
    server: str
    device: Name
    batch: Count
    noise: Count
    steps: Count = Field(ge=2)
    runs: tuple[TenantRun, ...] = Field(min_length=1)
    ends: tuple[NeighbourEnd, ...]

    @field_validator("runs")
    @classmethod
    def _runs_once(cls, runs: tuple[TenantRun, ...]) -> tuple[TenantRun, ...]:
        return once(runs, "beside", "turn")

    @model_validator(mode="after")
    def _ended(self) -> NeighbourFacts:
        if bool(self.ends) == bool(self.network):
            raise ValueError("a neighbour's kernel failed where elastic-ai-train was trained, and nowhere else")
        return self

    def harmed(self, beside: Neighbour) -> list[str]:
        """The turns in which the tenant did not train, or computed something else than alone at first, in words."""
        first = next(run for run in self.runs if run.beside == "alone")
        found = []
        for run in (run for run in self.runs if run.beside == beside):
            if run.failed:
                found.append(f"turn {run.turn}: the tenant failed: {run.failed}")
            elif (run.losses, run.weights_sha256) != (first.losses, first.weights_sha256):
                found.append(f"turn {run.turn}: the tenant computed something else than alone")
        return found

    def by_fault(self) -> list[str]:
        """What the neighbour's fault did beyond it, in words."""
        after = [
            f"turn {end.turn}: the next program on that half failed ({end.after})" for end in self.ends if end.after
        ]
        return [*self.harmed("fault"), *after]


class BootIds(Model):
    """Boot ids of server and client."""

    server: Name
    client: Name


class PartsChange(Model):
    """A way to cut a GPU, the seconds until all its parts were leased, and the boot ids then."""

    parts: tuple[Name, ...] = Field(min_length=1)
    seconds: Positive
    ids: BootIds


class NoRebootFacts(Remoting):
    """A whole GPU, and each way to cut it, one after the other."""

    type: Literal["no-reboot"] = "no-reboot"
    server: str
    before: BootIds
    changes: tuple[PartsChange, ...] = Field(min_length=1)

    def reboots(self) -> list[str]:
        """Which machine had started anew with which parts, in words."""
        found, last = [], self.before
        for change in self.changes:
            for where in ("server", "client"):
                if getattr(change.ids, where) != getattr(last, where):
                    found.append(f"{where} with {' + '.join(change.parts)}")
            last = change.ids
        return found


# --- A tenant beside its neighbours; boot ids around changes of parts ------------------------------------------------


def metric_of(case: str) -> str:
    """`images_per_s_noise`."""
    return f"images_per_s_{case}"


def neighbours(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`images_per_s_CASE`: one sample for each step but the first of each turn; `harmed`: what a neighbour's fault did
    beyond it, 0 where nothing; no such sample where no neighbour had one.
    """
    load = load_of(params)
    raw, reports = doc["facts"], _reports(doc["stdout"], params)
    first = reports[1, "alone"]
    if "failed" in first:
        raise ParseError(f"neighbours: alone the tenant did not train: {short(first['failed'])}")
    samples, runs, ends = [], [], []
    for (turn, case), report in reports.items():
        what = f"neighbours: turn {turn}, {case}"
        if case == "neighbour":
            ends.append(_end(report, reports[turn, "fault"], turn, what))
            continue
        if "failed" in report:
            words = str(report["failed"]) or "without a word"
            runs.append({"beside": case, "turn": turn, "failed": words, "losses": [], "weights_sha256": ""})
            continue
        times, losses = trained(report, what, load=load)
        if other := [key for key in (*same_keys(params), "batch") if report[key] != first[key]]:
            raise ParseError(f"{what}: {other[0]} is not that of the first training")
        if [d["uuid"] for d in report["devices"]] != [d["uuid"] for d in first["devices"]]:
            raise ParseError(f"{what}: another GPU than that of the first training")
        run = {"beside": case, "turn": turn, "failed": "", "losses": losses}
        runs.append({**run, "weights_sha256": report["weights_sha256"]})
        samples += [Sample(metric=metric_of(case), value=report["batch"] / s, unit="images/s") for s in times[1:]]
    for key in ("steps", "inputs", "hidden", "batch"):
        expect(params, key, first[key], f"neighbours: {key}")
    expect(params, "server", raw["server"], "neighbours: server")
    if flag(raw["emulated"], "emulated") != flag(first["emulated"], "neighbours: emulated"):
        raise ParseError("neighbours: pool and program do not agree whether the GPU is emulated")
    facts = as_facts(
        NeighbourFacts,
        {
            **{key: raw[key] for key in ("emulated", "engine", "engine_release", "server")},
            **{key: first[key] for key in ("batch", "steps")},
            **of_load(first, params),
            "device": first["devices"][0]["name"],
            "noise": params.get("noise", 0),
            "runs": runs,
            "ends": ends,
        },
        "neighbours",
    )
    if facts.ends:
        samples.insert(0, Sample(metric="harmed", value=len(facts.by_fault()), unit="count"))
    return samples, facts


def _reports(text: str, params: Mapping[str, Scalar]) -> dict[tuple[int, str], Mapping[str, Any]]:
    """(turn, case) -> its document; ParseError unless all are there, each once."""
    words = HEADING.split(text)
    if len(words) == 1:
        raise ParseError("neighbours: no program's output is there")
    if words[0].strip():
        raise ParseError(f"neighbours: {short(words[0].strip())} stands before the first")
    found: dict[tuple[int, str], Mapping[str, Any]] = {}
    turns = int(words[2])
    for turn, of, case, output in zip(*(words[at::4] for at in range(1, 5)), strict=True):
        key = (int(turn), case)
        if key in found or int(of) != turns:
            raise ParseError(f"neighbours: turn {turn}, {case}: is there twice, or of another number of turns")
        found[key] = json_object(output, f"neighbours: turn {turn}, {case}")
    expect(params, "turns", turns, "neighbours: turns")
    cases = cases_of(load_of(params))
    cases = (*cases, "neighbour") if "fault" in cases else cases
    wanted = {(turn, case) for turn in range(1, turns + 1) for case in cases}
    if set(found) != wanted:
        raise ParseError(
            f"neighbours: {len(wanted & set(found))} of {number_of(len(wanted), 'planned program')} are there"
        )
    return found


def _end(end: Mapping[str, Any], tenant: Mapping[str, Any], turn: int, what: str) -> dict[str, Any]:
    """How the neighbour ended; ParseError where its kernel did not fail, or not while the tenant trained."""
    if end["status"] == 0:
        raise ParseError(f"{what}: its kernel wrote where no memory is, and nothing failed")
    if "failed" not in tenant:
        times = [number(seconds, f"{what}: seconds of a step") for seconds in tenant["step_s"]]
        steps = list(accumulate(times, initial=number(tenant["began_s"], f"{what}: the tenant's begin")))
        at = real(end["ended_s"], f"{what}: its end")
        if not steps[0] < at < steps[-1]:
            began, ended = f"{at - steps[0]:.4g}", f"{steps[-1] - steps[0]:.4g}"
            raise ParseError(f"{what}: its kernel failed {began} s after the tenant began, which trained for {ended} s")
    return {"turn": turn, **{key: end[key] for key in ("status", "words", "after")}}


def noreboot(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`reboots`: how often a machine had another boot id than before; `change_s`: seconds of each change of parts."""
    raw, said = doc["facts"], json_object(doc["stdout"], "changes of parts")
    expect(params, "server", raw["server"], "changes of parts: server")
    flag(raw["emulated"], "emulated")
    known = {key: raw[key] for key in ("emulated", "engine", "engine_release", "server")}
    facts = as_facts(NoRebootFacts, {**known, **said}, "changes of parts")
    expect(params, "wholes", tuple("+".join(change.parts) for change in facts.changes), "changes of parts")
    samples = [Sample(metric="reboots", value=len(facts.reboots()), unit="count")]
    return [*samples, *(Sample(metric="change_s", value=c.seconds, unit="s") for c in facts.changes)], facts


# ----------------------------------------------------------------------------------------------------------------------
# Judging a tenant beside a neighbour that does its worst: its results on any device, its rate over that alone on GPUs.


def _rates(case: Case, job: Measurement, which: str) -> list[float] | str:
    tries = case.tries(job.id)
    found = [s.value for r in tries for s in r.samples if s.metric == metric_of(which) and s.unit == STEPS]
    turns, steps = int(str(job.params.get("turns", 0))), int(str(job.params.get("steps", 0)))
    if not found or len(found) != len(tries) * turns * (steps - 1):
        return f"{job.id}: {which}: not all of {number_of(turns, 'turn')} with {number_of(steps, 'step')} are there"
    return impossible(found, STEPS, "", most_of(case, None, found, STEPS)) or found


@method("remote-noise", "a tenant's training beside a neighbour that does its worst over the same alone")
def judge_remote_noise(case: Case, criterion: Criterion) -> list[Judgement]:
    """For each server; a tenant that fails or computes something else beside its neighbour fails on any device."""
    return [_noise(case, criterion, job) for job in case.serving(criterion)]


def _noise(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject = Subject.node(str(job.params.get("server") or job.nodes[-1]), loaded(job))
    bound, evidence = bound_of(case, criterion), [job.id]
    gone = unusable(case, criterion, subject, evidence, bound)
    if gone is not None:
        return gone
    tries = case.tries(job.id)
    facts = [known for r in tries if (known := r.facts_of(NeighbourFacts)) is not None]
    if not facts or len(facts) != len(tries):
        why = f"{job.id} has a result, but no tenant in it"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, evidence, bound=bound)
    if wrong := [words for known in facts for words in (*known.harmed("alone"), *known.harmed("noise"))]:
        return judgement(criterion, subject, "fail", "not-equal", "; ".join(wrong[:4]), evidence, bound=bound)
    noise, alone = _rates(case, job, "noise"), _rates(case, job, "alone")
    if isinstance(noise, str) or isinstance(alone, str) or bound is None:
        why = next((words for words in (noise, alone) if isinstance(words, str)), "no bound")
        return judgement(criterion, subject, "not-measured", "missing-metric", why, evidence, bound=bound)
    found = efficiency(noise, alone, 1)
    text = f"beside a neighbour {found.rate:.4g} / alone {found.single:.4g} images/s = {found.value:.3f}"
    count = min(len(noise), len(alone))
    summary = Summary(median=found.value, mad=0.0, low=found.low, high=found.high, count=count)
    emulated = any(known.emulated for known in facts)
    if (shown := unjudged(case, criterion, emulated, subject, summary, text, evidence)) is not None:
        return shown
    made = against(criterion, subject, evidence, summary, bound)
    made = made.model_copy(update={"text": text, "reason": f"{made.reason}; {text}"})
    loss = loss_of(tries)
    return too_noisy(made, loss) if explains(loss, made) else made
