"""Judging what GPUs compute: each against the others of its model, and against what was published of the model.

A GPU is held against the median of the others, so that one bad value moves nobody's bound. Processors, which take the
problems where a node has no GPU, are reported; they stand for no GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import bound_of
from validation.measures.compute.gpu_rates import peak, seen
from validation.measures.compute.rates import NO_MEMORY, ComputeDevice, ComputeFacts, ComputeFigure
from validation.model import Bound, Judgement, Measurement, Subject
from validation.probes.deepbench import INFERENCE_LISTS
from validation.probes.gpu_host import HELD_BYTES
from validation.rules.criterion import Criterion

BUSY_BYTES = HELD_BYTES

CEILING_SLACK = 1.02  # boost clocks above the data sheet's, and rounding. Project default


@dataclass(frozen=True)
class Held:
    """A GPU's rate over what it is held against."""

    ratio: float
    words: str


@dataclass(frozen=True)
class Gpu:
    """A device and the measurement that it was in."""

    measurement: Measurement
    facts: ComputeFacts
    device: ComputeDevice

    @property
    def evidence(self) -> tuple[str, ...]:
        """The measurement's name."""
        return (self.measurement.id,)

    @property
    def subject(self) -> Subject:
        """The device on its node."""
        return Subject.node(self.measurement.nodes[0], self.device.gpu)

    @property
    def said(self) -> str:
        """Who it is and what it was doing."""
        d = self.device
        parts = [d.gpu, d.name, d.address, f"serial {d.serial}" if d.serial else ""]
        if d.sm_mhz is not None:
            parts.append(f"{d.sm_mhz:.0f}{f' of {d.sm_max_mhz:.0f}' if d.sm_max_mhz else ''} MHz")
        parts += [f"{d.power_w:.0f} W"] if d.power_w is not None else []
        parts += [f"{d.temperature_c:.0f} C"] if d.temperature_c is not None else []
        parts += [d.unwatched, d.watch.slowed_words if d.watch is not None and d.watch.held_low else ""]
        return ", ".join(part for part in parts if part)


