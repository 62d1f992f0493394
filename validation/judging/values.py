"""Judging numbers: the median of a measurement's samples, with its interval, against a two-sided bound."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from validation.analysis.denial import loss_of
from validation.analysis.stats import Summary, summarize
from validation.base.counting import be, number_of
from validation.judging.at_once import FLEET, Asked, passed
from validation.judging.attempts import Attempt, decide
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.kinds.record import names
from validation.kinds.trained import words_of
from validation.model import Bound, Judgement, Measurement, ReasonCode, Result, Subject, VerdictName
from validation.model.judgement_columns import Alike, Passed, within
from validation.rules.bounds import CEILING_SLACK
from validation.rules.criterion import Criterion, Limit, OfMachine
from validation.rules.platform import platform_bound, undeclared
from validation.rules.reference import declared_as

EMULATED_SHARE = 0.04
"""Share of a lab link's rate below which even an emulated machine's link is sick: under emulation two virtual machines
that shared two busy cores reached 0.2 or more. Project default."""


LAB_SLACK, LINE_SLACK = 3.0, 1.25
"""How far above the ceiling one interval of a TCP stream may lie: what buffers held over a stall follows at once. A
lab's host is stopped by other guests for whole intervals of 0.25 s; a port's socket buffers hold some 50 ms. Project
default."""

LEAST_US = {"tcp_rtt_us": 1.0}
"""A latency that no stack reaches: a TCP round trip passes two kernels and two cards. Below that the unit is another
one, or nothing was measured. Project default."""

FASTEST_STEP = 100.0
"""How much faster than the median one step of a job can be: the same work on the same machines. Where half of the steps
wait, the others may be some ten times as fast. Ours."""

STEPS = "images/s"
SHARES = frozenset({"ratio"})  # 0 is a reading like any other, and 1 the most, but for rounding


def bound_of(case: Case, criterion: Criterion, measurement: Measurement | None = None) -> Bound | None:
    """The criterion's bound for this fabric or the measurement's node, or for its rehearsal; None where no figure is
    known.
    """
    limit, rehearsal = criterion.bound, criterion.rehearsal
    metric, unit = criterion.metric or "", criterion.unit or ""
    if limit.kind == "fabric":
        return (case.lab_bounds if rehearsal.judge == "lab-link" else case.bounds).get(limit.fabric_key or "")
    if limit.platform_key is not None and measurement is not None:
        platform = case.topology.node(measurement.nodes[0]).platform
        return platform_bound(limit.platform_key, platform, metric, limit.value or 0, criterion.source)
    if limit.kind == "report":
        return Bound(metric=metric, unit=unit, derivation=(limit.words,), source=criterion.source)
    if limit.value is None or limit.kind not in ("minimum", "maximum"):
        return None
    value, nominal = limit.value, None
    source = criterion.source + (" (provisional)" if limit.provisional else "")
    lines: tuple[str, ...] = (f"{limit.words} ({source})",)
    mine = _machine(case, limit, measurement)
    if mine is not None:
        value = mine.value
        lines = (
            f"the inventory declares {mine.machine}, of which {criterion.source} prints {mine.printed}",
            f"floor = {value:g}: that figure ({mine.claim}), less favourable by its rounding",
        )
    if case.virtual and rehearsal.judge == "limit" and rehearsal.value is not None:
        value, nominal = rehearsal.value, f"on hardware: {limit.words}"
        lines = (f"rehearsal: {'at most' if limit.kind == 'maximum' else 'at least'} {value:g}: {rehearsal.why}",)
        source = "project default for rehearsals"
    return Bound(
        metric=metric if criterion.method == "value" else f"{metric}_{criterion.method}",
        unit="ratio" if criterion.method in ("spread", "scaling") else unit,
        floor=value if limit.kind == "minimum" else None,
        maximum=value if limit.kind == "maximum" else None,
        ceiling=1.0 if criterion.method == "scaling" else None,
        derivation=lines,
        source=source,
        nominal=nominal,
    )


def _machine(case: Case, limit: Limit, measurement: Measurement | None) -> OfMachine | None:
    """Which of a bound's machines all hosts of a job are declared to be; None where they are none of them."""
    hosts = [case.nodes[name] for name in names(measurement, "hosts")] if measurement is not None else []
    found = (m for m in limit.machines if hosts and all(declared_as(m.match, host.bom) for host in hosts))
    return next(found, None)


