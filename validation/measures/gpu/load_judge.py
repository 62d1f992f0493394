"""Judging where a GPU's host memory lies, and all GPUs at once against the host ports that they hang on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from validation.analysis.stats import Summary, summarize
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import against
from validation.measures.gpu.copies_facts import CopyGpu
from validation.measures.gpu.copies_judge import link_of, without_gpus
from validation.measures.gpu.load import AllAtOnce, GpuLoadFacts, LoadGpu, NodeCopy
from validation.model import Bound, Judgement, Measurement, ReasonCode, Subject
from validation.rules.criterion import Criterion
from validation.rules.gpus import on_c2c, part_of, pcie_rate
from validation.rules.platform import QUANTITIES, undeclared

PLACED = 0.99
"""Share of the host memory that must lie in the node that was asked for."""
NAMES = {"h2d": "H to GPU {}", "d2h": "GPU {} to H"}


def _each(case: Case, criterion: Criterion) -> tuple[list[Judgement], list[tuple[Measurement, GpuLoadFacts]]]:
    """Judgements of nodes without facts, and the facts of the others."""
    said, found = without_gpus(case, criterion), []
    for m in case.serving(criterion):
        facts = facts_for(case, criterion, m.nodes[0], m.id, GpuLoadFacts, None)
        if isinstance(facts, Judgement):
            said.append(facts)
        elif not facts.gpus:
            why = f"this node shows no GPU: {facts.why}"
            said.append(judgement(criterion, m.nodes[0], "not-measured", "missing-metric", why, (m.id,)))
        else:
            found.append((m, facts))
    return said, found


def _unproved(case: Case, facts: GpuLoadFacts, node: str) -> tuple[str, ReasonCode] | None:
    """In words, why no rate of this node is judged; None where it is."""
    if why := case.gpu_proves_nothing(facts.emulated):
        return why, "virtual"
    if node in case.virtual_machines:
        return (
            "the node is a virtual machine, whose NUMA nodes and ports are what its hypervisor makes them",
            "no-bound",
        )
    return None


# --- memory of the right node, and of the wrong one


@method("gpu-affinity", "host memory of each GPU's NUMA node beside the farthest", figures=True, counts="GPUs")
def judge_gpu_affinity(case: Case, criterion: Criterion) -> list[Judgement]:
    """Each GPU: memory of its own NUMA node beside that of the farthest."""
    said, found = _each(case, criterion)
    for m, facts in found:
        said += [_affinity(case, criterion, m, facts, number) for number in range(len(facts.gpus))]
    return said


def _affinity(case: Case, criterion: Criterion, m: Measurement, facts: GpuLoadFacts, number: int) -> Judgement:
    gpu, node, ids = facts.gpus[number], m.nodes[0], [m.id]
    subject, floor = Subject.node(node, f"GPU {number}"), criterion.bound.value or 0.0
    cells = [cell for cell in facts.cells if cell.gpu == number]
    shown = "; ".join(_shown(facts, number, way) for way in NAMES)
    link = _link(gpu)
    lines = [f"{criterion.bound.words} ({criterion.source})", shown]
    lines += [f"its PCI Express link: {link[1]}"] if link else []
    bound = Bound(metric="gpu_numa_ratio", unit="ratio", floor=floor, derivation=tuple(lines), source=criterion.source)

    def unsaid(why: str, code: ReasonCode = "no-bound") -> Judgement:  # nothing to hold the rates against
        return judgement(criterion, subject, "not-measured", code, why, ids, bound=bound)

    faults = [f"{NAMES[c.what].format(number)}, node {c.node}: {c.fault}" for c in cells if c.fault]
    if faults:
        return unsaid("; ".join(faults), "tool-failed")
    if len(facts.nodes) == 1:
        why = f"the host has one NUMA node: {shown}"
        return judgement(criterion, subject, "not-applicable", "not-applicable", why, ids)
    if gpu.numa is None:
        return unsaid(f"the firmware reports no NUMA node of GPU {number}: {shown}")
    shares = _ratios(facts, number)
    if not shares:
        shut = ", ".join(str(n.number) for n in facts.nodes if not n.usable)
        return unsaid(f"this process may not run on NUMA node {shut}: {shown or 'nothing was measured'}")
    astray = next((c for c in cells if c.placed is None or c.placed < PLACED), None)
    if astray is not None:
        lies = "its place is unknown" if astray.placed is None else f"{astray.placed:.0%} of it lies there"
        return unsaid(f"memory of node {astray.node}: {lies}: {shown}")
    ratio = min(shares.values())
    summary = Summary(ratio, 0.0, ratio, ratio, len(shares))
    if unproved := _unproved(case, facts, node):
        return unsaid(f"{unproved[0]}: {shown}", unproved[1])
    if ratio < floor:
        why = f"{shown}: faster from the far node by {1 / ratio - 1:.1%}"
        return judgement(criterion, subject, "fail", "below-floor", why, ids, summary=summary, bound=bound)
    return judgement(criterion, subject, "pass", "within-bounds", shown, ids, summary=summary, bound=bound)


def _ratios(facts: GpuLoadFacts, number: int) -> dict[str, float]:
    """Of each direction the rate from the GPU's own node over that from the other."""
    found = {}
    for way in NAMES:
        by_node = facts.of(number, way)  # type: ignore[arg-type]
        own = by_node.pop(facts.gpus[number].numa or 0, None)
        if own is not None and own.gb_s and by_node:
            found[way] = _median(own) / max(_median(cell) for cell in by_node.values())
    return found


