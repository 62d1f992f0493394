"""Judging copies of GPUs: rates against the negotiated link of each, latencies, and that no cell is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from validation.analysis.stats import Summary, summarize
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import against
from validation.measures.gpu.copies_facts import BY_SMS, TOGETHER, CopyGpu, GpuCopyFacts
from validation.measures.gpu.kinds import gpus_of
from validation.measures.gpu.watch import SLOW_CLOCK
from validation.model import Bound, Judgement, Subject
from validation.rules.criterion import Criterion
from validation.rules.gpus import memory_rate, on_c2c, part_of, pcie_rate


class Figure(NamedTuple):
    """One figure of a node: of what, its numbers, its bound or why there is none, the GPUs that it is of, an error."""

    words: str
    summary: Summary | None
    bound: Bound | None
    unbound: str
    gpus: tuple[int, ...]
    error: str = ""
    path: str = ""
    broken: str = ""  # what fails it whatever its number is


Figures = Callable[[Criterion, GpuCopyFacts], Iterator[Figure]]


def link_of(gpu: CopyGpu, alone: bool = False) -> tuple[float, str] | None:
    """Data rate of a GPU's PCI Express link as it was under load, GB/s each way, and how it follows; None: unknown.

    Where sysfs shows the way up, that of the slowest link on it; `alone`: of the GPU's own, as below one switch.
    """
    found = []
    if gpu.card is not None:
        ends = (gpu.card, *(() if alone else (up.end for up in gpu.card.uplinks)))
        found = [(e.link.gt_s, e.link.lanes, e.address) for e in ends if e.link.gt_s and e.link.lanes]
    rates = [(pcie_rate(gt_s, lanes), f"{at}: ") for gt_s, lanes, at in found if gt_s and lanes]
    if not rates and gpu.generation and gpu.lanes:
        gt_s = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}.get(gpu.generation)
        rates = [(pcie_rate(gt_s, gpu.lanes), "NVML: ")] if gt_s else []
    if not rates:
        return None
    (rate, how), at = min(rates, key=lambda r: r[0][0])
    return rate, at + how


def clocks(facts: GpuCopyFacts, gpus: tuple[int, ...]) -> str:
    """In words, which of these GPUs were slowed down, or ran far below their clock; "" where none did."""
    said = []
    for number in gpus:
        gpu = facts.gpus[number]
        if gpu.watch is not None and gpu.watch.samples:
            said += [f"GPU {number}: {gpu.watch.words}; {slow}"] if (slow := gpu.watch.slowed_words) else []
        elif gpu.sm_mhz and gpu.sm_max_mhz and gpu.sm_mhz < SLOW_CLOCK * gpu.sm_max_mhz:
            why = f" ({', '.join(gpu.throttle_reasons)})" if gpu.throttle_reasons else ""
            said.append(f"GPU {number} ran at {gpu.sm_mhz} of {gpu.sm_max_mhz} MHz under load{why}")
    return "; ".join(said)


def _summary(values: tuple[float, ...]) -> Summary | None:
    return summarize(values) if values else None


def host_figures(criterion: Criterion, facts: GpuCopyFacts) -> Iterator[Figure]:
    """Pinned memory, each direction of each GPU, against its link."""
    share = criterion.bound.value or 0
    for number, gpu in enumerate(facts.gpus):
        beside = on_c2c(gpu.name) or part_of(gpu.name)
        link, bound = None if beside else link_of(gpu), None
        if link is not None:
            ceiling, how = link
            floor = share * ceiling
            lines = (how, f"floor = {share:g} x {ceiling:.4g} = {floor:.4g} GB/s ({criterion.source})")
            bound = Bound(metric="gpu_copy_gb_s", unit="GB/s", floor=floor, ceiling=ceiling,
                          derivation=lines, source=criterion.source)  # fmt: skip
        for what, source, target in (("h2d", None, number), ("d2h", number, None)):
            copy = facts.copy_of(what, source, target, "pinned")  # type: ignore[arg-type]
            if copy is not None:
                path = "" if gpu.near else "process not bound to the GPU's NUMA node, which is unknown"
                why = beside or "neither sysfs nor NVML shows the GPU's PCI Express link"
                yield Figure(copy.words, _summary(copy.gb_s), bound, why, (number,), copy.fault, path)


def local_figures(criterion: Criterion, facts: GpuCopyFacts) -> Iterator[Figure]:
    """4 bytes inside each GPU."""
    most = criterion.bound.value
    line = (f"{criterion.bound.words} ({criterion.source})",)
    bound = Bound(metric="gpu_local_us", unit="us", maximum=most, derivation=line, source=criterion.source)
    for number in range(len(facts.gpus)):
        wait = facts.wait_of("local", number, number)
        if wait is not None:
            summary = Summary(wait.us, 0.0, wait.low_us, wait.high_us, wait.samples) if wait.samples else None
            yield Figure(wait.words, summary, bound, "", (number,), wait.error)


def call_figures(criterion: Criterion, facts: GpuCopyFacts) -> Iterator[Figure]:
    """A synchronisation of each GPU with nothing to wait for, and an empty kernel there."""
    emulated = "emulated" if facts.emulated else ""
    for number in range(len(facts.gpus)):
        for wait in (facts.wait_of("sync", number, number), facts.wait_of("kernel", number, number)):
            if wait is not None:
                summary = Summary(wait.us, 0.0, wait.low_us, wait.high_us, wait.samples) if wait.samples else None
                yield Figure(wait.words, summary, None, "", (number,), wait.error, emulated)


def together_figures(_: Criterion, facts: GpuCopyFacts) -> Iterator[Figure]:
    """Copies between GPUs at the same time, all of them counted, and those by SMs."""
    for copy in facts.copies:
        if copy.what in (*TOGETHER, *BY_SMS):
            mine = tuple(dict.fromkeys(number for number in (copy.source, copy.target) if number is not None))
            way = "" if copy.what == "sm_local" else "peer access" if copy.access else "through the host"
            path = ", ".join(filter(None, (way, "emulated" if facts.emulated else "")))
            yield Figure(copy.words, _summary(copy.gb_s), None, "", mine, copy.fault, path)
    if facts.no_sm_copies and any(not gpu.untaken for gpu in facts.gpus):
        yield Figure("copies by SMs", None, None, "", (), facts.no_sm_copies)


def judged(case: Case, criterion: Criterion, figures: Figures) -> list[Judgement]:
    """One judgement for each figure of each node."""

    def of_node(node: str, evidence: tuple[str, ...], facts: GpuCopyFacts) -> list[Judgement]:
        facts = without_made_ports(case, node, facts)
        mine = [_figure(case, criterion, node, evidence, facts, figure) for figure in figures(criterion, facts)]
        why = "one GPU in this node, and so no pair"
        return mine or [judgement(criterion, node, "not-applicable", "not-applicable", why, evidence)]

    return on_each_with_gpus(case, criterion, None, of_node)


def on_each_with_gpus(
    case: Case,
    criterion: Criterion,
    bound: Bound | None,
    judge: Callable[[str, tuple[str, ...], GpuCopyFacts], list[Judgement]],
) -> list[Judgement]:
    """What `judge` finds for each node, its evidence and its facts; and why where there are no facts, or no GPUs."""
    found: list[Judgement] = without_gpus(case, criterion)
    for m in case.serving(criterion):
        node, evidence = m.nodes[0], (m.id,)
        facts = facts_for(case, criterion, node, m.id, GpuCopyFacts, bound)
        if isinstance(facts, Judgement):
            found.append(facts)
        elif not facts.gpus:
            found.append(judgement(criterion, node, "not-measured", "missing-metric", none(facts), evidence))
        else:
            found += judge(node, evidence, facts)
    return found


def without_made_ports(case: Case, node: str, facts: GpuCopyFacts) -> GpuCopyFacts:
    """The facts without the ports above the GPUs of a virtual machine: their rates are of its hypervisor's making."""
    if node not in case.virtual_machines:
        return facts
    cards = [gpu.card.model_copy(update={"above": ()}) if gpu.card is not None else None for gpu in facts.gpus]
    pairs = zip(facts.gpus, cards, strict=True)
    return facts.model_copy(update={"gpus": tuple(gpu.model_copy(update={"card": card}) for gpu, card in pairs)})