def subject_of(measurement: Measurement) -> Subject:
    """A pair of ports, one node, or the cluster; of a job with its ranks, of copies from a client with its name."""
    if len(measurement.endpoints) == 2:
        source, destination = measurement.endpoints
        return Subject.pair(source, destination)
    hosts = names(measurement, "hosts")
    if "ranks" in measurement.params:
        ranks, trained = measurement.params["ranks"], words_of(measurement)
        return where(hosts, f"{ranks} rank{'' if ranks == 1 else 's'}" + (f", {trained}" if trained else ""))
    if "servers" in measurement.params:  # of the pool as a whole, by one client after the other
        return Subject(kind="cluster", op=f"from {measurement.nodes[0]}")
    return where(measurement.nodes)


def where(nodes: Sequence[str], op: str = "") -> Subject:
    """One node, or the cluster."""
    return Subject.node(nodes[0], op) if len(nodes) == 1 else Subject(kind="cluster", op=op)


def samples_of(criterion: Criterion, measurement: Measurement, result: Result | None) -> list[float] | str:
    """The usable samples of a result, or words that say why there are too few."""
    mine = result.samples_in(criterion.metric or "") if result else {}
    if not mine:
        return f"{measurement.id} has a result, but no {criterion.metric} in it"
    wrong = mine.keys() - {_unit(criterion)}
    if wrong:
        return f"{measurement.id}: {criterion.metric} in {', '.join(sorted(wrong))} instead of {_unit(criterion)}"
    values = list(mine[_unit(criterion)])
    if not all(map(math.isfinite, values)):
        return f"{measurement.id}: a sample of {criterion.metric} is no finite number"
    asked = measurement.params.get(criterion.samples_asked or "")
    least = max(criterion.min_samples, asked if isinstance(asked, int) else 0)
    if len(values) < least:
        return (
            f"{measurement.id}: {number_of(len(values), 'sample')} of {criterion.metric}, at least {least} are needed"
        )
    return values


def _unit(criterion: Criterion) -> str:
    # a ratio is computed from samples in the job's own unit
    return STEPS if criterion.method in ("spread", "scaling", "hours") else criterion.unit or ""


def impossible(
    values: Sequence[float], unit: str, metric: str, most: float = math.inf, least: float | None = None
) -> str:
    """In words which samples cannot be, "" where all can: below `least` (None: what is possible), or above `most`."""
    least, most = _possible(unit, metric, most, least)
    if least <= min(values) and max(values) <= most:
        return ""
    wrong = [v for v in values if not least <= v <= most]
    shown = max(wrong) if min(wrong) > 0 else min(wrong)
    return (
        f"{len(wrong)} of {number_of(len(values), 'sample')} {be(len(wrong))} implausible ({shown:.4g} "
        f"{unit}); measurement rejected"
    )


def _possible(unit: str, metric: str, most: float, least: float | None = None) -> tuple[float, float]:
    """Between which two a sample can be."""
    if unit in SHARES:
        return 0.0, 1 + 1e-6
    return LEAST_US.get(metric, math.ulp(0.0)) if least is None else least, most


def most_of(case: Case, bound: Bound | None, values: Sequence[float], unit: str) -> float:
    """The largest sample that can be: single intervals of a TCP stream may lie above what it carries on average."""
    if unit == STEPS:
        return FASTEST_STEP * max(statistics.median(values), 0.0)
    if bound is None or bound.ceiling is None:
        return math.inf
    return bound.ceiling * (LINE_SLACK if case.topology.lab_link is None else LAB_SLACK)


@method("value", "the median of the samples of `metric` against the bound", figures=True)
@method("spread", "relative half-width of the 95 % interval of the median against the bound", figures=True)
def judge_values(case: Case, criterion: Criterion) -> Sequence[Judgement]:
    """One judgement for each measurement that serves the criterion: its median, or its spread."""
    by_node = criterion.bound.platform_key is not None
    bound = bound_of(case, criterion)
    served = case.serving(criterion)

    def judge(measurement: Measurement) -> Judgement:
        mine = bound_of(case, criterion, measurement) if by_node else bound
        subject = subject_of(measurement)
        gone = unusable(case, criterion, subject, (measurement.id,), mine)
        return gone if gone is not None else _judge_attempts(case, criterion, measurement, subject, mine)

    found = None if by_node or bound is None or len(served) < FLEET else _passed(case, criterion, served, bound)
    if bound is None or found is None:
        return [judge(measurement) for measurement in served]
    odd = {at: judge(served[at]) for at, good in enumerate(found.good) if not good}
    return Alike(criterion.id, bound, case.columns.things(served, subject_of), found, odd)


