"""From many runs of a site to its trend. Judges nothing by a bound: each figure is held against its own past.

Two questions of each figure, and the chances of all of them corrected together (Holm), so that a site that did not
change raises an alarm in LEVEL of all cases:

- Step: is the newest run's value what the runs before it let expect? Their spread is pooled over the equals of a
  criterion, as a baseline's is, or that of the equals' newest steps where it is wider, and Student's t says how far a
  further run may lie.
- Slope: did it creep over all runs, so slowly that no single step shows it? The test of Mann (1945) and Kendall, which
  asks only for the order and is not deceived by one bad night; the size is the slope of Theil and Sen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from math import sqrt
from statistics import NormalDist, fmean, median

from validation.analysis.chance import EQUALS, QN_EFFICIENCY, chance, holm, qn_of_many
from validation.judging.methods import figures_of
from validation.model import VerdictDoc
from validation.model.judgement import Sort
from validation.rules.criterion import Criterion
from validation.run.read import Run
from validation.trend.model import Drift, Line, NotOneSeries, Quantity, Trend, TrendRun

LEVEL = 0.01
"""Chance of any false alarm in the trend of an unchanged site. Project default, as that of a comparison."""

SMALL = 0.03
"""A change of less than this share is no drift, as in a comparison. Project default."""

LEAST_FREEDOM = 3
"""Degrees of freedom from which a spread is known, as of a baseline. Project default."""

LEAST_SLOPE = 8
"""Runs from which a slope is asked for: with fewer the normal approximation of the test does not hold."""

_JUDGED = ("pass", "fail", "waived")

Pair = tuple[Run, VerdictDoc]
Key = tuple[str, Sort]


def trend_of(pairs: Sequence[Pair], notes: Sequence[str] = (), least: int = 2) -> Trend:
    """The trend of runs with their verdicts, which the caller has held against the runs' files; in any order.

    NotOneSeries, one line, for fewer runs than `least`, and for runs of different sites, fabrics or labs.
    """
    runs = sorted(pairs, key=lambda pair: (pair[0].info.created, pair[0].info.run))
    _refuse(runs, least)
    newest, last = runs[-1]
    criteria = {c.id: c for c in newest.criteria}
    series = _series(runs, criteria)
    quantities, asked = [], []
    for key, found in series.items():
        spread = _spread(found)
        criterion = criteria[key[0]]
        quantities.append(_quantity(criterion, key, found, None if spread is None else spread[0]))
        asked += _steps(criterion, found, spread) + _slopes(criterion, found, _days(runs))
    drifts = _drifts(asked)
    return Trend(
        site=newest.info.site,
        fabric=newest.fabric.name,
        rehearsal=last.sign_off == "REHEARSAL",
        constructed=last.sign_off == "CONSTRUCTED EXAMPLE",
        headline=_headline(drifts, len(runs)),
        runs=tuple(_told(run, verdict, day) for (run, verdict), day in zip(runs, _days(runs), strict=True)),
        quantities=tuple(quantities),
        drifts=tuple(drifts),
        tested=len(asked),
        level=LEVEL,
        notes=(*notes, *_notes(runs)),
    )


def _refuse(runs: Sequence[Pair], least: int) -> None:
    if len(runs) < least:
        raise NotOneSeries("a trend is made of two runs of a site or more; one run alone: toolkit report RUN")
    (first, said), *others = runs
    names = [run.info.run for run, _ in runs]
    for run, verdict in others:
        for what, one, other in (
            ("site", first.info.site, run.info.site),
            ("fabric", first.fabric.name, run.fabric.name),
            ("a rehearsal", said.sign_off == "REHEARSAL", verdict.sign_off == "REHEARSAL"),
            (
                "a constructed example",
                said.sign_off == "CONSTRUCTED EXAMPLE",
                verdict.sign_off == "CONSTRUCTED EXAMPLE",
            ),
            ("lab link", first.topology.lab_link, run.topology.lab_link),
        ):
            if one != other:
                raise NotOneSeries(
                    f"{first.info.run} and {run.info.run} are no series: {what} differs; give runs of one site over "
                    "one fabric"
                )
        if names.count(run.info.run) > 1:
            raise NotOneSeries(f"{run.info.run}: is there twice; name each run once")


def _days(runs: Sequence[Pair]) -> list[float]:
    moments = [datetime.fromisoformat(run.info.created.replace("Z", "+00:00")) for run, _ in runs]
    return [(moment - moments[0]).total_seconds() / 86400 for moment in moments]


def _told(run: Run, verdict: VerdictDoc, day: float) -> TrendRun:
    info = run.info
    return TrendRun(
        run=info.run,
        created=info.created,
        day=round(day, 4),
        sign_off=verdict.sign_off,
        outcome=verdict.outcome,
        headline=verdict.headline,
        toolkit_version=info.toolkit_version,
    )


@dataclass(frozen=True)
class _Value:
    value: float
    passed: bool


_Subjects = dict[str, list["_Value | None"]]


def _series(runs: Sequence[Pair], criteria: Mapping[str, Criterion]) -> dict[Key, _Subjects]:
    """Criterion and sort of its subjects -> subject -> what each run judged."""
    found: dict[Key, _Subjects] = {}
    for index, (_, verdict) in enumerate(runs):
        for id_, one in figures_of(verdict, criteria):
            if one.verdict in _JUDGED and one.value is not None:
                subjects = found.setdefault((id_, one.about.sort), {})
                line = subjects.setdefault(one.subject, [None] * len(runs))
                line[index] = _Value(one.value, one.verdict == "pass")
    order = {id_: place for place, id_ in enumerate(criteria)}
    return dict(sorted(found.items(), key=lambda item: order[item[0][0]]))


def _past(line: Sequence[_Value | None]) -> list[float]:
    """What the runs before the newest let expect: those that passed, for a fault is no scatter."""
    return [v.value for v in line[:-1] if v is not None and v.passed]


def _spread(subjects: _Subjects) -> tuple[float, int] | None:
    """What runs of one subject differ by before the newest, as a share, and its degrees of freedom; None of too few."""
    pasts = [past for line in subjects.values() if len(past := _past(line)) > 1]
    freedom = sum(len(past) - 1 for past in pasts)
    if freedom < LEAST_FREEDOM:
        return None
    return sqrt(sum((v / fmean(past) - 1) ** 2 for past in pasts for v in past) / freedom), freedom


def _quantity(criterion: Criterion, key: Key, subjects: _Subjects, spread: float | None) -> Quantity:
    return Quantity(
        criterion=criterion.id,
        statement=criterion.statement,
        case=key[1].words,
        unit=criterion.unit or "",
        direction="higher" if criterion.direction == "higher" else "lower",
        spread=spread,
        lines=tuple(
            Line(subject=subject, values=tuple(None if v is None else v.value for v in line))
            for subject, line in subjects.items()
        ),
    )


def _drift(criterion: Criterion, subject: str, kind: str, expected: float, value: float, p: float) -> Drift:
    change = value / expected - 1
    return Drift.model_validate(
        {
            "criterion": criterion.id,
            "subject": subject,
            "unit": criterion.unit or "",
            "kind": kind,
            "expected": expected,
            "value": value,
            "change": change,
            "p": p,
            "worse": (change < 0) == (criterion.direction == "higher"),
        }
    )


def _steps(criterion: Criterion, subjects: _Subjects, spread: tuple[float, float] | None) -> list[Drift]:
    """The newest run of each subject against its past; the chances are not corrected yet."""
    if spread is None:
        return []
    found: dict[str, tuple[float, float, float]] = {}  # what was expected, what it is, and what its past is worth
    for subject, line in subjects.items():
        now, past = line[-1], _past(line)
        if now is not None and past:
            found[subject] = fmean(past), now.value, sqrt(1 + 1 / len(past))
    share, freedom = _wider(spread, [(value / mean - 1) / worth for mean, value, worth in found.values()])
    steps = []
    for subject, (mean, value, worth) in found.items():
        change = value / mean - 1
        p = chance(change / (share * worth), freedom) if share else float(change == 0)
        steps.append(_drift(criterion, subject, "step", mean, value, p))
    return steps


def _wider(spread: tuple[float, float], steps: Sequence[float]) -> tuple[float, float]:
    """The spread of the past, or that of the newest steps of equals where this is wider.

    A latency between nodes of one host has several levels, by the processors that its ends run on; which it has changes
    from run to run, and few earlier runs do not show how often. All equals of the newest run do, and half of them may
    leave by a fault without being taken for it (Qn), as in a comparison of two runs.
    """
    if len(steps) < EQUALS:
        return spread
    return max(spread, (qn_of_many(steps), QN_EFFICIENCY * (len(steps) - 1)))


def _slopes(criterion: Criterion, subjects: _Subjects, days: Sequence[float]) -> list[Drift]:
    """Each subject over all runs; a change from the first to the last day by the slope of Theil and Sen."""
    found = []
    for subject, line in subjects.items():
        points = [(day, v.value) for day, v in zip(days, line, strict=True) if v is not None]
        if len(points) < LEAST_SLOPE:
            continue
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] > a[0]]
        if not slopes:
            continue
        slope = median(slopes)
        middle = median(day for day, _ in points), median(value for _, value in points)
        first, last = (middle[1] + slope * (day - middle[0]) for day in (points[0][0], points[-1][0]))
        if first > 0 and last > 0:
            p = _mann_kendall([value for _, value in points])
            found.append(_drift(criterion, subject, "slope", first, last, p))
    return found


def _mann_kendall(values: Sequence[float]) -> float:
    """Chance of as much order in values that have none: Mann (1945) and Kendall, with ties, normal approximation."""
    n = len(values)
    score = sum((b > a) - (b < a) for a, b in combinations(values, 2))
    ties = [values.count(v) for v in set(values)]
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    if not score or not variance:
        return 1.0
    return 2 * NormalDist().cdf(-(abs(score) - 1) / sqrt(variance))


def _drifts(asked: Sequence[Drift]) -> list[Drift]:
    """What is drift now that all chances are known, the worst first; of one figure its step before its slope."""
    chances = holm([one.p for one in asked])
    found = [
        one.model_copy(update={"p": p})
        for one, p in zip(asked, chances, strict=True)
        if p < LEVEL and abs(one.change) >= SMALL
    ]
    return sorted(found, key=lambda d: (not d.worse, -abs(d.change), d.criterion, d.subject, d.kind))


def _headline(drifts: Sequence[Drift], runs: int) -> str:
    worse, better = ([d for d in drifts if d.worse == bad] for bad in (True, False))
    figures = [len({(d.criterion, d.subject) for d in some}) for some in (worse, better)]
    words = f"{figures[0]} of its figures drifted for the worse" if worse else "nothing drifted for the worse"
    return f"{runs} runs: {words}" + (f", {figures[1]} for the better" if better else "")


def _notes(runs: Sequence[Pair]) -> list[str]:
    notes = []
    releases = list(dict.fromkeys(run.info.toolkit_version for run, _ in runs))
    if len(releases) > 1:
        notes.append(f"Measured by several releases of this toolkit: {', '.join(releases)}; a step may be theirs.")
    if len(runs) < LEAST_SLOPE:
        notes.append(f"Slopes are asked for from {LEAST_SLOPE} runs on; here are {len(runs)}.")
    return notes