def without_gpus(case: Case, criterion: Criterion) -> list[Judgement]:
    """That it has no meaning where no node is said to have a GPU (pf.bom looks for them); else nothing."""
    if criterion.suite not in case.plan.suites or any(
        gpus_of(n, case.topology) is not None for n in case.topology.nodes
    ):
        return []
    why = "no node has a GPU" if case.topology.here is not None else "the inventory declares no GPU of any node"
    return [judgement(criterion, Subject(kind="cluster"), "not-applicable", "not-applicable", why, ())]


def none(facts: GpuCopyFacts) -> str:
    """In words, that there was no GPU."""
    return f"this node shows no GPU: {facts.why}"


def _figure(
    case: Case, criterion: Criterion, node: str, evidence: tuple[str, ...], facts: GpuCopyFacts, figure: Figure
) -> Judgement:
    subject, summary, bound = Subject.node(node, figure.words), figure.summary, figure.bound
    unit = criterion.unit or ""
    if figure.error or summary is None:
        why = f"{figure.words}: {figure.error or 'nothing was measured'}"
        return judgement(criterion, subject, "not-measured", "tool-failed", why, evidence, bound=bound)
    shown = f"{summary.median:.4g} {unit}" + (f", {figure.path}" if figure.path else "")
    if criterion.bound.kind == "report":
        why = f"reported, not judged: {shown}"
        return judgement(criterion, subject, "not-applicable", "reported", why, evidence, summary=summary, bound=bound)
    own = len(set(figure.gpus)) == 1
    if nothing := case.gpu_proves_nothing(facts.emulated) if own else case.way_proves_nothing(node, facts.emulated):
        why = f"{nothing}: measured {shown}, not judged"
        return judgement(criterion, subject, "not-measured", "virtual", why, evidence, summary=summary, bound=bound)
    if figure.broken:
        why = f"{shown}: {figure.broken}"
        return judgement(criterion, subject, "fail", "not-working", why, evidence, summary=summary, bound=bound)
    if bound is None:
        why = f"{figure.unbound}; measured {shown}"
        return judgement(criterion, subject, "not-measured", "no-bound", why, evidence, summary=summary)
    found = against(criterion, subject, evidence, summary, bound)
    more = [figure.path] if figure.path else []
    more += [f"GPU {number}: {beside}" for number in figure.gpus if (beside := facts.gpus[number].beside)]
    throttled = any(w is not None and w.throttled for w in (facts.gpus[number].watch for number in figure.gpus))
    if (throttled or found.verdict != "pass") and (slow := clocks(facts, figure.gpus)):
        more.append(slow)
    return found.model_copy(update={"reason": "; ".join([found.reason, *more])}) if more else found