@method(
    "compute", "rates of each GPU against the others of its model and published ones", figures=True, counts="devices"
)
def judge_compute(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each GPU; the criterion's metric names the list, or one of those for inference all of them."""
    bound = as_ratio(bound_of(case, criterion), criterion)
    judged, gpus = devices_of(case, criterion, bound)
    which = (criterion.metric or "").removesuffix("_tflops")
    more = {"gemm": ("gemm", "sustained"), **dict.fromkeys(INFERENCE_LISTS, INFERENCE_LISTS)}
    lists = more.get(which, (which,))
    return judged + [_judge(case, criterion, bound, gpu, gpus, lists) for gpu in gpus]


def devices_of(case: Case, criterion: Criterion, bound: Bound | None) -> tuple[list[Judgement], list[Gpu]]:
    """Why measurements that serve the criterion have nothing to judge, and the devices of the others."""
    gone: list[Judgement] = []
    found: list[Gpu] = []
    for m in case.serving(criterion):
        facts = facts_for(case, criterion, m.nodes[0], m.id, ComputeFacts, bound)
        if isinstance(facts, Judgement):
            gone.append(facts)
        else:
            found += [Gpu(m, facts, device) for device in facts.devices]
    return gone, found


def _judge(
    case: Case, criterion: Criterion, bound: Bound | None, gpu: Gpu, gpus: list[Gpu], lists: tuple[str, ...]
) -> Judgement:
    about, evidence, device = gpu.subject, gpu.evidence, gpu.device

    def missing(why: str) -> Judgement:
        return judgement(criterion, about, "not-measured", "missing-metric", why, evidence, bound=bound)

    if device.fault:
        return judgement(
            criterion, about, "not-measured", "tool-failed", f"{device.gpu}: {device.fault}", evidence, bound=bound
        )
    if criterion.unit != "TFLOP/s" or not device.figures:
        return missing(f"{gpu.measurement.id}: no rate of {device.gpu}")
    figures = [f for f in device.figures if f.list in lists]
    if gpu.facts.where == "cpu":
        return _processors(case, criterion, bound, gpu, figures)
    if who := busy(device):
        why = f"{gpu.said}: somebody works on it: {who}; measure again when it is free"
        return judgement(criterion, about, "not-measured", "too-noisy", why, evidence, bound=bound)
    broken = [
        f"{f.list} {f.precision}: {f.not_finite} of {number_of(f.problems, 'problem')}" for f in figures if f.not_finite
    ]
    if broken:
        why = f"{gpu.said}: results that are no finite numbers: {'; '.join(broken)}"
        return judgement(criterion, about, "fail", "not-working", why, evidence, bound=bound)
    if device.slowed:
        share = "; ".join(f"{reason} in {device.reasons[reason]:.0%} of the time" for reason in device.slowed)
        return judgement(criterion, about, "fail", "not-working", f"{gpu.said}: slowed down: {share}", evidence,
                         bound=bound)  # fmt: skip
    over = [words for f in figures if (words := _impossible(device, f))]
    if over:
        why = f"{gpu.said}: {over[0]}; measurement rejected"
        return judgement(criterion, about, "not-measured", "above-ceiling", why, evidence, bound=bound)
    peers = [other for other in gpus if other is not gpu and other.device.name == device.name]
    lost = [words for f in figures if (words := _lost(f, _figures(peers, f, gpu)))]
    if lost:
        return missing(f"{gpu.said}: {'; '.join(lost)}")
    held = [one for f in figures for one in _held(device, f, _figures(peers, f, gpu))]
    if not held:
        rates = ", ".join(f"{f.list} {f.precision} {f.tflops:.4g}" for f in figures if f.tflops is not None)
        why = f"{gpu.said}: no other {device.name} in this run, and no published figure: measured {rates} TFLOP/s"
        return judgement(criterion, about, "not-measured", "no-bound", why, evidence, bound=bound)
    worst = min(held, key=lambda one: one.ratio)
    floor = (bound.floor if bound is not None else None) or 1.0
    fine = worst.ratio >= floor
    others = f" (of {len(held)} comparisons the lowest)" if len(held) > 1 else ""
    return judgement(
        criterion,
        about,
        "pass" if fine else "fail",
        "within-bounds" if fine else "below-floor",
        f"{gpu.said}: {worst.words}{others}",
        evidence,
        summary=Summary(median=worst.ratio, mad=0.0, low=worst.ratio, high=worst.ratio, count=len(held)),
        bound=bound,
    )


def busy(device: ComputeDevice) -> str:
    """The processes that worked on it before the measurement, in words; "" where there was none."""
    held = {pid: size for pid, size in device.others.items() if size >= BUSY_BYTES}
    return ", ".join(f"process {pid} with {size / (1 << 30):.1f} GiB" for pid, size in held.items())


def as_ratio(bound: Bound | None, criterion: Criterion) -> Bound | None:
    """The bound of a share of a rate."""
    ratio = {"unit": "ratio", "metric": f"{criterion.metric}_ratio"}
    return bound.model_copy(update=ratio) if bound is not None else None


def _processors(
    case: Case, criterion: Criterion, bound: Bound | None, gpu: Gpu, figures: list[ComputeFigure]
) -> Judgement:
    """No GPU took part. Of virtual nodes a rehearsal, elsewhere what this node is."""
    rates = ", ".join(f"{f.precision} {f.tflops:.4g} TFLOP/s" for f in figures if f.tflops is not None)
    words = f"no GPU took part: processors ({gpu.device.name}): {rates or 'nothing ran'}, not judged"
    evidence = gpu.evidence
    if case.virtual:
        return judgement(criterion, gpu.subject, "not-measured", "virtual", words, evidence, bound=bound)
    return judgement(criterion, gpu.subject, "not-applicable", "reported", words, evidence, bound=bound)


def _figures(peers: list[Gpu], mine: ComputeFigure, gpu: Gpu) -> list[ComputeFigure]:
    """The same list in the same precision, of the same problems, on other GPUs."""
    same = [p.device.figure(mine.list, mine.precision) for p in peers if p.facts.most == gpu.facts.most]
    return [f for f in same if f is not None]


def _impossible(device: ComputeDevice, figure: ComputeFigure) -> str:
    """More than the data sheet's peak, in words. Convolutions may: Winograd takes fewer operations than count."""
    known = peak(device.name, figure.precision) if not figure.list.startswith("conv") else None
    if known is None or figure.best_tflops is None or figure.best_tflops <= CEILING_SLACK * known[0]:
        return ""
    return f"{figure.list} {figure.precision}: {figure.best_tflops:.4g} TFLOP/s, above the {known[0]:g} of {known[1]}"


def _lost(mine: ComputeFigure, others: list[ComputeFigure]) -> str:
    """What did not run here and ran on others of the model, or did not run for want of memory."""
    least = min((sum(f.skipped.values()) for f in others), default=0)
    memory = mine.lacked_memory
    skipped = sum(mine.skipped.values())
    if not memory and (skipped <= least or not others):
        return ""
    why = NO_MEMORY if memory else max(mine.skipped, key=lambda words: mine.skipped[words])
    return (
        f"{mine.list} {mine.precision}: {memory or skipped} of "
        f"{number_of(mine.problems + skipped, 'problem')} did not run: {why}"
    )


def _held(device: ComputeDevice, mine: ComputeFigure, others: list[ComputeFigure]) -> Iterator[Held]:
    what, sustained = f"{mine.list} {mine.precision}", mine.list == "sustained"
    rate = mine.best_tflops if sustained else mine.tflops
    if rate is None:
        return
    alike = [
        value
        for f in others
        if f.problems == mine.problems and (value := f.best_tflops if sustained else f.tflops) is not None
    ]
    if alike:
        middle = statistics.median(alike)
        peers = f"{len(alike)} other{'s' if len(alike) > 1 else ''} of its model"
        yield Held(rate / middle, f"{what}: {rate:.4g} TFLOP/s, {rate / middle:.1%} of the {middle:.4g} of {peers}")
    known = seen(device.name, mine.precision) if sustained else None
    if known is not None:
        ratio = rate / (known.held * known.tflops)
        share = f"{known.held:g} held of " if known.held != 1 else ""
        words = f"{ratio:.1%} of the {share}{known.tflops:g} published ({known.source})"
        yield Held(ratio, f"{what}: {rate:.4g} TFLOP/s, {words}")