def _median(cell: NodeCopy) -> float:
    return summarize(cell.gb_s).median


def _shown(facts: GpuLoadFacts, number: int, way: str) -> str:
    """`H to GPU 2: 24.6 GB/s from node 1, its own, 17.1 from node 0 (-30.5%)`."""
    own = facts.gpus[number].numa
    by_node = {node: cell for node, cell in facts.of(number, way).items() if cell.gb_s}  # type: ignore[arg-type]
    first = own if own in by_node else min(by_node, default=None)
    if first is None:
        return f"{NAMES[way].format(number)}: nothing was measured"
    mine = _median(by_node[first])
    words = f"{NAMES[way].format(number)}: {mine:.4g} GB/s from node {first}" + (", its own" if first == own else "")
    for node, cell in by_node.items():
        if node != first:
            words += f", {_median(cell):.4g} from node {node} ({_median(cell) / mine - 1:+.1%})"
    return words


def _link(gpu: LoadGpu, alone: bool = False) -> tuple[float, str] | None:
    """As validation.measures.gpu.copies_judge.link_of; None where memory is reached beside PCI Express."""
    if on_c2c(gpu.name) or part_of(gpu.name):
        return None
    keys = ("name", "uuid", "address", "card", "generation", "lanes")
    known = CopyGpu(memory_bytes=0, near=True, **{key: getattr(gpu, key) for key in keys})
    return link_of(known, alone)


# --- all at once


class Branch(NamedTuple):
    """A part of the PCI Express tree: GPUs below one link, and the rate that it lets through, GB/s each way."""

    gpus: tuple[int, ...]
    rate: float
    words: str


def branches(gpus: Sequence[LoadGpu]) -> list[Branch] | None:
    """What each port of the host lets through; None where the way of a GPU is not known as a whole.

    Of each link the lesser of its own rate and what the links below it carry together.
    """
    ways: list[tuple[int, list[tuple[str, float, str]]]] = []
    for number, gpu in enumerate(gpus):
        own = _link(gpu, alone=True)
        if gpu.card is None or own is None or not gpu.card.above:
            return None
        up = [u.end for u in gpu.card.uplinks]
        if any(not end.link.whole for end in up):
            return None
        way = [(end.address, *pcie_rate(end.link.gt_s or 0, end.link.lanes or 0)) for end in up]
        root = (gpu.card.root_port, float("inf"), "")
        ways.append((number, [root, *way, (gpu.address, own[0], own[1])]))
    return _split(ways, 0)


