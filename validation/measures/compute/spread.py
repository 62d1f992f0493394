"""Judging the spread of a fleet: every GPU against the median of all GPUs of its model in the run.

Half of the values would have to be bad before the median were: one slow GPU moves nobody's bound.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, judgement
from validation.judging.methods import method
from validation.judging.values import bound_of
from validation.measures.compute.rates_judge import Gpu, as_ratio, busy, devices_of
from validation.model import Judgement, ReasonCode
from validation.rules.criterion import Criterion

LEAST = 4
"""GPUs of a model without which there is no fleet. Project default."""

REMARK = 0.965
"""Share of the median below which a GPU that passes is remarked upon: where Azure's node health checks warn."""


@method("fleet", "rates of each GPU against the median of its model in the run", figures=True, counts="devices")
def judge_spread(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each GPU: its lowest share of the median over the precisions of the criterion's list."""
    bound = as_ratio(bound_of(case, criterion), criterion)
    judged, gpus = devices_of(case, criterion, bound)
    which = (criterion.metric or "").partition("_")[0]
    return judged + [_judge(case, criterion, gpu, gpus, which) for gpu in gpus]


def _judge(case: Case, criterion: Criterion, gpu: Gpu, gpus: Sequence[Gpu], which: str) -> Judgement:
    bound, evidence = as_ratio(bound_of(case, criterion), criterion), gpu.evidence
    if gpu.device.fault:
        why = f"{gpu.device.gpu}: {gpu.device.fault}"
        return judgement(criterion, gpu.subject, "not-measured", "tool-failed", why, evidence, bound=bound)
    if gpu.facts.where == "cpu":
        words = "no GPU took part, so that there is no fleet"
        if case.virtual:
            return judgement(criterion, gpu.subject, "not-measured", "virtual", words, evidence, bound=bound)
        return judgement(criterion, gpu.subject, "not-applicable", "reported", words, evidence, bound=bound)
    if who := busy(gpu.device):
        why = f"{gpu.said}: somebody works on it: {who}; measure again when it is free"
        return judgement(criterion, gpu.subject, "not-measured", "too-noisy", why, evidence, bound=bound)
    mine = _rates(gpu, which)
    fleet = [_rates(g, which) for g in gpus if g.device.name == gpu.device.name and g.facts.most == gpu.facts.most]
    shares = {}
    for precision, rate in mine.items():
        rates = [one[precision] for one in fleet if precision in one]
        if len(rates) >= LEAST:
            shares[precision] = (rate / statistics.median(rates), statistics.median(rates), len(rates))
    if not shares:
        why = f"{gpu.said}: {len(fleet)} of its model in this run, and a fleet has {LEAST} or more"
        return judgement(criterion, gpu.subject, "not-measured", "no-bound", why, evidence, bound=bound)
    precision = min(shares, key=lambda one: shares[one][0])
    share, median, count = shares[precision]
    words = f"{gpu.said}: {which} {precision} {mine[precision]:.4g} TFLOP/s, {share - 1:+.1%} of the median "
    words += f"{median:.4g} of {number_of(count, 'GPU')}"
    summary = Summary(median=share, mad=0.0, low=share, high=share, count=len(shares))
    if share < ((bound.floor if bound is not None else None) or 1.0):
        return judgement(criterion, gpu.subject, "fail", "below-floor", words, evidence, summary=summary, bound=bound)
    code: ReasonCode = "remarked" if share < REMARK else "within-bounds"
    words += f"; a remark, for it is below {REMARK - 1:+.1%}" if code == "remarked" else ""
    return judgement(criterion, gpu.subject, "pass", code, words, evidence, summary=summary, bound=bound)


def _rates(gpu: Gpu, which: str) -> dict[str, float]:
    """TFLOP/s by precision, where every problem ran."""
    return {
        f.precision: f.tflops for f in gpu.device.figures if f.list == which and f.tflops is not None and not f.skipped
    }
