"""Facts of tenants that train on parts of one GPU at the same time (kind remoting-shares)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal

from pydantic import Field, field_validator

from validation.analysis.denial import explains, loss_of
from validation.analysis.scaling import efficiency
from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.attempts import too_noisy
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import STEPS, against, bound_of, impossible, most_of
from validation.kinds.parsing import Parsed, ParseError, as_facts, expect, flag, json_object, number, short
from validation.kinds.record import names
from validation.measures.remoting.counts import subject_of
from validation.measures.remoting.facts import Trained
from validation.measures.remoting.remoting_shares_probe import HEADING, WHOLE
from validation.measures.remoting.train import load_of, of_load, same_keys, trained
from validation.measures.remoting.train_judge import unjudged
from validation.model import Judgement, Measurement, Sample, Scalar, Subject
from validation.model.base import Model
from validation.model.facts import Count, Name, Positive, once
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion


class TenantRate(Model):
    """A tenant's images/s while all of its turn trained."""

    part: Name
    images_per_s: Positive


class ShareTurn(Model):
    """One turn: the whole GPU alone, then its parts together, or the other way round. together_s: how long all tenants
    trained at the same time.
    """

    turn: Count
    whole_images_per_s: Positive
    together_s: Positive
    tenants: tuple[TenantRate, ...] = Field(min_length=1)

    @property
    def together_images_per_s(self) -> float:
        """Of all tenants."""
        return sum(tenant.images_per_s for tenant in self.tenants)


class SharesFacts(Trained):
    """Parts of a GPU, and what their tenants did together. differing: those that computed something else than the first
    who had the whole GPU.
    """

    type: Literal["shares"] = "shares"
    server: str
    device: Name
    parts: tuple[Name, ...]
    batch: Count
    inputs: Count
    hidden: Count
    steps: Count
    turns: tuple[ShareTurn, ...] = Field(min_length=1)
    differing: tuple[Name, ...]

    @field_validator("turns")
    @classmethod
    def _turns_once(cls, turns: tuple[ShareTurn, ...]) -> tuple[ShareTurn, ...]:
        return once(turns, "turn")


# ----------------------------------------------------------------------------------------------------------------------
# Tenants that train on parts of one GPU at the same time: what they did together, by the times of their steps.


LEAST_TOGETHER = 0.5
"""Share of the shortest tenant's time in which all must have trained: else nothing was shared. Ours."""

Report = Mapping[str, Any]
Tenant = tuple[str, Report]  # its part, and what its program said


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`whole_images_per_s` and `together_images_per_s`, one sample each of every turn; `differing_runs`: how many
    tenants computed something else than the first who had the whole GPU.
    """
    raw = doc["facts"]
    parts = tuple(map(str, raw["parts"]))
    expect(params, "parts", parts, "tenants: parts")
    expect(params, "server", raw["server"], "tenants: server")
    turns = _turns(doc["stdout"], parts, params)
    first = turns[0][0][0][1]
    differing = []
    for turn, (whole, shares) in enumerate(turns, 1):
        for part, report in (*whole, *shares):
            what = f"tenants: turn {turn}, {part}"
            trained(report, what, load=load_of(params))
            if other := [key for key in (*same_keys(params), "batch") if report[key] != first[key]]:
                raise ParseError(f"{what}: {other[0]} is not that of the first tenant")
            if [d["uuid"] for d in report["devices"]] != [d["uuid"] for d in first["devices"]]:
                raise ParseError(f"{what}: another GPU than that of the first tenant")
            if (report["losses"], report["weights_sha256"]) != (first["losses"], first["weights_sha256"]):
                differing.append(f"turn {turn}, {part}")
    for key in ("steps", "inputs", "hidden", "batch"):
        expect(params, key, first[key], f"tenants: {key}")
    if flag(raw["emulated"], "emulated") != flag(first["emulated"], "tenants: emulated"):
        raise ParseError("tenants: pool and programs do not agree whether the GPU is emulated")
    facts = as_facts(
        SharesFacts,
        {
            **{key: raw[key] for key in ("emulated", "engine", "engine_release", "server", "parts")},
            **{key: first[key] for key in ("batch", "inputs", "hidden", "steps")},
            **of_load(first, params),
            "device": first["devices"][0]["name"],
            "turns": [_turn(number_, *both) for number_, both in enumerate(turns, 1)],
            "differing": differing,
        },
        "tenants",
    )
    samples = [Sample(metric="differing_runs", value=len(differing), unit="count")]
    for turn_ in facts.turns:
        samples.append(Sample(metric="whole_images_per_s", value=turn_.whole_images_per_s, unit="images/s"))
        samples.append(Sample(metric="together_images_per_s", value=turn_.together_images_per_s, unit="images/s"))
    return samples, facts


def _turns(text: str, parts: tuple[str, ...], params: Mapping[str, Scalar]) -> list[tuple[list[Tenant], list[Tenant]]]:
    """Of each turn the tenant of the whole, and those of the parts; ParseError unless all are there, each once."""
    words = HEADING.split(text)
    if len(words) == 1:
        raise ParseError("tenants: no program's output is there")
    if words[0].strip():
        raise ParseError(f"tenants: {short(words[0].strip())} stands before the first")
    found: dict[tuple[int, str, int], Report] = {}
    turns = int(words[2])
    for turn, of, part, number_, output in zip(*(words[at::5] for at in range(1, 6)), strict=True):
        key = (int(turn), part, int(number_))
        what = f"tenants: turn {turn}, {part}, number {number_}"
        if key in found or int(of) != turns:
            raise ParseError(f"{what}: is there twice, or of another number of turns")
        found[key] = json_object(output, what)
    expect(params, "turns", turns, "tenants: turns")
    of_turn = [(WHOLE, 0), *((part, at) for at, part in enumerate(parts))]
    wanted = {(turn, *one) for turn in range(1, turns + 1) for one in of_turn}
    if set(found) != wanted:
        raise ParseError(
            f"tenants: {len(wanted & set(found))} of {number_of(len(wanted), 'planned program')} are there"
        )
    return [
        ([(WHOLE, found[turn, WHOLE, 0])], [(part, found[turn, part, at]) for at, part in enumerate(parts)])
        for turn in range(1, turns + 1)
    ]


def _ends(report: Report, what: str) -> list[float]:
    """When each step ended, by the client's clock; the first, which pays for what is done once, is only a begin."""
    began = number(report["began_s"], f"{what}: its begin")
    return list(accumulate((float(seconds) for seconds in report["step_s"]), initial=began))[1:]


