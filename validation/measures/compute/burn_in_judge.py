"""Judging a burn-in: every result right to the bit, no new event, no rate that sinks. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.compute.burn_in_facts import BurnDevice, BurnFacts
from validation.measures.gpu.health_judge import Seen, growth
from validation.measures.gpu.xid import judge_readings
from validation.model import Bound, Judgement, Measurement, ReasonCode, Subject
from validation.rules.criterion import Criterion

LEAST_WINDOWS = 12
"""Windows without which nobody can tell a begin from an end. Project default."""
PART = 4
"""The first and the last of so many parts of the time are compared. Project default."""
Judge = Callable[[Case, Criterion, Measurement, BurnFacts, Bound], Iterator[Judgement]]


def _each(case: Case, criterion: Criterion, judge: Judge) -> list[Judgement]:
    limit, lines = criterion.bound, (f"{criterion.bound.words} ({criterion.source})",)
    bound = Bound(
        metric=criterion.metric or "burn_in",
        unit=criterion.unit or "",
        floor=limit.value if limit.kind == "minimum" else None,
        maximum=limit.value if limit.kind == "maximum" else None,
        equal=limit.words if limit.kind == "exact" else None,
        derivation=lines,
        source=criterion.source,
    )
    found: list[Judgement] = []
    for m in case.serving(criterion):
        facts = facts_for(case, criterion, m.nodes[0], m.id, BurnFacts, bound)
        found += [facts] if isinstance(facts, Judgement) else judge(case, criterion, m, facts, bound)
    return found


@method("burn-exact", "comparisons and digests of each device through a burn-in", counts="devices")
def judge_burn_exact(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each device: no result that is not what it had to be. Emulated ones too: exact is exact."""
    return _each(case, criterion, _exact)


def _exact(case: Case, criterion: Criterion, m: Measurement, facts: BurnFacts, bound: Bound) -> Iterator[Judgement]:
    emulated = "; the GPUs are emulated" if facts.emulated else ""
    for device in facts.devices:
        about, wrong = Subject.node(m.nodes[0], device.words), float(device.wrong + sum(device.bad.values()))
        shown = Summary(wrong, 0.0, wrong, wrong, device.checks + device.products)
        total = f"{device.checks} results compared and {device.products} digests in {facts.seconds:.0f} s"
        if wrong:
            parts = [f"{device.wrong} unequal results"] if device.wrong else []
            which = ", ".join([*parts, *(f"{what} {times} times" for what, times in device.bad.items())])
            why = f"{_who(device)}: {which}, of {total}{emulated}"
            yield judgement(criterion, about, "fail", "not-equal", why, (m.id,), summary=shown, bound=bound)
        elif device.fault:
            why = f"{_who(device)} did not come to its end: {device.fault}; {total}"
            yield judgement(criterion, about, "fail", "not-working", why, (m.id,), bound=bound)
        elif not device.products:
            why = f"{_who(device)}: no digest: {'; '.join(device.unproved.values()) or 'none was asked for'}"
            yield judgement(criterion, about, "not-measured", "missing-metric", why, (m.id,), bound=bound)
        else:
            left = f"; not tried in {', '.join(device.unproved)}" if device.unproved else ""
            why = f"{_who(device)}: {device.load}: {total}, all right{left}{emulated}"
            yield judgement(criterion, about, "pass", "within-bounds", why, (m.id,), summary=shown, bound=bound)


def _who(device: BurnDevice) -> str:
    return ", ".join(filter(None, (device.words, device.name, device.address)))


@method("burn-rate", "rate of each device at the end of a burn-in over that at its begin", counts="devices")
def judge_burn_rate(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each device: its rate in the last part of the time over that in the first."""
    return _each(case, criterion, _rate)


def _rate(case: Case, criterion: Criterion, m: Measurement, facts: BurnFacts, bound: Bound) -> Iterator[Judgement]:
    for device in facts.devices:
        about, rates = Subject.node(m.nodes[0], device.words), device.rates[1:]  # in the first window clocks come up
        if device.fault:
            why = f"{_who(device)} did not come to its end: {device.fault}"
            yield judgement(criterion, about, "not-measured", "tool-failed", why, (m.id,), bound=bound)
            continue
        if device.device == "cpu":
            why = f"{_who(device)}: {statistics.median(device.rates):.4g} {device.unit}; processors, not judged"
            yield judgement(criterion, about, "not-applicable", "reported", why, (m.id,), bound=bound)
            continue
        if len(rates) < LEAST_WINDOWS:
            code: ReasonCode = "virtual" if case.virtual else "missing-metric"
            why = f"{_who(device)}: {len(rates)} windows of {facts.window_s:g} s, {LEAST_WINDOWS} are needed"
            yield judgement(criterion, about, "not-measured", code, why, (m.id,), bound=bound)
            continue
        part = max(1, len(rates) // PART)
        begin, end = statistics.median(rates[:part]), statistics.median(rates[-part:])
        ratio = end / begin
        shown = Summary(ratio, 0.0, ratio, ratio, len(rates))
        beside = f"; {device.watch.words}" if device.watch is not None and device.watch.words else ""
        why = f"{_who(device)}: {end:.4g} {device.unit} at the end, {ratio:.1%} of the {begin:.4g} at the begin{beside}"
        if nothing := case.gpu_proves_nothing(facts.emulated):
            why += f"; {nothing}"
            yield judgement(criterion, about, "not-measured", "virtual", why, (m.id,), summary=shown, bound=bound)
        elif bound.floor is not None and ratio < bound.floor:
            yield judgement(criterion, about, "fail", "below-floor", why, (m.id,), summary=shown, bound=bound)
        else:
            yield judgement(criterion, about, "pass", "within-bounds", why, (m.id,), summary=shown, bound=bound)


@method("burn-events", "errors that GPUs and kernel log count, before and after a burn-in")
def judge_burn_events(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each node: what GPUs and kernel log count of errors, before and after."""
    return _each(case, criterion, _events)


def _events(case: Case, criterion: Criterion, m: Measurement, facts: BurnFacts, bound: Bound) -> Iterator[Judgement]:
    name, first, last = m.nodes[0], facts.before, facts.after
    missing: ReasonCode = "virtual" if case.virtual else "missing-metric"
    if not facts.gpus:
        why = "no GPU was loaded"
        yield judgement(criterion, name, "not-applicable", "not-applicable", why, (m.id,), bound=bound)
        return
    wrong = [*(lost for lost in last.lost if lost not in first.lost), *([last.unread] if last.unread else [])]
    grown, unknown = growth(Seen(case.topology.node(name), (m.id,), first, last, facts.took_s / 60))
    verdict, code, why = judge_readings(case, [first, last], True)
    wrong += grown + ([why] if verdict == "fail" else [])
    for gpu in last.gpus:
        if gpu.ecc and gpu.ecc_uncorrected is None:
            unknown.append(f"{gpu.words} does not say its memory errors")
    if wrong:
        yield judgement(criterion, name, "fail", "not-working", "; ".join(wrong), (m.id,), bound=bound)
    elif unknown:
        yield judgement(criterion, name, "not-measured", missing, "; ".join(unknown), (m.id,), bound=bound)
    elif verdict != "pass":
        yield judgement(criterion, name, "not-measured", code, why, (m.id,), bound=bound)
    else:
        why = f"{number_of(len(last.gpus), 'GPU')} in {facts.took_s / 60:.1f} minutes: no counter grew, {why}"
        yield judgement(criterion, name, "pass", "within-bounds", why, (m.id,), bound=bound)