def _split(ways: list[tuple[int, list[tuple[str, float, str]]]], depth: int) -> list[Branch]:
    """Branches by the link at this depth; a GPU's own ends its way."""
    groups: dict[str, list[tuple[int, list[tuple[str, float, str]]]]] = {}
    for number, way in ways:
        groups.setdefault(way[depth][0], []).append((number, way))
    found = []
    for address, mine in groups.items():
        rate, how = mine[0][1][depth][1:]
        deeper = [one for one in mine if len(one[1]) > depth + 1]
        below = _split(deeper, depth + 1) if deeper else []
        through = sum(branch.rate for branch in below)
        if below and through <= rate:
            rate, how = through, " + ".join(branch.words for branch in below)
        else:
            how = f"{address}: {how}"
        found.append(Branch(tuple(number for number, _ in mine), rate, how))
    return found


@method("gpu-all", "all GPUs of a node at once against the host ports above them", figures=True, counts="directions")
def judge_gpu_all(case: Case, criterion: Criterion) -> list[Judgement]:
    """Each direction of each node, all of its GPUs at once."""
    said, found = _each(case, criterion)
    for m, facts in found:
        if len(facts.gpus) == 1:
            why = "one GPU in this node: alone it is tr.h2d"
            said.append(judgement(criterion, m.nodes[0], "not-applicable", "not-applicable", why, (m.id,)))
            continue
        said += [_all(case, criterion, m, facts, one) for one in facts.together]
    return said


def _all(case: Case, criterion: Criterion, m: Measurement, facts: GpuLoadFacts, one: AllAtOnce) -> Judgement:
    node, ids = m.nodes[0], [m.id]
    subject = Subject.node(node, "H to all GPUs" if one.what == "h2d" else "all GPUs to H")
    if one.fault:
        return judgement(criterion, subject, "not-measured", "tool-failed", one.fault, ids)
    summary = summarize(one.gb_s)
    each = ", ".join(f"GPU {number} {rate:.4g}" for number, rate in enumerate(one.each_gb_s))
    shown = f"{summary.median:.4g} GB/s in all ({each})"
    if unproved := _unproved(case, facts, node):
        why = f"{unproved[0]}: measured {shown}, not judged"
        return judgement(criterion, subject, "not-measured", unproved[1], why, ids, summary=summary)
    tree = branches(facts.gpus)
    if tree is None:
        why = f"the whole PCI Express tree of these GPUs is unknown; measured {shown}"
        return judgement(criterion, subject, "not-measured", "no-bound", why, ids, summary=summary)
    bound = _bound(case, criterion, node, tree)
    found = against(criterion, subject, ids, summary, bound, list(one.gb_s))
    return found.model_copy(update={"reason": f"{found.reason}; {shown}"})


def _bound(case: Case, criterion: Criterion, node: str, tree: Sequence[Branch]) -> Bound:
    """A share of what the host's ports carry together, or of the host's memory where that is declared and less."""
    lines = [
        f"GPU {', '.join(map(str, b.gpus))} behind one port of the host: {b.rate:.4g} GB/s = {b.words}" for b in tree
    ]
    ceiling, key, platform = sum(branch.rate for branch in tree), "memory_bandwidth", case.topology.node(node).platform
    if not undeclared(key, platform):
        memory, how = QUANTITIES[key].value(platform)
        lines += [f"the host's memory: {how}"]
        ceiling = min(ceiling, memory)
    share = criterion.bound.value or 0.0
    lines += [f"ceiling = {ceiling:.4g} GB/s",
              f"floor = {share:g} x {ceiling:.4g} = {share * ceiling:.4g} GB/s ({criterion.source})"]  # fmt: skip
    return Bound(metric="gpu_all_gb_s", unit="GB/s", floor=share * ceiling, ceiling=ceiling,
                 derivation=tuple(lines), source=criterion.source)  # fmt: skip