def _rates(tenants: Sequence[Tenant], what: str) -> tuple[float, list[float]]:
    """How long all trained at the same time (s), and the images/s of each in that time."""
    ends = [_ends(report, f"{what}, {part}") for part, report in tenants]
    begin, end = max(mine[0] for mine in ends), min(mine[-1] for mine in ends)
    shortest = min(mine[-1] - mine[0] for mine in ends)
    if end - begin < LEAST_TOGETHER * shortest:
        both = f"{max(end - begin, 0):.4g} s of {shortest:.4g}"
        raise ParseError(f"{what}: all trained at the same time for {both}: nothing was shared")
    rates = []
    for mine, (_, report) in zip(ends, tenants, strict=True):
        steps = sum(max(0.0, min(b, end) - max(a, begin)) / (b - a) for a, b in pairwise(mine))
        rates.append(report["batch"] * steps / (end - begin))
    return end - begin, rates


def _turn(turn: int, whole: list[Tenant], shares: list[Tenant]) -> dict[str, Any]:
    together_s, rates = _rates(shares, f"tenants: turn {turn}")
    return {
        "turn": turn,
        "whole_images_per_s": _rates(whole, f"tenants: turn {turn}")[1][0],
        "together_s": together_s,
        "tenants": [{"part": part, "images_per_s": rate} for (part, _), rate in zip(shares, rates, strict=True)],
    }


# --- Judging what tenants on parts of one GPU do together, over what one does who has all of it ----------------------


def _samples(case: Case, job: Measurement, metric: str) -> list[float] | str:
    """One rate of each turn of all attempts, or why there are none to be used."""
    tries = case.tries(job.id)
    found = [s.value for r in tries for s in r.samples if s.metric == metric and s.unit == STEPS]
    if not found or len(found) != len(tries) * int(str(job.params.get("turns", 0))):
        return (
            f"{job.id}: {len(found)} {metric} of {number_of(len(tries), 'attempt')} with "
            f"{number_of(job.params.get('turns'), 'turn')} each"
        )
    return impossible(found, STEPS, "", most_of(case, None, found, STEPS)) or found


@method(
    "remote-shares", "trainings on parts of a GPU together over one on all of it, in turns", figures=True, counts="jobs"
)
def judge_remote_shares(case: Case, criterion: Criterion) -> list[Judgement]:
    """All tenants together over the whole, for each way to cut a GPU. That each computes the same as who has the whole
    GPU is judged on any device."""
    return [_shared(case, criterion, job, subject_of(job)) for job in case.serving(criterion)]


def _shared(case: Case, criterion: Criterion, job: Measurement, subject: Subject) -> Judgement:
    evidence, bound = [job.id], bound_of(case, criterion)
    gone = unusable(case, criterion, subject, evidence, bound)
    if gone is not None:
        return gone
    tries = case.tries(job.id)
    facts = [known for result in tries if (known := result.facts_of(SharesFacts)) is not None]
    whole, together = (_samples(case, job, f"{which}_images_per_s") for which in ("whole", "together"))
    why = next((words for words in (whole, together) if isinstance(words, str)), "")
    if len(facts) != len(tries) or any(known.parts != names(job, "parts") for known in facts):
        why = f"{job.id} has a result, but not of these tenants"
    if why or isinstance(whole, str) or isinstance(together, str) or bound is None:
        return judgement(criterion, subject, "not-measured", "missing-metric", why or "no bound", evidence, bound=bound)
    found = efficiency(together, whole, 1)
    summary = Summary(median=found.value, mad=0.0, low=found.low, high=found.high, count=min(len(whole), len(together)))
    text = f"together {found.rate:.4g} / whole {found.single:.4g} images/s = {found.value:.3f}"
    if wrong := [each for known in facts for each in known.differing]:
        why = f"{len(wrong)} tenants computed something else than who had the whole GPU: {'; '.join(wrong[:4])}; {text}"
        return judgement(
            criterion, subject, "fail", "not-equal", why, evidence, summary=summary, text=text, bound=bound
        )
    shown = unjudged(case, criterion, any(k.emulated for k in facts), subject, summary, text, evidence)
    if shown is not None:
        return shown
    if len(whole) < 2 or not math.isfinite(found.high):
        why = f"one turn gives no interval; {text}"
        return judgement(
            criterion, subject, "not-measured", "too-noisy", why, evidence, summary=summary, text=text, bound=bound
        )
    made = against(criterion, subject, evidence, summary, bound)
    made = made.model_copy(update={"text": text, "reason": f"{made.reason}; {text}"})
    loss = loss_of(tries)
    return too_noisy(made, loss) if explains(loss, made) else made
