"""Judging a training through the engine beside the same one natively: the ratio of their rates, and its course over
batch sizes.

Both are of one GPU, in turns. Emulated GPUs, and virtual machines, show figures and are judged on none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from validation.analysis.denial import explains, loss_of
from validation.analysis.remote_model import JUDGED_FROM
from validation.analysis.scaling import Efficiency, efficiency
from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.attempts import too_noisy
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import STEPS, against, bound_of, impossible, most_of
from validation.kinds.record import names
from validation.measures.remoting.train import MadeLink, RemoteTrainFacts, loaded, metric_of
from validation.model import Bound, Judgement, Measurement, Subject
from validation.rules.criterion import Criterion

LEAST_COURSE = 0.98
"""A larger batch has at least so much of a smaller one's ratio. Less than that is a fall, if the interval of their
quotient says so too. Ours."""

HERE_LEAST, HERE_GBPS, HERE_DELAY_US = 0.90, 25.0, 50.0
"""Of the documents' networks on a GPU over a link that one machine makes, as between neighbours in a rack. Ours."""


@dataclass(frozen=True)
class Both:
    """Ratios of a measurement by batch size, and of how many samples each."""

    found: Mapping[int, Efficiency]
    counts: Mapping[int, int]
    emulated: bool

    def summary(self, batch: int) -> Summary:
        """The ratio of a batch size with its interval."""
        one = self.found[batch]
        return Summary(median=one.value, mad=0.0, low=one.low, high=one.high, count=self.counts[batch])


def bound_here(job: Measurement, batch: int, rehearsed: bool) -> Bound | None:
    """What holds over a link that was made: of PyTorch on a GPU at HERE_GBPS; None for others, which are reported."""
    link = MadeLink.of(job.params)
    if link is None or rehearsed or not loaded(job) or batch < JUDGED_FROM:
        return None
    if link.gbps != HERE_GBPS or link.delay_us > HERE_DELAY_US:
        return None
    line = f"PyTorch through the engine over {HERE_GBPS:g} Gbit/s: at least {HERE_LEAST:g} of native (project default)"
    return Bound(metric="ratio", unit="ratio", floor=HERE_LEAST, derivation=(line,), source="project default")


def subject_of(job: Measurement, words: str = "") -> Subject:
    """The server, with the link where one was made for the measurement."""
    link = MadeLink.of(job.params)
    said = ", ".join(filter(None, (link.words if link else "", loaded(job), words)))
    return Subject.node(str(job.params.get("server") or job.nodes[-1]), said)


def _batches(job: Measurement) -> list[int]:
    return sorted(int(batch) for batch in names(job, "batches"))


def _both(case: Case, criterion: Criterion, job: Measurement, subject: Subject) -> Both | Judgement:
    """Ratios of all attempts together; a judgement where one cannot be used."""
    gone = unusable(case, criterion, subject, (job.id,), None)
    if gone is not None:
        return gone
    tries = case.tries(job.id)
    facts = [known for result in tries if (known := result.facts_of(RemoteTrainFacts)) is not None]
    why = "" if facts and len(facts) == len(tries) else f"{job.id} has a result, but no training in it"
    turns, steps = int(str(job.params.get("turns", 0))), int(str(job.params.get("steps", 0)))
    found, counts = {}, {}
    for batch in _batches(job):
        rates: dict[str, list[float]] = {}
        for way in ("native", "remote"):
            mine = [s.value for r in tries for s in r.samples if s.metric == metric_of(way, batch) and s.unit == STEPS]
            if len(mine) != len(tries) * turns * (steps - 1) or not mine:
                why = (
                    why
                    or f"{job.id}: {way}, batch {batch}: not all of {number_of(turns, 'turn')} with "
                    f"{number_of(steps, 'step')} are there"
                )
            else:
                wrong = impossible(mine, STEPS, "", most_of(case, None, mine, STEPS))
                why = why or (f"{way}, batch {batch}: {wrong}" if wrong else "")
            rates[way] = mine
        if not why:
            found[batch] = efficiency(rates["remote"], rates["native"], 1)
            counts[batch] = min(map(len, rates.values()))
    if why or not found:
        why = why or f"{job.id}: no batch sizes were planned"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id])
    return Both(found, counts, any(known.emulated for known in facts))


def unjudged(
    case: Case, criterion: Criterion, emulated: bool, subject: Subject, summary: Summary, text: str, evidence: list[str]
) -> Judgement | None:
    """What becomes of a figure of emulated GPUs or virtual machines: shown, and not judged. None for others."""
    if not emulated and not (case.virtual and criterion.rehearsal.judge == "not-judged"):
        return None
    why = "GPUs are emulated" if emulated else criterion.rehearsal.why
    why = f"{why}: {text}, not judged"
    return judgement(criterion, subject, "not-measured", "virtual", why, evidence, summary=summary, text=text)