def memory_figures(criterion: Criterion, facts: GpuCopyFacts) -> Iterator[Figure]:
    """Copies inside each GPU, bytes read and written counted, against its memory's rate by its data sheet."""
    share = criterion.bound.value or 0
    for number, gpu in enumerate(facts.gpus):
        sheet, bound, copy = memory_rate(gpu.name), None, facts.copy_of("local", number, number)
        if copy is None:
            continue
        if sheet is not None:
            floor = share * sheet.gb_s
            lines = (
                f"ceiling: {sheet.gb_s:g} GB/s ({sheet.source})",
                f"floor = {share:g} x {sheet.gb_s:g} = {floor:.4g} GB/s ({criterion.source})",
            )
            bound = Bound(metric="gpu_local_gb_s", unit="GB/s", floor=floor, ceiling=sheet.gb_s,
                          derivation=lines, source=criterion.source)  # fmt: skip
        why = part_of(gpu.name) or f"this release knows no memory bandwidth of a {gpu.name}"
        yield Figure(copy.words, _summary(copy.gb_s), bound, why, (number,), copy.fault)


@method("gpu-memory", "copies inside each GPU against its data sheet", figures=True, counts="GPUs")
def judge_gpu_memory(case: Case, criterion: Criterion) -> list[Judgement]:
    """Memory bandwidth inside a GPU."""
    return judged(case, criterion, memory_figures)


@method(
    "gpu-host",
    "copies between host memory and each GPU against its PCI Express link",
    figures=True,
    counts="directions",
)
def judge_gpu_host(case: Case, criterion: Criterion) -> list[Judgement]:
    """Host to GPU and back."""
    return judged(case, criterion, host_figures)


@method("gpu-calls", "latency of a synchronisation and an empty kernel on each GPU", figures=True, counts="latencies")
def judge_gpu_calls(case: Case, criterion: Criterion) -> list[Judgement]:
    """Latency of a synchronisation and of an empty kernel."""
    return judged(case, criterion, call_figures)


@method("gpu-together", "rates of copies between GPUs at the same time", figures=True, counts="rates")
def judge_gpu_together(case: Case, criterion: Criterion) -> list[Judgement]:
    """Both ways of each pair, from all others to each GPU, from each to all others; and copies by SMs."""
    return judged(case, criterion, together_figures)


@method("gpu-local", "latency inside each GPU against the bound", figures=True, counts="GPUs")
def judge_gpu_local(case: Case, criterion: Criterion) -> list[Judgement]:
    """Latency inside a GPU."""
    return judged(case, criterion, local_figures)


@method("gpu-matrix", "each cell of H and all GPUs of a node is there, its data verified")
def judge_gpu_matrix(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node: each cell of H and all its GPUs is there with right data. Of emulated GPUs too."""
    lines = (f"{criterion.bound.words} ({criterion.source})",)
    bound = Bound(metric="holes", unit="count", equal="0", derivation=lines, source=criterion.source)

    def of_node(node: str, evidence: tuple[str, ...], facts: GpuCopyFacts) -> list[Judgement]:
        cells = (len(facts.gpus) + 1) ** 2 - 1
        holes = facts.holes
        summary = Summary(len(holes), 0.0, len(holes), len(holes), 1)
        if holes:
            more = f" and {len(holes) - 3} more" if len(holes) > 3 else ""
            why = f"{'; '.join(holes[:3])}{more}"
            said = judgement(criterion, node, "fail", "not-equal", why, evidence, summary=summary, bound=bound)
        elif held := [gpu.untaken for gpu in facts.gpus if gpu.held]:
            why = f"{'; '.join(held)}; of the other GPUs all cells are there, all data verified"
            said = judgement(criterion, node, "not-measured", "tool-failed", why, evidence, bound=bound)
        elif facts.emulated and not case.virtual:
            why = "the GPUs are emulated, and the node is not"
            said = judgement(criterion, node, "not-measured", "virtual", why, evidence, bound=bound)
        else:
            why = f"{number_of(cells, 'cell')} of H and {number_of(len(facts.gpus), 'GPU')}, all data verified"
            why += "; the GPUs are emulated" if facts.emulated else ""
            said = judgement(criterion, node, "pass", "within-bounds", why, evidence, summary=summary, bound=bound)
        return [said]

    return on_each_with_gpus(case, criterion, bound, of_node)
