"""Judging whether a site is as it was to be built: its checks, and what site.yml would change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.asbuilt.facts import AsBuiltFacts, CheckOutcome, ConvergedFacts
from validation.model import Bound, Judgement
from validation.rules.criterion import Criterion

F = TypeVar("F", AsBuiltFacts, ConvergedFacts)
_NAMED = 3
"""How many checks or tasks stand in the words of a judgement; all of them stand in the facts. Project default."""


@method("as-built", "the as-built checks of a node, as the plan lists them")
def judge_as_built(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node: all its checks passed, but for those that the inventory leaves it out of."""
    bound = Bound(
        metric="checks_not_passed",
        unit="count",
        maximum=0,
        derivation=("the checks of validation/asbuilt/ that concern the node, as the plan lists them",),
        source=criterion.source,
    )
    return _each_node(case, criterion, bound, AsBuiltFacts, _as_built)


def _each_node(
    case: Case,
    criterion: Criterion,
    bound: Bound,
    form: type[F],
    judge: Callable[[Criterion, F, str, str, Bound], Judgement],
) -> list[Judgement]:
    """Every node of every measurement that serves the criterion, by what the measurement found out."""
    judged = []
    for measurement in case.serving(criterion):
        for node in measurement.nodes:
            found = facts_for(case, criterion, node, measurement.id, form, bound)
            if not isinstance(found, Judgement):
                found = judge(criterion, found, node, measurement.id, bound)
            judged.append(found)
    return judged


def _as_built(criterion: Criterion, facts: AsBuiltFacts, node: str, id_: str, bound: Bound) -> Judgement:
    passed, failed, not_run, beside = map(facts.of, ("passed", "failed", "not-run", "not-applicable"))
    counted = (f"{len(passed)} passed", f"{len(failed)} failed", f"{len(not_run)} not run")
    text = ", ".join(counted) + (f", {len(beside)} not applicable" if beside else "")
    asked = len(facts.checks) - len(beside)

    if failed:
        why = f"{len(failed)} of {asked} checks failed: {_named(failed)}"
        return judgement(
            criterion, node, "fail", "not-equal", why, [id_], summary=_count(len(failed), asked), text=text, bound=bound
        )
    if not_run or not passed:
        why = f"{len(not_run)} of {asked} checks were not run: {_named(not_run)}" if not_run else "no check was run"
        return judgement(criterion, node, "not-measured", "missing-metric", why, [id_], text=text, bound=bound)
    why = f"all {asked} checks passed" + (f"; {len(beside)} do not concern it" if beside else "")
    return judgement(
        criterion, node, "pass", "within-bounds", why, [id_], summary=_count(0, asked), text=text, bound=bound
    )


def _count(value: int, of: int) -> Summary:
    """A number that was counted: it has no interval."""
    return Summary(median=value, mad=0.0, low=value, high=value, count=of)


def _named(checks: Sequence[CheckOutcome]) -> str:
    if len(checks) > 1 and checks[0].words and len({check.words for check in checks}) == 1:
        return checks[0].words  # of a node that was not reached
    said = "; ".join(f"{check.name}: {check.words}" if check.words else check.name for check in checks[:_NAMED])
    return said + (f"; and {len(checks) - _NAMED} more" if len(checks) > _NAMED else "")


@method("converged", "what site.yml in check mode would change on a node")
def judge_converged(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node: site.yml in check mode would change nothing."""
    bound = Bound(
        metric="changed_tasks",
        unit="count",
        maximum=0,
        derivation=("tasks that site.yml in check mode says it would change on the node",),
        source=criterion.source,
    )
    return _each_node(case, criterion, bound, ConvergedFacts, _converged)


def _converged(criterion: Criterion, facts: ConvergedFacts, node: str, id_: str, bound: Bound) -> Judgement:
    found = facts.node(node)
    if found is None or found.outcome in ("unreachable", "not-finished"):
        why = "nothing was said of it" if found is None else f"{found.outcome}: {found.failure}".rstrip(": ")
        return judgement(criterion, node, "not-measured", "missing-metric", why, [id_], bound=bound)
    text = f"{found.changed} of {number_of(found.ok, 'task')} would change something ({facts.version})"
    if found.outcome == "failed":
        why = f"site.yml in check mode failed at {found.failure}"
        return judgement(criterion, node, "fail", "not-working", why, [id_], text=text, bound=bound)
    summary = _count(found.changed, found.ok)
    if found.changed:
        named = "; ".join(found.tasks[:_NAMED])
        more = f"; and {found.changed - _NAMED} more" if found.changed > _NAMED else ""
        why = f"site.yml would change {found.changed}: {named}{more}"
        return judgement(criterion, node, "fail", "not-equal", why, [id_], summary=summary, text=text, bound=bound)
    why = f"site.yml would change nothing in {number_of(found.ok, 'task')}"
    return judgement(criterion, node, "pass", "within-bounds", why, [id_], summary=summary, text=text, bound=bound)
