"""Judging storage: rates against what was ordered or what the link carries, writes and locks between nodes. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from validation.analysis.stats import Summary, summarize
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import against
from validation.measures.storage.facts import StorageFacts, StorageSharedFacts, StorageTogetherFacts, StorageWatcher
from validation.measures.storage.parse import METRICS, late, whole
from validation.measures.storage.plan import declared
from validation.model import Bound, Judgement, Measurement, ReasonCode, Storage, Subject, VerdictName
from validation.rules.criterion import Criterion

#: Operation, what of the inventory orders it, and whose link carries it, by the metric of a criterion.
ORDERS = {
    "storage_read_gb_s": ("read", "read_gb_s", "link_gbps"),
    "storage_write_gb_s": ("write", "write_gb_s", "link_gbps"),
    "storage_read_iops": ("randread", "read_iops", ""),
    "storage_write_iops": ("randwrite", "write_iops", ""),
    "storage_gds_read_gb_s": ("read", "gds_read_gb_s", "link_gbps"),
    "storage_gds_write_gb_s": ("write", "gds_write_gb_s", "link_gbps"),
    "storage_all_read_gb_s": ("read", "all_read_gb_s", "all_link_gbps"),
    "storage_all_write_gb_s": ("write", "all_write_gb_s", "all_link_gbps"),
}
ODD = 0.7  # of the median of the other nodes: worth a word. Project default
OF_OTHERS = 2  # at least so many others make a median


def _about(m: Measurement) -> Subject:
    name = str(m.params["name"])
    return Subject.node(m.nodes[0], name) if len(m.nodes) == 1 else Subject(kind="cluster", op=name)


def bound_for(criterion: Criterion, storage: Storage) -> Bound | None:
    """What holds of a storage: the order's figure, or a share of its link's rate; None where neither is declared."""
    _, order, link = ORDERS[criterion.metric or ""]
    ordered = getattr(storage, order)
    rate = getattr(storage, link) if link else None
    unit = criterion.unit or ""
    ceiling = rate / 8 if rate is not None else None
    lines = []
    if ceiling is not None:
        lines.append(f"ceiling = {rate:g} Gbit/s / 8 = {ceiling:.4g} GB/s: {link} of {storage.name} in the inventory")
    if ordered is not None:
        floor, said = float(ordered), f"floor = {ordered:g} {unit}: {order} of {storage.name} in the inventory"
    elif ceiling is not None:
        share = criterion.bound.value or 0.0
        floor, said = share * ceiling, f"floor = {share:g} x {ceiling:.4g} = {share * ceiling:.4g} GB/s (provisional)"
    else:
        return None
    return Bound(
        metric=criterion.metric or "", unit=unit, floor=floor, ceiling=ceiling, derivation=(*lines, said),
        source=criterion.source,
    )  # fmt: skip


def _summary(value: float, intervals: Sequence[float]) -> Summary:
    """The rate of the whole run, with the interval of the median of its half seconds, which it lies in."""
    found = summarize(list(intervals)) if intervals else None
    if found is None:
        return Summary(value, 0.0, value, value, 1)
    return Summary(value, found.mad, min(value, found.low), max(value, found.high), found.count)


def said(criterion: Criterion, m: Measurement, storage: Storage, summary: Summary, text: str) -> Judgement:
    """A figure against its bound, or recorded where the inventory declares none."""
    bound = bound_for(criterion, storage)
    if bound is None:
        _, order, link = ORDERS[criterion.metric or ""]
        wanted = f"{order} or {link}" if link else order
        why = f"recorded, not judged: the inventory declares no {wanted} of {storage.name}; {text}"
        return judgement(criterion, _about(m), "not-applicable", "reported", why, [m.id], summary=summary, text=text)
    found = against(criterion, _about(m), [m.id], summary, bound)
    return found.model_copy(update={"text": text, "reason": f"{found.reason}; {text}"})


@method("storage-rate", "the rate of a storage against the order or its link; recorded where neither is declared",
        figures=True)  # fmt: skip
def judge_rates(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each node and storage, of all nodes together one for each storage."""
    served = case.serving(criterion)
    if any(m.kind == "storage-together" for m in served):
        return [_together(case, criterion, m) for m in served]
    found: dict[str, StorageFacts | Judgement] = {
        m.id: facts_for(case, criterion, _about(m), m.id, StorageFacts, None) for m in served
    }
    return [_alone(case, criterion, m, found) for m in served]


def _value(name: str, facts: StorageFacts, unit: str) -> float | None:
    op = facts.node.op(name)
    return None if op is None else op.gb_s if unit == "GB/s" else op.iops


