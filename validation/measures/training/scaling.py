"""Judging how a training job scales: its rate with many ranks over that with one, an efficiency with its interval."""

from __future__ import annotations

from collections.abc import Sequence

from validation.analysis.denial import explains, loss_of
from validation.analysis.scaling import efficiency
from validation.analysis.stats import Summary
from validation.judging.attempts import too_noisy
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import STEPS, against, bound_of, impossible, most_of, samples_of, subject_of, where
from validation.kinds.record import names
from validation.kinds.trained import config_of
from validation.model import Bound, Judgement, Measurement, Subject
from validation.rules.criterion import Criterion


@method("scaling", "measured(N) / (N x measured(1))", figures=True, counts="jobs")
def judge_scaling(case: Case, criterion: Criterion) -> list[Judgement]:
    """Efficiency of each job with several ranks over the one with a single rank that trains the same."""
    jobs = case.serving(criterion)
    alone = {config_of(m): m for m in reversed(jobs) if m.params.get("ranks") == 1}
    many = [m for m in jobs if m.params.get("ranks") != 1 and config_of(m) in alone]
    several = len(many) > 1
    judged = []
    for job in many:
        single = alone[config_of(job)]
        bound = bound_of(case, criterion, job)
        subject = subject_of(job) if several else where(names(job, "hosts"))
        evidence = (single.id, job.id)
        gone = unusable(case, criterion, subject, evidence, bound)
        if gone is not None:
            judged.append(gone)
            continue
        ones, all_ = pooled(case, criterion, single), pooled(case, criterion, job)
        if isinstance(ones, str) or isinstance(all_, str):
            why = ones if isinstance(ones, str) else str(all_)
            judged.append(judgement(criterion, subject, "not-measured", "missing-metric", why, evidence, bound=bound))
            continue
        wrong = [impossible(values, STEPS, "", most_of(case, None, values, STEPS)) for values in (ones, all_)]
        if any(wrong):
            why = "; ".join(filter(None, wrong))
            judged.append(judgement(criterion, subject, "not-measured", "above-ceiling", why, evidence, bound=bound))
            continue
        found = _scaled(case, criterion, job, subject, evidence, ones, all_, bound)
        # A single rank that was held back makes the many look better, so that here denial may explain a pass, too.
        of_one = loss_of(case.tries(single.id))
        loss = max(of_one, loss_of(case.tries(job.id)), key=lambda found: found.share)
        if explains(loss, found):
            found = too_noisy(found, loss)
        elif found.verdict == "pass" and of_one.disturbs:
            found = too_noisy(found, of_one)
        judged.append(found)
    return judged


def pooled(case: Case, criterion: Criterion, measurement: Measurement) -> list[float] | str:
    """The samples of all attempts, or words that say what one of them lacks."""
    values: list[float] = []
    for result in case.tries(measurement.id):
        mine = samples_of(criterion, measurement, result)
        if isinstance(mine, str):
            return mine
        values += mine
    return values


def _scaled(
    case: Case,
    criterion: Criterion,
    job: Measurement,
    subject: Subject,
    evidence: Sequence[str],
    ones: Sequence[float],
    all_: Sequence[float],
    bound: Bound | None,
) -> Judgement:
    ranks = int(str(job.params["ranks"]))
    found = efficiency(all_, ones, ranks)
    text = f"{found.rate:.4g} / ({ranks} x {found.single:.4g} images/s) = {found.value:.3f}"
    summary = Summary(median=found.value, mad=0.0, low=found.low, high=found.high, count=min(len(ones), len(all_)))
    if case.virtual and criterion.rehearsal.judge == "not-judged":
        why = f"{criterion.rehearsal.why}: scaling measured {found.value:.2f}, not judged"
        return judgement(
            criterion,
            subject,
            "not-measured",
            "virtual",
            why,
            evidence,
            text=text,
            bound=bound,
            summary=summary,
        )
    if bound is None:
        return judgement(
            criterion, subject, "not-measured", "no-bound", f"no bound is known; {text}", evidence, text=text
        )
    result = against(criterion, subject, evidence, summary, bound)
    return result.model_copy(update={"text": text, "reason": f"{result.reason}; {text}"})
