"""Judging what each node says of itself: one judgement each, and none where the criterion applies to others only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from validation.judging.case import Case, facts_for, judgement
from validation.model import Bound, Judgement, Node, ReasonCode, VerdictName
from validation.model.result import F
from validation.rules.criterion import Criterion


class Said(NamedTuple):
    """What is said of a node; `bound` where it is another than the criterion's of all nodes."""

    verdict: VerdictName
    code: ReasonCode
    why: str
    text: str | None = None
    bound: Bound | None = None


def on_each_node(
    case: Case, criterion: Criterion, kind: type[F], judge: Callable[[Node, F], Said], bound: Bound | None = None
) -> list[Judgement]:
    """Every node that was looked at. Where the criterion applies to none of them, all say so."""
    judged: list[Judgement] = []
    without: list[Judgement] = []
    for measurement in case.serving(criterion):
        node = case.topology.node(measurement.nodes[0])
        facts = facts_for(case, criterion, node.name, measurement.id, kind, bound)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        verdict, code, why, text, own = judge(node, facts)
        said = judgement(criterion, node.name, verdict, code, why, [measurement.id], text=text, bound=own or bound)
        (without if verdict == "not-applicable" else judged).append(said)
    return judged or without
