"""Judging answers through the engine beside the same ones natively.

How long they take is reported. That they are the same is judged, on any device.
"""

from __future__ import annotations

from validation.analysis.stats import summarize
from validation.base.counting import number_of
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.kinds.record import names
from validation.measures.remoting.infer_facts import InferFacts
from validation.measures.remoting.infer_parse import at_percent, metric_of
from validation.model import Judgement, Measurement, Subject
from validation.rules.criterion import Criterion

UNIT = "us"


@method("remote-infer", "answers of a network natively and through the engine, by batch", counts="batches")
def judge_remote_infer(case: Case, criterion: Criterion) -> list[Judgement]:
    """For each batch size: latency at 50 and 99 %, images/s, both ways; other answers fail."""
    judged: list[Judgement] = []
    for job in case.serving(criterion):
        subject = Subject.node(str(job.params.get("server") or job.nodes[-1]))
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
    about = Subject.node(str(job.params.get("server") or job.nodes[-1]), f"batch {batch}")
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