def _passed(case: Case, criterion: Criterion, served: Sequence[Measurement], bound: Bound) -> Passed | None:
    """Which of many measurements pass for certain, from columns; None where that cannot be told at once."""
    unit, metric, judge = _unit(criterion), criterion.metric or "", criterion.rehearsal.judge
    link = case.topology.lab_link
    if unit == STEPS or criterion.bound.kind == "report" or (case.virtual and judge == "not-judged"):
        return None
    if judge == "lab-link" and link is not None and link.emulated:
        return None
    least, most = _possible(unit, metric, most_of(case, bound, (), unit))
    count: int | list[int] = criterion.min_samples
    if criterion.samples_asked:
        wanted = [m.params.get(criterion.samples_asked) for m in served]
        count = [max(criterion.min_samples, asked if isinstance(asked, int) else 0) for asked in wanted]
    return passed(case.columns, served, Asked(metric, unit, bound, least, most, count))


def _judge_attempts(
    case: Case, criterion: Criterion, measurement: Measurement, subject: Subject, bound: Bound | None
) -> Judgement:
    """All attempts of one measurement. A sample that is missing or cannot be spoils them all: none is passed over."""
    evidence, attempts = (measurement.id,), []
    for result in case.tries(measurement.id):
        values = samples_of(criterion, measurement, result)
        if isinstance(values, str):
            return judgement(criterion, subject, "not-measured", "missing-metric", values, evidence, bound=bound)
        unit = _unit(criterion)
        wrong = impossible(values, unit, criterion.metric or "", most_of(case, bound, values, unit))
        if wrong:
            summary = summarize(values)
            return judgement(
                criterion, subject, "not-measured", "above-ceiling", wrong, evidence, summary=summary, bound=bound
            )
        attempts.append(Attempt(tuple(values), loss_of([result])))
    return decide(attempts, lambda values: _judgesamples_of(case, criterion, measurement, subject, bound, values))


def _judgesamples_of(
    case: Case,
    criterion: Criterion,
    measurement: Measurement,
    subject: Subject,
    bound: Bound | None,
    values: list[float],
) -> Judgement:
    evidence, summary = (measurement.id,), summarize(values)
    if criterion.bound.kind == "report":
        why = f"reported, not judged: {summary.median:.4g} {_unit(criterion)}"
        return judgement(criterion, subject, "not-applicable", "reported", why, evidence, summary=summary, bound=bound)
    if case.virtual and criterion.rehearsal.judge == "not-judged":
        why = f"{criterion.rehearsal.why}: measured {summary.median:.4g} {_unit(criterion)}, not judged"
        return judgement(criterion, subject, "not-measured", "virtual", why, evidence, bound=bound, summary=summary)
    if bound is None:
        why = f"{_unbound(case, criterion, measurement)}; measured {summary.median:.4g} {_unit(criterion)}"
        return judgement(criterion, subject, "not-measured", "no-bound", why, evidence, summary=summary)
    if criterion.rehearsal.judge == "lab-link" and case.emulated(measurement):
        return _emulated(case, criterion, subject, evidence, summary, bound)
    if criterion.method == "spread":
        return _spread(criterion, subject, evidence, summary, bound)
    return against(criterion, subject, evidence, summary, bound, values)


def _unbound(case: Case, criterion: Criterion, measurement: Measurement) -> str:
    """Why there is no bound."""
    key, node = criterion.bound.platform_key, case.topology.node(measurement.nodes[0])
    if key is None:
        return f"no bound is known for {case.fabric.name}"
    return f"the inventory's platform of {node.name} does not declare {', '.join(undeclared(key, node.platform))}"