def _alone(case: Case, criterion: Criterion, m: Measurement, every: dict[str, StorageFacts | Judgement]) -> Judgement:
    facts, unit = every[m.id], criterion.unit or ""
    if isinstance(facts, Judgement):
        return facts
    name = ORDERS[criterion.metric or ""][0]
    op, value = facts.node.op(name), _value(name, facts, unit)
    if op is None or value is None:
        why = facts.node.why_not(name)
        return judgement(criterion, _about(m), "not-measured", "missing-metric", why, [m.id])
    text = f"{value:.4g} {unit}, 99 % of requests within {op.p99_us / 1000:.3g} ms"
    one = facts.node.op(f"one-{name}")
    if one is not None:
        text += f", {one.gb_s:.4g} GB/s in one stream"
    others = [
        rate
        for id_, other in every.items()
        if id_ != m.id and isinstance(other, StorageFacts) and other.storage == facts.storage
        and (rate := _value(name, other, unit)) is not None
    ]  # fmt: skip
    if len(others) >= OF_OTHERS and value < ODD * statistics.median(others):
        text += f"; {value / statistics.median(others):.2g} of what the other nodes reach"
    samples = case.latest[m.id].values(METRICS[name][0])
    storage = declared(case.topology.node(m.nodes[0]), facts.storage)
    return said(criterion, m, storage, _summary(value, samples), text)


def _together(case: Case, criterion: Criterion, m: Measurement) -> Judgement:
    facts = facts_for(case, criterion, _about(m), m.id, StorageTogetherFacts, None)
    if isinstance(facts, Judgement):
        return facts
    name, unit = ORDERS[criterion.metric or ""][0], criterion.unit or ""
    ops = [(node, op) for node in facts.nodes if (op := node.op(name)) is not None]
    missing = [node.why_not(name) for node in facts.nodes if node.op(name) is None]
    total = whole([op for _, op in ops], unit)
    if missing or late(facts, name):
        why = "; ".join(missing[:4]) or f"{', '.join(late(facts, name)[:4])} did not begin with the others"
        rest = f"; {number_of(len(ops), 'node')} together {total:.4g} {unit}" if ops else ""
        return judgement(criterion, _about(m), "not-measured", "missing-metric", why + rest, [m.id])
    least, most = (pick(ops, key=lambda one: one[1].bytes_per_s) for pick in (min, max))
    text = f"{total:.4g} {unit} of {number_of(len(ops), 'node')}"
    text += f", from {least[1].gb_s:.4g} GB/s at {least[0].node} to {most[1].gb_s:.4g} at {most[0].node}"
    samples = case.latest[m.id].values(criterion.metric or "")
    return said(criterion, m, declared(case.topology.node(m.nodes[0]), facts.storage), _summary(total, samples), text)


