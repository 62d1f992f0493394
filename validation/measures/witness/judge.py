"""Judging witnessed tests: each is a subject of its own, named by its id. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from validation.analysis.stats import summarize
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.witness.witnessed import WitnessFacts
from validation.model import Bound, Judgement, Measurement, ReasonCode, Subject, VerdictName
from validation.rules.criterion import Criterion

MOST_NAMED = 4
"""Of what was lost, in a sentence. Project default: the facts have all."""
Said = tuple[VerdictName, ReasonCode, str, float | None]


@method("witness-seen", "whether what a witnessed test took away was seen in time", counts="tests")
def judge_seen(case: Case, criterion: Criterion) -> Sequence[Judgement]:
    """Each test: by one of its senses, within its time."""
    return _each(case, criterion, "seen_within_s", _seen)


@method("witness-lost", "whether a witnessed test took more away than it may", counts="tests")
def judge_lost(case: Case, criterion: Criterion) -> Sequence[Judgement]:
    """Each test: nothing beyond its own."""
    return _each(case, criterion, None, _lost)


@method("witness-back", "whether all came back by itself after a witnessed test", counts="tests")
def judge_back(case: Case, criterion: Criterion) -> Sequence[Judgement]:
    """Each test: as before, within its time."""
    return _each(case, criterion, "back_within_s", _back)


def _each(
    case: Case, criterion: Criterion, within: str | None, say: Callable[[WitnessFacts, float], Said]
) -> list[Judgement]:
    judged = []
    for m in case.serving(criterion):
        limit = float(str(m.params[within])) if within else 0.0
        bound, about = _bound(criterion, m, limit, within), Subject(kind="cluster", op=str(m.params["test"]))
        facts = facts_for(case, criterion, about, m.id, WitnessFacts, bound)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        verdict, code, why, value = say(facts, limit)
        remark = f" ({facts.remark})" if facts.remark else ""
        judged.append(
            judgement(criterion, about, verdict, code, f"{why}; witness {facts.witness}{remark}", [m.id],
                      summary=None if value is None else summarize([value]), text=why, bound=bound)
        )  # fmt: skip
    return judged


def _bound(criterion: Criterion, m: Measurement, limit: float, within: str | None) -> Bound:
    metric, unit = criterion.metric or criterion.id, criterion.unit or ""
    lines = (f"{m.params['title']}: {m.params['do']}",)
    if within is None:
        return Bound(metric=metric, unit=unit, maximum=0, derivation=lines, source=criterion.source)
    return Bound(metric=metric, unit=unit, maximum=limit, derivation=lines, source=criterion.source)


def _seen(facts: WitnessFacts, limit: float) -> Said:
    if facts.blind:
        return "not-measured", "missing-metric", "nothing there could see it: no BMC, port or node was read", None
    if facts.seen_gap:
        return "not-measured", "missing-metric", "nobody watched all the time: the command was broken off", None
    if facts.seen_s is None:
        return "fail", "not-working", f"not seen within {limit:g} s", None
    words = f"{facts.seen_first}, seen after {facts.seen_s:g} s"
    if facts.seen_s > limit:
        return "fail", "above-maximum", f"{words}; {limit:g} s are allowed", facts.seen_s
    return "pass", "within-bounds", words, facts.seen_s


def _lost(facts: WitnessFacts, _: float) -> Said:
    gone = f"gone with it: {_some(facts.gone)}" if facts.gone else "nothing went with it"
    if facts.lost:
        return "fail", "not-equal", f"lost beyond the test: {_some(facts.lost)}", float(len(facts.lost))
    if facts.seen_gap or facts.back_gap:
        return "not-measured", "missing-metric", "nobody watched all the time: the command was broken off", None
    return "pass", "within-bounds", f"{gone}; {facts.stayed} nodes and links stayed", 0.0


def _back(facts: WitnessFacts, limit: float) -> Said:
    if facts.back_s is None:
        return "fail", "not-working", f"not as before at the end: {_some(facts.open)}", None
    if facts.back_gap:
        return "not-measured", "missing-metric", "nobody watched all the time: the command was broken off", None
    words = f"as before after {facts.back_s:g} s"
    if facts.back_s > limit:
        return "fail", "above-maximum", f"{words}; {limit:g} s are allowed", facts.back_s
    return "pass", "within-bounds", words, facts.back_s


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join([*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])
