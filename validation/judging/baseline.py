"""Judging figures by what the same subject reached in accepted runs of the site: drift, not a figure of a document."""

from __future__ import annotations

from validation.analysis.stats import Summary
from validation.judging.case import Case, judgement
from validation.judging.methods import method
from validation.judging.values import against
from validation.judging.vm_hosts import over_the_fabric
from validation.model import Bound, Judgement
from validation.rules.criterion import Criterion
from validation.rules.since import Level


@method("baseline", "figures of another criterion against what the same subject reached in earlier runs", figures=True)
def judge_baseline(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each that the criterion behind it has: its value against that subject's own bound.

    What that criterion did not judge is not judged here either, and one whose interval holds the bound passes with a
    remark: whether it is good enough the criterion behind it says, this one says only whether it got worse.
    """
    from validation.judging.methods import METHODS  # only here: it has this method, too

    since = criterion.bound.since
    of = next((c for c in case.criteria if since is not None and c.id == since.of), None)
    if since is None or of is None or of.kind is None or not case.applies(of):
        return []
    levels = {level.subject: level for level in since.levels}
    judged = over_the_fabric(case, of, METHODS[of.method].judge(case, of))
    return [_judged(criterion, one, levels.get(one.subject), since.spread) for one in judged]


def _judged(criterion: Criterion, one: Judgement, level: Level | None, spread: float) -> Judgement:
    evidence = one.evidence
    if one.verdict == "not-measured":
        return judgement(criterion, one.about, "not-measured", one.reason_code, one.reason, evidence)
    if one.verdict not in ("pass", "fail") or one.value is None:
        return judgement(criterion, one.about, "not-applicable", "not-applicable", one.reason, evidence)
    summary = Summary(
        median=one.value,
        mad=0.0,
        low=one.value if one.low is None else one.low,
        high=one.value if one.high is None else one.high,
        count=one.samples,
    )
    if level is None:
        why = f"no run of the baseline measured it; {one.value:.4g} {criterion.unit} now"
        return judgement(criterion, one.about, "not-measured", "no-bound", why, evidence, summary=summary)
    found = against(criterion, one.about, evidence, summary, _bound(criterion, level, spread))
    if found.reason_code != "too-noisy":
        return found
    return found.model_copy(
        update={"verdict": "pass", "reason_code": "remarked", "reason": f"no drift shown: {found.reason}"}
    )


def _bound(criterion: Criterion, level: Level, spread: float) -> Bound:
    higher = criterion.direction == "higher"
    # the same words for all subjects: a report derives each bound once, and a fleet has thousands of levels
    lines = (
        f"each subject's own level: the mean of its values in the runs of the baseline ({criterion.source}), of which "
        f"the same subject's differ by {spread:.2%} (one standard deviation)",
        f"{'floor' if higher else 'at most'} = that level {'less' if higher else 'and'} what an unchanged site passes "
        "in one of a hundred runs, of all figures together, and 3 % at least",
    )
    return Bound(
        metric=criterion.metric or criterion.id,
        unit=criterion.unit or "",
        floor=level.bound if higher else None,
        maximum=None if higher else level.bound,
        derivation=lines,
        source=criterion.source,
    )