@method("storage-files", "how fast small files are made, opened, listed and removed", figures=True)
def judge_files(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each node and storage."""
    judged = []
    for m in case.serving(criterion):
        facts = facts_for(case, criterion, _about(m), m.id, StorageFacts, None)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        create = facts.node.phase("create")
        if create is None:
            why = f"{facts.node.node}: {facts.node.unmeasured or 'small files were not measured'}"
            judged.append(judgement(criterion, _about(m), "not-measured", "missing-metric", why, [m.id]))
            continue
        rates = ", ".join(f"{one.phase} {one.per_s:.4g}" for one in facts.node.files)
        text = f"files a second by one process: {rates}; 1,000,000 would be made in {create.million_s:.4g} s (derived)"
        value = create.per_s
        summary = Summary(value, 0.0, value, value, 1)
        storage = declared(case.topology.node(m.nodes[0]), facts.storage)
        if storage.creates_per_s is None:
            why = f"recorded, not judged: the inventory declares no creates_per_s of {storage.name}; {text}"
            judged.append(
                judgement(criterion, _about(m), "not-applicable", "reported", why, [m.id], summary=summary, text=text)
            )
            continue
        line = f"floor = {storage.creates_per_s:g} 1/s: creates_per_s of {storage.name} in the inventory"
        bound = Bound(metric=criterion.metric or "", unit="1/s", floor=storage.creates_per_s, derivation=(line,),
                      source=criterion.source)  # fmt: skip
        found = against(criterion, _about(m), [m.id], summary, bound)
        judged.append(found.model_copy(update={"text": text, "reason": f"{found.reason}; {text}"}))
    return judged


def _strangers(facts: StorageSharedFacts) -> tuple[list[str], list[str]]:
    """What is wrong with who met whom, and whom nothing is known of."""
    unknown = [f"{one.node}: {one.unmeasured}" for one in facts.nodes if one.unmeasured]
    well = [one for one in facts.nodes if not one.unmeasured]
    names = {one.node for one in well}
    apart = [
        f"{one.node} does not see what {', '.join(sorted(gone)[:3])} {'writes' if len(gone) == 1 else 'write'}"
        for one in well
        if (gone := names - set(one.present))
    ]
    return apart, unknown


@method("storage-seen", "until every node has read what one wrote, against the bound")
def judge_seen(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each storage that nodes share."""
    return [_seen(case, criterion, m) for m in case.serving(criterion)]


def _seen(case: Case, criterion: Criterion, m: Measurement) -> Judgement:
    facts = facts_for(case, criterion, _about(m), m.id, StorageSharedFacts, None)
    if isinstance(facts, Judgement):
        return facts
    most = criterion.bound.value or 0.0
    lines = (f"at most {most:g} s from the end of a write to the answer of each node that has read it",)
    bound = Bound(metric=criterion.metric or "", unit="s", maximum=most, derivation=lines, source=criterion.source)
    apart, unknown = _strangers(facts)
    content = [one for one in facts.writes if one.what == "content"]
    times = [(seconds, one.writer, reader) for one in content for reader, seconds in one.seconds.items()]
    unseen = [f"{', '.join(one.unseen[:3])} did not read what {one.writer} wrote" for one in content if one.unseen]

    def said(verdict: VerdictName, code: ReasonCode, why: str) -> Judgement:
        summary = None
        if times:
            every = [one[0] for one in times]
            summary = Summary(max(every), 0.0, min(every), max(every), len(every))
        return judgement(criterion, _about(m), verdict, code, why, [m.id], summary=summary, bound=bound)

    if apart or unseen:
        return said("fail", "not-working", "; ".join([*apart, *unseen][:4]))
    if unknown or not times:
        return said("not-measured", "missing-metric", "; ".join(unknown[:4]) or "no node met another")
    slowest, writer, reader = max(times)
    shown = f"{slowest:.3g} s there and back at most, {writer} to {reader}, of {number_of(len(times), 'reading')}"
    if slowest > 2 * most:  # one of the two ways took more than half of it
        return said("fail", "above-maximum", f"above the {most:g} s allowed: {shown}")
    if slowest > most:
        return said("not-measured", "too-noisy", f"there and back, of which one way may be within {most:g} s: {shown}")
    new = [one for one in facts.writes if one.what == "new"]
    hidden = sorted({reader for one in new for reader in one.unseen})
    slow = max((seconds for one in new for seconds in one.seconds.values()), default=0.0)
    if hidden or slow > most:
        words = f"not seen in 5 s by {', '.join(hidden[:3])}" if hidden else f"{slow:.3g} s"
        return said("pass", "remarked", f"{shown}; a new name that was looked for before: {words}")
    return said("pass", "within-bounds", f"{shown}; a new name {slow:.3g} s")


@method("storage-lock", "whether a lock of one node holds for the others, and counting under it loses nothing")
def judge_locks(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each storage that nodes share."""
    return [_locks(case, criterion, m) for m in case.serving(criterion)]


def _locks(case: Case, criterion: Criterion, m: Measurement) -> Judgement:
    facts = facts_for(case, criterion, _about(m), m.id, StorageSharedFacts, None)
    if isinstance(facts, Judgement):
        return facts
    apart, unknown = _strangers(facts)
    well = [one for one in facts.nodes if not one.unmeasured]
    wrong = [words for one in well for words in _wrong(one)]
    turns, totals = sum(one.done for one in well), {one.total for one in well}
    if not wrong and not unknown and not apart and totals != {turns}:
        wrong.append(f"{number_of(turns, 'turn')} under the lock were counted as {', '.join(map(str, sorted(totals)))}")
    if wrong:
        return judgement(criterion, _about(m), "fail", "not-working", "; ".join(wrong[:4]), [m.id])
    if apart or unknown or len(well) < OF_OTHERS:
        why = "; ".join([*unknown, *apart][:4]) or "no node met another"
        return judgement(criterion, _about(m), "not-measured", "missing-metric", why, [m.id])
    text = f"refused to {number_of(len(well) - 1, 'node')} while one held it, given after; {turns} of {turns} counted"
    return judgement(criterion, _about(m), "pass", "within-bounds", text, [m.id], text=text)


def _wrong(one: StorageWatcher) -> list[str]:
    found = []
    if one.holder not in ("", "taken"):
        found.append(f"{one.node} could not take the lock: {one.holder}")
    if one.meanwhile == "taken":
        found.append(f"{one.node} took the lock while another node held it")
    elif one.meanwhile not in ("", "refused"):
        found.append(f"{one.node} could not ask for the lock: {one.meanwhile}")
    if one.after not in ("", "taken"):
        found.append(f"{one.node} was not given the lock after it was let go: {one.after}")
    if one.fault:
        found.append(f"{one.node} did not get its turns: {one.fault}")
    return found
