"""Judging agreement: our copies against those that NVIDIA's own tools printed on the same node, tool by tool."""

from __future__ import annotations

from typing import NamedTuple

from validation.analysis.stats import Summary, summarize
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.gpu.copies_facts import GpuCopyFacts
from validation.measures.gpu.copies_judge import without_gpus
from validation.measures.gpu.pairs import SAME
from validation.measures.gpu.tools import GpuTool, GpuToolsFacts, ToolCell
from validation.model import Bound, Judgement, Measurement, Subject
from validation.rules.criterion import Criterion

AGREEMENT = 0.02
"""Difference from which on it is worth a remark: the same copy engine over the same link carries the same. Project
default."""
SHOWN = 4
"""Remarks that a reason tells; all figures stand in the measurement's facts."""


class Beside(NamedTuple):
    """One copy by both: in words, ours, theirs; `judged` False where the same copy may well take another way."""

    words: str
    ours: float
    theirs: float
    judged: bool = True

    @property
    def off(self) -> float:
        """By what share of ours theirs differs."""
        return self.theirs / self.ours - 1

    def said(self, tool: str) -> str:
        """`H to GPU 0: ours 12.3, nvbandwidth 11.8 GB/s (-4.1%)`."""
        return f"{self.words}: ours {self.ours:.4g}, {tool} {self.theirs:.4g} GB/s ({self.off:+.1%})"


@method("gpu-agree", "our copies beside those of NVIDIA's tools on the same node", figures=True, counts="tools")
def judge_gpu_agree(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each tool that a node has; where it has none, that."""
    found = without_gpus(case, criterion)
    for m in case.serving(criterion):
        node = m.nodes[0]
        theirs = facts_for(case, criterion, node, m.id, GpuToolsFacts, None)
        if isinstance(theirs, Judgement):
            found.append(theirs)
            continue
        if theirs.why:
            code = "virtual" if theirs.emulated else "no-bound"
            found.append(judgement(criterion, node, "not-measured", code, theirs.why, (m.id,)))  # type: ignore[arg-type]
            continue
        ours = _ours(case, criterion, m)
        if isinstance(ours, Judgement):
            found.append(ours)
            continue
        there = [tool for tool in theirs.tools if tool.path]
        if not there:
            why = f"neither {' nor '.join(tool.name for tool in theirs.tools)} is installed on this node"
            found.append(judgement(criterion, node, "not-measured", "no-bound", why, (m.id,)))
        found += [_tool(case, criterion, m, ours, tool) for tool in there]
    return found


def _ours(case: Case, criterion: Criterion, m: Measurement) -> GpuCopyFacts | Judgement:
    """Our copies of the same node."""
    node = m.nodes[0]
    mine = [one.id for one in case.plan.measurements if one.kind == "gpu-copies" and one.nodes[0] == node]
    if not mine:
        why = "our own copies are not part of this run, and there is nothing to compare with"
        return judgement(criterion, node, "not-measured", "missing-result", why, (m.id,))
    return facts_for(case, criterion, node, mine[0], GpuCopyFacts, None)


def compared(ours: GpuCopyFacts, tool: GpuTool) -> tuple[list[Beside], list[str]]:
    """Every copy that both have; in words what only one of them has, or does otherwise."""
    places = {tool.place(number, gpu.address): number for number, gpu in enumerate(ours.gpus)}
    places.pop(None, None)
    both, remarks = [], list(tool.gaps)
    for cell in tool.cells:
        ends = [end if end is None else places.get(end, -1) for end in (cell.source, cell.target)]
        if -1 in ends:
            remarks.append(f"{cell.words} of {tool.name} is a GPU that our copies have not")
            continue
        memory = "pinned" if cell.what in ("h2d", "d2h") else ""
        copy = ours.copy_of(cell.what, ends[0], ends[1], memory, cell.access)
        if copy is None or not copy.gb_s:
            path = "with peer access" if cell.access else "without peer access" if cell.what == "peer" else ""
            mine = copy.words if copy is not None else cell.words
            remarks.append(f"{mine} {path}: only {tool.name} has a figure, {cell.gb_s:.4g} GB/s".replace(" :", ":"))
            continue
        words = copy.words + ("" if cell.what != "peer" else " by P2P" if cell.access else " through the host")
        judged = cell.what != "peer" or cell.access
        both.append(Beside(words, summarize(copy.gb_s).median, cell.gb_s, judged))
    return both, remarks + _bounced(tool)


def _bounced(tool: GpuTool) -> list[str]:
    """Pairs that are said to have peer access and are no faster for it."""
    rates = {(cell.source, cell.target, cell.access): cell.gb_s for cell in tool.cells if cell.what == "peer"}
    return [
        f"{_words(tool.cells, a, b)} by P2P: {rate:.4g} GB/s of {tool.name}, no faster than through the host"
        for (a, b, access), rate in rates.items()
        if access and rate < SAME * rates.get((a, b, False), 0.0)
    ]


def _words(cells: tuple[ToolCell, ...], source: int | None, target: int | None) -> str:
    return next(cell.words for cell in cells if (cell.source, cell.target) == (source, target))


def _tool(case: Case, criterion: Criterion, m: Measurement, ours: GpuCopyFacts, tool: GpuTool) -> Judgement:
    subject, ids = Subject.node(m.nodes[0], tool.name), [m.id]
    most = criterion.bound.value or AGREEMENT
    lines = (f"{criterion.bound.words} ({criterion.source})", f"a remark from {AGREEMENT:.0%} on")
    bound = Bound(metric="gpu_disagreement", unit="ratio", maximum=most, derivation=lines, source=criterion.source)
    if tool.trouble:
        return judgement(criterion, subject, "not-measured", "tool-failed", tool.trouble, ids, bound=bound)
    both, remarks = compared(ours, tool)
    held = [one for one in both if one.judged]
    if not held:
        why = "; ".join([f"{tool.name} and our copies have no figure in common", *remarks[:SHOWN]])
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids, bound=bound)
    worst = max(held, key=lambda one: abs(one.off))
    off = [one for one in sorted(both, key=lambda one: -abs(one.off)) if abs(one.off) > AGREEMENT]
    said = [one.said(tool.name) for one in off] + remarks
    more = f" and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
    version = f"{tool.name} {tool.version}".strip()
    why = f"{version}: {number_of(len(held), 'copy')} by both, the largest difference is {abs(worst.off):.1%}"
    why += f": {'; '.join(said[:SHOWN])}{more}" if said else ""
    summary = Summary(abs(worst.off), 0.0, abs(worst.off), abs(worst.off), len(held))
    if nothing := case.gpu_proves_nothing(emulated=False):  # of emulated ones there is no tool
        words = f"{nothing}: {why}"
        return judgement(criterion, subject, "not-measured", "virtual", words, ids, summary=summary, bound=bound)
    if abs(worst.off) > most:
        return judgement(criterion, subject, "fail", "above-maximum", why, ids, summary=summary, bound=bound)
    code = "remarked" if said else "within-bounds"
    return judgement(criterion, subject, "pass", code, why, ids, summary=summary, bound=bound)  # type: ignore[arg-type]
