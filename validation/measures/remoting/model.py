"""What the model of remoting says of a measured training both ways: the predicted ratio beside the measured one.

Reported: a model that does not hold is no fault of the pool. It says that something takes time which is not counted.
"""

from __future__ import annotations

from validation.analysis.remote_model import WITHIN
from validation.analysis.stats import Summary
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.kinds.record import names
from validation.measures.remoting.explained import advice, explained
from validation.measures.remoting.train import RemoteTrainFacts
from validation.measures.remoting.train_judge import subject_of
from validation.model import Judgement, Measurement
from validation.rules.criterion import Criterion


def _of_batch(criterion: Criterion, job: Measurement, facts: RemoteTrainFacts, batch: int) -> Judgement:
    about = subject_of(job, f"batch {batch}")
    found = explained(facts).get(batch, "no such batch was trained")
    if isinstance(found, str):
        return judgement(criterion, about, "not-measured", "missing-metric", f"{job.id}: {found}", [job.id])
    text = f"predicted {found.prediction.ratio:.3f}, measured {found.measured:.3f} ({found.difference:+.1%})"
    holds = "" if found.holds else f"; beyond {WITHIN:.0%}: something takes time that is not counted"
    emulated = "GPUs are emulated: " if facts.emulated else ""
    why = f"reported: {emulated}{text}{holds}; {advice(found)}"
    quotient = 1 + found.difference
    summary = Summary(median=quotient, mad=0.0, low=quotient, high=quotient, count=len(facts.rates("remote", batch)))
    return judgement(criterion, about, "not-applicable", "reported", why, [job.id], summary=summary, text=text)


@method("remote-model", "the ratio predicted from counts and costs of calls over the measured one", counts="batches")
def judge_remote_model(case: Case, criterion: Criterion) -> list[Judgement]:
    """For each batch size of the last attempt: the ratio that the model predicts over the measured one."""
    judged: list[Judgement] = []
    for job in case.serving(criterion):
        subject = subject_of(job)
        gone = unusable(case, criterion, subject, (job.id,), None)
        facts = case.tries(job.id)[-1].facts_of(RemoteTrainFacts) if gone is None else None
        if gone is not None:
            judged.append(gone)
        elif facts is None:
            why = f"{job.id} has a result, but no training in it"
            judged.append(judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id]))
        else:
            judged += [_of_batch(criterion, job, facts, int(batch)) for batch in names(job, "batches")]
    return judged
