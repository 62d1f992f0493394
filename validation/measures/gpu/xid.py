"""Judging the kernel log: Xids that came up during the run, each burst once, by the rules of xid_table.py."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from validation.base.counting import number_of, were
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.gpu.health import GpuHealthFacts
from validation.measures.gpu.health_judge import AFTER, first_readings
from validation.measures.gpu.kernel_log import KernelLog, XidLine
from validation.measures.gpu.xid_table import BURST_GAP_S, GRAVEST, SOURCE, Xid, meaning
from validation.model import Bound, Judgement, ReasonCode, VerdictName
from validation.rules.criterion import Criterion

Burst = tuple[XidLine, ...]


@method("xid", "Xids of the kernel log that came up between two readings")
def judge_xid(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node that has GPUs to look at. Where none has any, the criterion does not apply to this site."""
    bound = Bound(
        metric="xids",
        unit="",
        equal=criterion.bound.words,
        derivation=(SOURCE, f"lines of one device and number with less than {BURST_GAP_S:g} s between are one event"),
        source=criterion.source,
    )
    judged: list[Judgement] = []
    without: list[Judgement] = []
    for id_ in first_readings(case, criterion):
        name = case.plan.measurement(id_).nodes[0]
        after = f"{AFTER}.{name}"
        ids = (id_, after) if after in case.planned else (id_,)
        found = [facts_for(case, criterion, name, each, GpuHealthFacts, bound) for each in ids]
        gone = next((each for each in found if isinstance(each, Judgement)), None)
        if gone is not None:
            judged.append(gone)
            continue
        read = [each for each in found if isinstance(each, GpuHealthFacts)]
        verdict, code, why = judge_readings(case, read, bool(case.topology.node(name).gpus or read[0].gpus))
        text = "; ".join(_words(burst) for burst in bursts(read[-1].kernel_log.lines)) or None
        said = judgement(criterion, name, verdict, code, why, ids, text=text, bound=bound)
        (without if verdict == "not-applicable" else judged).append(said)
    return judged or without


def bursts(lines: Iterable[XidLine]) -> list[Burst]:
    """Lines of one device and number that come soon after each other."""

    def key(line: XidLine) -> tuple[str, str, int]:
        return line.kind, line.address, -1 if line.code is None else line.code

    found: list[Burst] = []
    for _, same in groupby(sorted(lines, key=lambda line: (*key(line), line.at_us)), key=key):
        burst: list[XidLine] = []
        for line in same:
            if burst and line.at_us - burst[-1].at_us > BURST_GAP_S * 1e6:
                found.append(tuple(burst))
                burst = []
            burst.append(line)
        found.append(tuple(burst))
    return sorted(found, key=lambda burst: burst[0].at_us)


def _row(burst: Burst) -> Xid:
    """What a burst means: the gravest of its lines, and of alike ones the last.

    An NVSwitch's driver adds lines without a word on the matter (`24007, Severity 0 Engine instance 44`, `24007, Data
    {...}`): beside one that has it they say nothing.
    """
    rows = [meaning(line.kind, line.code, line.words) for line in reversed(burst)]
    known = [row for row in rows if row.meaning != "unknown"]
    return min(known or rows, key=lambda row: GRAVEST.index(row.meaning))


def _words(burst: Burst) -> str:
    """`Xid 79 of 0000:3b:00.0 (the GPU has fallen off the bus), 3 lines`."""
    first = burst[0]
    name = "SXid" if first.kind == "sxid" else "Xid"
    what = "the loss" if first.kind == "lost" else name if first.code is None else f"{name} {first.code}"
    lines = f", {number_of(len(burst), 'line')}" if len(burst) > 1 else ""
    return f"{what} of {first.address or 'a device that the line does not name'} ({_row(burst).words}){lines}"


def _new(before: KernelLog, after: KernelLog) -> tuple[list[XidLine], str]:
    """Lines that came up between the two readings, and why some of them may not be known."""
    if before.boot != after.boot:
        return list(after.lines), "the node was restarted during the run: what came before that is not known"
    old = before.newest_us or 0
    found = [line for line in after.lines if line.at_us > old]
    if after.oldest_us is not None and after.oldest_us > old:
        return found, "the kernel wrote so much during the run that the begin of it is gone"
    return found, f"{number_of(after.dropped, 'more line')} {were(after.dropped)} left out" if after.dropped else ""


def judge_readings(case: Case, read: list[GpuHealthFacts], gpus: bool) -> tuple[VerdictName, ReasonCode, str]:
    """Of a node's readings, one or two."""
    missing: ReasonCode = "virtual" if case.virtual else "missing-metric"
    if not gpus and not any(each.gpus or each.lost or each.kernel_log.lines for each in read):
        return "not-applicable", "not-applicable", "no GPU in this node, and none declared"
    first = read[0].kernel_log
    new, gap = ([], "") if len(read) == 1 else _new(first, read[-1].kernel_log)
    old = f". Before the run: {'; '.join(map(_words, bursts(first.lines)))}" if first.lines else ""
    sorts = {sort: [b for b in bursts(new) if _row(b).meaning == sort] for sort in GRAVEST}
    wrong, told = [*sorts["replace"], *sorts["reset"]], [*sorts["application"], *sorts["ignore"]]
    if wrong:
        return "fail", "not-working", f"during the run {'; '.join(map(_words, wrong))}"
    unread = next((each.kernel_log.unread for each in read if each.kernel_log.unread), "")
    if unread:
        return "not-measured", missing, f"the kernel log was not read: {unread}"
    if len(read) == 1:
        return "not-measured", "not-selected", f"the kernel log was read once, nothing loaded the GPUs after it{old}"
    if sorts["unknown"]:
        return "not-measured", "no-bound", f"during the run {'; '.join(map(_words, sorts['unknown']))}"
    if gap:
        return "not-measured", missing, gap
    if read[0].emulated:
        return "not-measured", missing, f"no Xid, but the GPUs are emulated: no driver would write one{old}"
    some = f"during the run {'; '.join(map(_words, told))}, which is no fault of a GPU" if told else "no Xid in the run"
    return "pass", "within-bounds", some + old
