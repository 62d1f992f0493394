"""Judging what GPUs were doing while they were measured: figures of a throttled GPU are none of a healthy one. Pure.

A GPU that was slowed down by heat or by its power supply fails whatever its figures are. One whose clock stayed far
below its largest fails where it computed, and is remarked upon where it only copied, for which it needs little. States
are described of emulated devices too, and are judged as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.measures.compute.burn_facts import BurnFacts
from validation.measures.compute.rates import ComputeFacts
from validation.measures.compute.segments import together
from validation.measures.gpu.copies_facts import GpuCopyFacts
from validation.measures.gpu.copies_judge import without_gpus
from validation.measures.gpu.watch import GpuWatch
from validation.model import Bound, Judgement, Measurement, ReasonCode, Subject, VerdictName
from validation.rules.criterion import Criterion


class Watched(NamedTuple):
    """A GPU, and what was seen of it. loaded: it computed, so that its clock has to be up."""

    words: str
    watch: GpuWatch | None
    unseen: str
    loaded: bool
    emulated: bool = False


@method("gpu-watch", "what a sampler beside the measurement saw of each GPU's clocks, power and heat", counts="GPUs")
def judge_gpu_watch(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each GPU of each measurement that serves the criterion."""
    lines = (f"{criterion.bound.words} ({criterion.source})",)
    bound = Bound(metric="clocks", unit="", equal=criterion.bound.words, derivation=lines, source=criterion.source)
    found = without_gpus(case, criterion) if criterion.kind != "burn-in" else []
    each = [(m, one) for m in case.serving(criterion) for one in _judged(case, criterion, m, bound)]
    return found + (together(each, case.attempts) if criterion.kind == "burn-in" else [one for _, one in each])


def _judged(case: Case, criterion: Criterion, m: Measurement, bound: Bound) -> Iterator[Judgement]:
    node, evidence = m.nodes[0], (m.id,)
    gone = unusable(case, criterion, node, evidence, bound)
    if gone is not None:
        yield gone
        return
    facts = case.latest[m.id].facts
    gpus = list(_gpus(facts))
    if isinstance(facts, BurnFacts) and not gpus:
        why = "no GPU was loaded"
        yield judgement(criterion, node, "not-applicable", "not-applicable", why, evidence, bound=bound)
    elif not gpus:
        virtual: ReasonCode = "virtual" if case.virtual else "missing-metric"
        yield judgement(criterion, node, "not-measured", virtual, "no GPU took part", evidence, bound=bound)
    for gpu in gpus:
        verdict, code, why = judge_watched(case, gpu)
        yield judgement(criterion, Subject.node(node, gpu.words), verdict, code, why, evidence, bound=bound)


def _gpus(facts: object) -> Iterator[Watched]:
    if isinstance(facts, GpuCopyFacts):
        for number, gpu in enumerate(facts.gpus):
            yield Watched(f"GPU {number}", gpu.watch, "", False, facts.emulated)
    elif isinstance(facts, ComputeFacts) and facts.where == "cuda":
        for device in facts.devices:
            yield Watched(device.gpu, device.watch, device.fault or device.unwatched, True)
    elif isinstance(facts, BurnFacts):
        for one in facts.devices:
            if one.device != "cpu":
                yield Watched(one.words, one.watch, one.fault, facts.load == "torch-cuda", facts.emulated)


def judge_watched(case: Case, gpu: Watched) -> tuple[VerdictName, ReasonCode, str]:
    """Verdict, code and reason of one GPU."""
    watch = gpu.watch
    missing: ReasonCode = "virtual" if case.virtual else "missing-metric"
    if watch is None or not watch.samples:
        why = gpu.unseen or (watch.said if watch is not None else "") or "the probe did not look at it"
        return "not-measured", missing, f"{gpu.words}: {why}"
    emulated = "; the GPU is emulated, and says what is described of it" if gpu.emulated else ""
    said = f"{gpu.words}: {watch.words}"
    if watch.throttled or (watch.held_low and gpu.loaded):
        return "fail", "not-working", f"{said}; {watch.slowed_words}{emulated}"
    if watch.said:
        return "not-measured", missing, f"{said}; then {watch.said}"
    if watch.held_low:
        return "pass", "remarked", f"{said}; {watch.slowed_words}: its figures are those of a slow clock{emulated}"
    if watch.sm_mhz is None or watch.sm_max_mhz is None:
        return "not-measured", missing, f"{said or gpu.words}: NVML does not say its clock"
    if watch.unnamed:
        return "pass", "remarked", f"{said}; {watch.unnamed}{emulated}"
    return "pass", "within-bounds", f"{said}; nothing slowed it down in {watch.seconds:.1f} s{emulated}"