@method(
    "remote-ratio",
    "a training through the engine over the same natively, in turns, by batch",
    figures=True,
    counts="jobs",
)
def judge_remote_ratio(case: Case, criterion: Criterion) -> list[Judgement]:
    """Remote over native for each batch size; judged from `JUDGED_FROM` images on."""
    judged: list[Judgement] = []
    fabric_bound = bound_of(case, criterion)
    for job in case.serving(criterion):
        both = _both(case, criterion, job, subject_of(job))
        if isinstance(both, Judgement):
            judged.append(both)
            continue
        for batch, one in both.found.items():
            subject, summary, evidence = subject_of(job, f"batch {batch}"), both.summary(batch), [job.id]
            text = f"remote {one.rate:.4g} / native {one.single:.4g} images/s = {one.value:.3f}"
            here = bound_here(job, batch, both.emulated or case.virtual)
            if MadeLink.of(job.params) is not None and here is None:
                devices = "GPUs are emulated, and " if both.emulated else ""
                why = f"reported: {devices}a link made here is no fabric: {text}"
                judged.append(
                    judgement(
                        criterion, subject, "not-applicable", "reported", why, evidence, summary=summary, text=text
                    )
                )
                continue
            shown = unjudged(case, criterion, both.emulated, subject, summary, text, evidence)
            bound = here or fabric_bound
            if shown is not None:
                judged.append(shown)
            elif batch < JUDGED_FROM:
                why = f"reported, not judged below batch {JUDGED_FROM}: {text}"
                judged.append(
                    judgement(
                        criterion, subject, "not-applicable", "reported", why, evidence, summary=summary, text=text
                    )
                )
            elif bound is None:
                why = f"no bound is known for {case.fabric.name}; {text}"
                judged.append(
                    judgement(criterion, subject, "not-measured", "no-bound", why, evidence, summary=summary, text=text)
                )
            else:
                made = against(criterion, subject, evidence, summary, bound)
                made = made.model_copy(update={"text": text, "reason": f"{made.reason}; {text}"})
                loss = loss_of(case.tries(job.id))
                judged.append(too_noisy(made, loss) if explains(loss, made) else made)
    return judged


def _quotient(small: Efficiency, large: Efficiency) -> tuple[float, float, float]:
    """The ratio of the larger batch over that of the smaller, with its interval."""
    value = large.value / small.value
    wide = math.exp(math.hypot(math.log(small.high / small.value), math.log(large.high / large.value)))
    return value, value / wide, value * wide


@method(
    "remote-batch",
    "whether that ratio falls from a batch size to a larger one, beyond noise",
    figures=True,
    counts="jobs",
)
def judge_remote_batch(case: Case, criterion: Criterion) -> list[Judgement]:
    """Whether the ratio falls from any batch size to a larger one, beyond noise: the worst of all pairs."""
    judged: list[Judgement] = []
    for job in case.serving(criterion):
        subject, evidence = subject_of(job), [job.id]
        both = _both(case, criterion, job, subject)
        if isinstance(both, Judgement):
            judged.append(both)
            continue
        sizes = sorted(both.found)
        if len(sizes) < 2:
            why = f"{job.id}: one batch size shows no course"
            judged.append(judgement(criterion, subject, "not-measured", "missing-metric", why, evidence))
            continue
        quotients = {
            (a, b): _quotient(both.found[a], both.found[b]) for i, a in enumerate(sizes) for b in sizes[i + 1 :]
        }
        (small, large), (value, low, high) = min(quotients.items(), key=lambda pair: pair[1][2])
        summary = Summary(median=value, mad=0.0, low=low, high=high, count=min(both.counts.values()))
        text = ", ".join(f"batch {batch}: {both.found[batch].value:.3f}" for batch in sizes)
        shown = unjudged(case, criterion, both.emulated, subject, summary, text, evidence)
        if shown is not None:
            judged.append(shown)
            continue
        fell = high < LEAST_COURSE
        said = f"batch {large} has {value:.3f} ({low:.3f} to {high:.3f}) of the ratio of batch {small}"
        why = f"it falls: {said}" if fell else f"it does not fall beyond noise; at worst {said}"
        made = judgement(
            criterion,
            subject,
            "fail" if fell else "pass",
            "below-floor" if fell else "within-bounds",
            f"{why}; {text}",
            evidence,
            summary=summary,
            text=text,
        )
        loss = loss_of(case.tries(job.id))
        judged.append(too_noisy(made, loss) if fell and explains(loss, made) else made)
    return judged
