"""Judging how fast training is, and how long the whitepaper's 90 epochs take at that rate.

A rate is held against what the whitepaper has of the declared machine; where it has nothing, against the same job when
the site was accepted; where it never was, against the same job on the other GPU servers. The published rates are of
TensorFlow in 2018 and 2019, so they are a floor and confirm nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from validation.analysis.scaling import average_rate, interval
from validation.analysis.stats import Summary
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import STEPS, against, impossible, most_of, subject_of
from validation.kinds.record import names
from validation.kinds.trained import config_of
from validation.measures.training.long_outcome import IMAGES, hours_published
from validation.measures.training.scaling import pooled
from validation.model import Bound, Judgement, Measurement
from validation.plan.offered import EPOCHS
from validation.rules.criterion import Criterion
from validation.rules.reference import Claim, Reference, declared_as, packaged


@method(
    "rate",
    "images/s over all steps against 0.95 of what is published of the machine, else of the peers",
    figures=True,
    counts="jobs",
)
def judge_rate(case: Case, criterion: Criterion) -> list[Judgement]:
    """Each job's average rate against the published one of its machine, else the accepted, else its peers' median."""
    jobs = case.serving(criterion)
    rates = {job.id: _rate(case, criterion, job) for job in jobs}
    return [_judge_rate(case, criterion, job, jobs, rates) for job in jobs]


def _judge_rate(
    case: Case,
    criterion: Criterion,
    job: Measurement,
    jobs: Sequence[Measurement],
    rates: dict[str, Summary | Judgement],
) -> Judgement:
    found = rates[job.id]
    if isinstance(found, Judgement):
        return found
    subject, evidence, share = subject_of(job), [job.id], criterion.bound.value or 0
    own = job.params.get("device") == "gpu" and job.params.get("ranks") == 1
    if case.virtual and not (own and case.passed_through):
        why = f"{criterion.rehearsal.why}: {found.median:.4g} images/s, not judged"
        return judgement(criterion, subject, "not-measured", "virtual", why, evidence, summary=found)
    claim, peers = _published(case, packaged(), job), _peers(job, jobs, rates)
    was = case.accepted.of(job) if case.accepted is not None else None
    if claim is not None:
        assert claim.published is not None
        source = f"{claim.id} ({claim.section}): {claim.published.printed} images/s, with TensorFlow"
        floor, lines = share * claim.value, (source, f"floor = {share:g} x {claim.value:g}")
    elif was is not None:
        floor = share * was.images_per_s
        lines = (
            f"accepted run {was.run}: {was.images_per_s:.5g} images/s of the same job on the same servers",
            f"floor = {share:g} x {was.images_per_s:.5g} (project default)",
        )
    elif peers:
        middle = statistics.median(peers)
        floor = share * middle
        lines = (
            f"the same job on {len(peers)} other server{'s' if len(peers) > 1 else ''}: median {middle:.4g} images/s",
            f"floor = {share:g} x {middle:.4g} (project default)",
        )
    else:
        why = (
            f"reported: {found.median:.4g} images/s; nothing is published of this job on this machine, no accepted "
            "run of the site has it, and no other server did the same"
        )
        return judgement(criterion, subject, "not-applicable", "reported", why, evidence, summary=found)
    bound = Bound(metric="images_per_s_average", unit=STEPS, floor=floor, derivation=lines, source=criterion.source)
    result = against(criterion, subject, evidence, found, bound)
    return result.model_copy(update={"text": f"{found.median:.5g} images/s, all images over all the time; {lines[0]}"})


def _rate(case: Case, criterion: Criterion, job: Measurement) -> Summary | Judgement:
    """Average rate of a job with its interval, or why there is none."""
    subject, evidence = subject_of(job), (job.id,)
    gone = unusable(case, criterion, subject, evidence, None)
    if gone is not None:
        return gone
    values = pooled(case, criterion, job)
    if isinstance(values, str):
        return judgement(criterion, subject, "not-measured", "missing-metric", values, evidence)
    wrong = impossible(values, STEPS, "", most_of(case, None, values, STEPS))
    if wrong:
        return judgement(criterion, subject, "not-measured", "above-ceiling", wrong, evidence)
    rate = average_rate(values)
    low, high = interval(values)
    return Summary(median=rate, mad=0.0, low=low, high=high, count=len(values))


def _published(case: Case, reference: Reference, job: Measurement) -> Claim | None:
    """What the documents have of this network, batch, precision and number of GPUs on the declared machine."""
    hosts = [case.nodes[name] for name in names(job, "hosts")]
    model, batch, precision, _ = config_of(job)
    if job.params.get("device") != "gpu" or not hosts:
        return None
    asked = {"model": model, "batch": batch, "precision": precision, "gpus": str(job.params["ranks"])}
    for claim in reference.claims.values():
        rated = claim.published is not None and claim.published.unit == STEPS
        if rated and {key: str(claim.conditions.get(key)) for key in asked} == asked:
            machines = [reference.machines[key].match for key in claim.machines]
            if any(all(declared_as(match, host.bom) for host in hosts) for match in machines):
                return claim
    return None


def _peers(job: Measurement, jobs: Sequence[Measurement], rates: dict[str, Summary | Judgement]) -> list[float]:
    """Rates of the same job on other servers, of one server each."""
    alike = [
        other
        for other in jobs
        if config_of(other) == config_of(job)
        and other.params["ranks"] == job.params["ranks"]
        and len(names(other, "hosts")) == len(names(job, "hosts")) == 1
        and names(other, "hosts") != names(job, "hosts")
    ]
    found = [rates[other.id] for other in alike]
    return [rate.median for rate in found if isinstance(rate, Summary)]


@method("hours", "what 90 epochs take at the measured rate", figures=True, counts="jobs")
def judge_hours(case: Case, criterion: Criterion) -> list[Judgement]:
    """Hours that 90 epochs take at the measured rate of each job, beside the published ones; judged by nothing."""
    judged = []
    for job in case.serving(criterion):
        found = _rate(case, criterion, job)
        if isinstance(found, Judgement):
            judged.append(found)
            continue
        hours = Summary(
            median=hours_of(found.median),
            mad=0.0,
            low=hours_of(found.high),
            high=hours_of(found.low),
            count=found.count,
        )
        beside = "; ".join(hours_published(packaged(), config_of(job)[0]))
        text = f"{EPOCHS} epochs x {IMAGES} images / {found.median:.5g} images/s = {hours.median:.3g} h"
        text += f"; published: {beside}" if beside else ""
        shown = judgement(
            criterion, subject_of(job), "not-applicable", "reported", f"reported, not judged: {text}", [job.id],
            summary=hours, text=text,
        )  # fmt: skip
        judged.append(shown)
    return judged


def hours_of(images_per_s: float) -> float:
    """Hours of the whitepaper's long test at that rate; its own rates predict its own hours within 2.4 %."""
    return EPOCHS * IMAGES / images_per_s / 3600 if images_per_s > 0 else math.inf
