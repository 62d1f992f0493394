"""Which measurements need another attempt: those that could not decide, and suspects before they are named. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from validation.analysis.denial import loss_of
from validation.analysis.localise import Pair, localise
from validation.judging.case import Case
from validation.judging.methods import METHODS
from validation.model import Judgement, Measurement
from validation.rules.criterion import Criterion

MAX_ATTEMPTS = 4
"""Attempts of one measurement at most. Project default."""

CONFIRMED = 2
"""Attempts after which a suspect is named. Project default."""

PER_PORT = 4
"""Pairs of one suspect port and direction that are measured again: enough to tell it from its partners. Project
default."""

BUDGET_SHARE, BUDGET_LEAST_S = 1.0, 60.0
"""What further attempts of a suite may take: this share of its planned time, and at least so many seconds. Project
default."""


def budget_s(measurements: Iterable[Measurement], rounds: Iterable[Sequence[str]]) -> float:
    """Seconds that further attempts of these measurements of one suite may take."""
    took = {m.id: m.estimated_s for m in measurements}
    planned = sum(max((took[id_] for id_ in ids if id_ in took), default=0.0) for ids in rounds)
    return max(BUDGET_LEAST_S, BUDGET_SHARE * planned)


def again(case: Case, suite: str) -> list[list[str]]:
    """Rounds of measurements of a suite that need another attempt; empty when all is decided, or the budget is spent.

    In a lab one measurement at a time: its nodes share one host, and would disturb each other. Elsewhere as many as
    have no node in common.
    """
    mine = [m for m in case.plan.measurements if m.suite == suite]
    wanted: dict[str, None] = {}
    for criterion in case.criteria:
        if METHODS[criterion.method].figures and criterion.kind is not None and case.applies(criterion):
            judged = METHODS[criterion.method].judge(case, criterion)
            wanted |= dict.fromkeys([*_suspects(case, criterion, judged), *_undecided(case, judged)])
    chosen = [case.plan.measurement(id_) for id_ in wanted]
    chosen = [m for m in chosen if m.suite == suite]
    rounds = _rounds(chosen, alone=case.topology.lab_link is not None)
    left = budget_s(mine, case.plan.rounds) - _spent(case, mine)
    kept = []
    for ids in rounds:
        left -= max(case.plan.measurement(id_).estimated_s for id_ in ids)
        if left < 0:
            break
        kept.append(ids)
    return kept


def _taken(case: Case, id_: str) -> int:
    return len(case.attempts.get(id_, ()))


def _spent(case: Case, measurements: Sequence[Measurement]) -> float:
    """Seconds that further attempts took: in a lab all of them, elsewhere those of the busiest node."""
    by_node: dict[str, float] = {}
    for m in measurements:
        seconds = (max(1, _taken(case, m.id)) - 1) * m.estimated_s
        for node in [""] if case.topology.lab_link is not None else m.nodes:
            by_node[node] = by_node.get(node, 0.0) + seconds
    return max(by_node.values(), default=0.0)


def _undecided(case: Case, judged: Iterable[Judgement]) -> list[str]:
    """Measurements that were too noisy; and those that came to no end on machines that were denied something."""
    found = []
    for judgement in judged:
        if judgement.verdict != "not-measured":
            continue
        for id_ in judgement.evidence:
            results = case.attempts.get(id_, ())
            noisy = judgement.reason_code == "too-noisy"
            cut = not case.tries(id_) and any(
                r.status in ("failed", "timeout", "unparseable") and loss_of([r]).disturbs for r in results
            )
            if (noisy or cut) and 0 < len(results) < MAX_ATTEMPTS:
                found.append(id_)
    return found


def _suspects(case: Case, criterion: Criterion, judged: Sequence[Judgement]) -> list[str]:
    """Measurements that failed and were not yet confirmed; of pairs those with partners known to be good come first."""
    failed = [j for j in judged if j.verdict == "fail"]
    if criterion.scope == "pair":
        failed = _against_good(failed, judged)
    found = []
    for judgement in failed:
        for id_ in judgement.evidence:
            if 0 < _taken(case, id_) < CONFIRMED:
                found.append(id_)
    return found


def _against_good(failed: Sequence[Judgement], judged: Iterable[Judgement]) -> list[Judgement]:
    matrix: dict[Pair, bool] = {}
    for judgement in judged:
        if judgement.verdict in ("pass", "fail"):
            pair = _pair(judgement)
            matrix[pair] = matrix.get(pair, False) or judgement.verdict == "fail"
    sick = {end for suspect in localise(matrix) if suspect.kind == "port" for end in suspect.subject}
    count: dict[tuple[str, str], int] = {}
    kept = []
    for judgement in sorted(failed, key=lambda j: set(_pair(j)) <= sick):
        a, b = _pair(judgement)
        ends = [key for key in ((a, "sending"), (b, "receiving")) if key[0] in sick]
        if ends and all(count.get(key, 0) >= PER_PORT for key in ends):
            continue
        for key in ends:
            count[key] = count.get(key, 0) + 1
        kept.append(judgement)
    return kept


def _pair(judgement: Judgement) -> Pair:
    source, destination = judgement.about.ends
    return str(source), str(destination)


def _rounds(measurements: Iterable[Measurement], alone: bool) -> list[list[str]]:
    rounds: list[tuple[list[str], set[str]]] = []
    for m in measurements:
        free = next((r for r in rounds if not alone and not r[1] & set(m.nodes)), None)
        if free is None:
            rounds.append(([m.id], set(m.nodes)))
        else:
            free[0].append(m.id)
            free[1].update(m.nodes)
    return [ids for ids, _ in rounds]


def on_nodes(rounds: Iterable[Sequence[str]], case: Case, nodes: Collection[str]) -> list[list[str]]:
    """The part of some rounds that takes place on these nodes alone."""
    left = [[id_ for id_ in ids if set(case.plan.measurement(id_).nodes) <= set(nodes)] for ids in rounds]
    return [ids for ids in left if ids]