def _emulated(
    case: Case, criterion: Criterion, subject: Subject, evidence: Sequence[str], summary: Summary, bound: Bound
) -> Judgement:
    """An emulated machine proves no rate and no latency; but a link far below what it reaches is sick all the same."""
    link = case.topology.lab_link
    if bound.floor is not None and link is not None:
        floor = EMULATED_SHARE * link.rate_gbps
        words = (
            f"rehearsal on emulated machines: they reach a tenth of the lab link of {link.rate_gbps:g} Gbit/s or more",
            f"floor = {EMULATED_SHARE:g} x {link.rate_gbps:g} = {floor:.4g} Gbit/s (project default)",
        )
        low = Bound(
            metric=bound.metric, unit=bound.unit, floor=floor, derivation=words, source="project default for emulation"
        )
        if summary.high < floor:
            return against(criterion, subject, evidence, summary, low.model_copy(update={"nominal": bound.nominal}))
    why = f"not judged: emulated fabric, measured {summary.median:.4g} {bound.unit}"
    return judgement(criterion, subject, "not-measured", "virtual", why, evidence, bound=bound, summary=summary)


def _spread(
    criterion: Criterion, subject: Subject, evidence: Sequence[str], summary: Summary, bound: Bound
) -> Judgement:
    limit = bound.maximum if bound.maximum is not None else 0.0
    text = (
        f"median {summary.median:.4g} images/s, 95 % interval {summary.low:.4g} to {summary.high:.4g}, "
        f"MAD {summary.mad:.3g}, {number_of(summary.count, 'step')}"
    )
    fine = summary.spread <= limit
    reason = f"spread {summary.spread:.2%} {'within' if fine else 'above'} {limit:.0%}; {text}"
    return judgement(
        criterion,
        subject,
        "pass" if fine else "fail",
        "within-bounds" if fine else "above-maximum",
        reason,
        evidence,
        summary=Summary(median=summary.spread, mad=0.0, low=summary.spread, high=summary.spread, count=summary.count),
        text=text,
        bound=bound,
    )


def against(
    criterion: Criterion,
    subject: Subject,
    evidence: Sequence[str],
    summary: Summary,
    bound: Bound,
    values: Sequence[float] = (),
) -> Judgement:
    """The median and its interval against the bound: better than physics, worse, undecided, or within.

    An exact bound is held against each of `values`.
    """
    value, unit = summary.median, bound.unit
    code: ReasonCode
    verdict: VerdictName
    shown = f"{value:.4g} {unit} (95 % interval {summary.low:.4g} to {summary.high:.4g})"
    if bound.equal is not None:
        wanted = float(bound.equal)
        others = sorted({v for v in values if v != wanted})
        fine = not others and summary.low == summary.high == value == wanted
        reason = f"{', '.join(f'{v:g}' for v in others) or f'{value:g}'} {unit}, {wanted:g} wanted"
        if others and len(values) > 1:
            reason += f" ({sum(v != wanted for v in values)} of {number_of(len(values), 'sample')})"
        return judgement(
            criterion,
            subject,
            "pass" if fine else "fail",
            "within-bounds" if fine else "not-equal",
            reason,
            evidence,
            bound=bound,
            summary=summary,
        )
    if bound.maximum is not None:
        if value <= 0:
            why = f"implausible value {shown}; measurement rejected"
            code, verdict = "above-ceiling", "not-measured"
        elif summary.high <= bound.maximum:
            code, verdict, why = "within-bounds", "pass", within(bound, value, summary.low, summary.high)
        elif summary.low > bound.maximum:
            code, verdict, why = "above-maximum", "fail", f"{shown} is above the {bound.maximum:g} allowed"
        else:
            code, verdict = "too-noisy", "not-measured"
            why = f"{shown} includes the limit {bound.maximum:g}; inconclusive"
    else:
        floor = bound.floor if bound.floor is not None else math.inf
        if bound.ceiling is not None and value > bound.ceiling * CEILING_SLACK:
            code, verdict = "above-ceiling", "not-measured"
            why = f"{shown} is above the ceiling of {bound.ceiling:.4g}; measurement rejected"
        elif summary.low >= floor:
            code, verdict, why = "within-bounds", "pass", within(bound, value, summary.low, summary.high)
        elif summary.high < floor:
            code, verdict, why = "below-floor", "fail", f"{shown} is below the floor of {floor:.4g}"
        else:
            code, verdict, why = "too-noisy", "not-measured", f"{shown} includes the floor {floor:.4g}; inconclusive"
    return judgement(criterion, subject, verdict, code, why, evidence, bound=bound, summary=summary)
