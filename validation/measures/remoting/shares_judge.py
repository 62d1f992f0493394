"""Judging what tenants on parts of one GPU do together, over what one does who has all of it."""

from __future__ import annotations

import math

from validation.analysis.denial import explains, loss_of
from validation.analysis.scaling import efficiency
from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.attempts import too_noisy
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import STEPS, against, bound_of, impossible, most_of
from validation.kinds.record import names
from validation.measures.remoting.counts import subject_of
from validation.measures.remoting.shares_facts import SharesFacts
from validation.measures.remoting.train_judge import unjudged
from validation.model import Judgement, Measurement, Subject
from validation.rules.criterion import Criterion


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
