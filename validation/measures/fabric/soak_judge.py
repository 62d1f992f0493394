"""Judging the traffic beside a burn-in: no session lost, no link error, and the GPUs under load meanwhile. Pure."""

from __future__ import annotations

import statistics
from datetime import datetime

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import subject_of
from validation.measures.fabric.soak_facts import SoakFabricFacts
from validation.measures.rdma.counters import changes, gaps, growth, of_links, of_loss
from validation.model import Judgement, Measurement, Result
from validation.rules.criterion import Criterion

AT_ONCE = 0.8
"""Share of the time of the traffic in which both nodes' burn-ins ran. Project default: these take a while to begin."""
OWN_ERRORS = frozenset({"rx_errors", "tx_errors", "rx_crc_errors"})
"""Counters of the interface itself (Linux, Documentation/ABI/testing/sysfs-class-net-statistics)."""


@method("burn-fabric", "sessions and link counters of a port's traffic beside the burn-in", counts="ports")
def judge_soak_fabric(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each port that sent."""
    return [_port(case, criterion, m) for m in case.serving(criterion)]


def _port(case: Case, criterion: Criterion, m: Measurement) -> Judgement:
    subject, ids = subject_of(m), [m.id]
    facts = facts_for(case, criterion, subject, m.id, SoakFabricFacts, None)
    if isinstance(facts, Judgement):
        return facts
    wrong = (
        [f"{len(facts.lost)} of {number_of(len(facts.sessions), 'session')} failed, {_first(facts)}"]
        if facts.lost
        else []
    )
    bad = growth(facts.before, facts.after, lambda name: of_links(name) or name in OWN_ERRORS)
    wrong += [str(change) for change in bad]
    flaps = [c for c in changes(facts.before, facts.after) if c.name == "carrier_changes" and c.by > 0]
    wrong += [f"the link went down and up: {change}" for change in flaps]
    rates = [one.gbps for one in facts.sessions if not one.error]
    shown = f"{facts.bytes / 1e9:.4g} GB in {facts.took_s / 60:.1f} minutes by {facts.tool}"
    if rates:
        part = max(1, len(rates) // 4)
        begin, end = statistics.median(rates[:part]), statistics.median(rates[-part:])
        shown += f", {begin:.4g} Gbit/s in the first quarter and {end:.4g} in the last (least {min(rates):.4g})"
    lost = [str(change) for change in growth(facts.before, facts.after, of_loss)]
    shown += f"; {', '.join(lost)}" if lost else ""
    if wrong:
        return judgement(criterion, subject, "fail", "not-working", f"{'; '.join(wrong)}; {shown}", ids, text=shown)
    if "carrier_changes" not in facts.before or "carrier_changes" not in facts.after:
        why = f"the interface of {m.endpoints[0]} does not count how often its link went down; {shown}"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids, text=shown)
    if fell := gaps(facts.before, facts.after, {}):
        return judgement(criterion, subject, "not-measured", "missing-metric", f"{fell[0]}; {shown}", ids, text=shown)
    if idle := _idle(case, m):
        return judgement(criterion, subject, "not-measured", "missing-result", f"{idle}; {shown}", ids, text=shown)
    return judgement(criterion, subject, "pass", "within-bounds", shown, ids, text=shown)


def _first(facts: SoakFabricFacts) -> str:
    one = facts.lost[0]
    return f"the first after {one.at_s / 60:.1f} minutes: {one.error}"


def _idle(case: Case, m: Measurement) -> str:
    """Why the node that sent was not under load at the same time, in words; "" where it was."""
    mine, burn = case.usable(m.id), case.usable(f"burn-in.{m.nodes[0]}")
    if burn is None:
        return f"{m.nodes[0]} has no burn-in that came to its end, and so its fabric was loaded alone"
    if mine is None:
        return f"{m.id} has no result"
    (begin, end), (first, last) = _span(mine), _span(burn)
    share = (min(end, last) - max(begin, first)) / max(end - begin, 1e-9)
    if share >= AT_ONCE:
        return ""
    return f"{m.nodes[0]} was under load in {max(share, 0):.0%} of the time alone"


def _span(result: Result) -> tuple[float, float]:
    p = result.provenance
    return datetime.fromisoformat(p.started).timestamp(), datetime.fromisoformat(p.ended).timestamp()
