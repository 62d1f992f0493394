"""Judging the health of GPUs: what a customer would send back, and what an operator would set right. Pure.

Each node is read before anything runs and again after the suites that load it. States are judged in both readings,
counters of a GPU's life by their growth, those since the driver was loaded as they stand. What a GPU does not say is
not known, and never fine. Emulated devices say what is described of them: counters and states, no rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement, unusable
from validation.judging.methods import method
from validation.measures.gpu.growth import REPLAYS_PER_MINUTE, growth
from validation.measures.gpu.health import GpuHealthFacts, GpuReading
from validation.model import Bound, Judgement, Node, ReasonCode, VerdictName
from validation.model.times import moment
from validation.rules.criterion import Criterion

AFTER = "gpu-health-after"
THROTTLED = {
    "hw_slowdown": "the hardware lowers its clock",
    "hw_thermal_slowdown": "the hardware lowers its clock because it is too hot",
    "sw_thermal_slowdown": "the driver lowers its clock because it is too hot",
    "hw_power_brake_slowdown": "the power supply asked the hardware to lower its clock",
}
"""Reasons that a healthy GPU never has, idle or loaded. Its own power cap (`sw_power_cap`) is usual under load."""
RETIRED_PAGES = 60
"""From so many on a GPU is replaced: NVIDIA, Dynamic Page Retirement, RMA policy thresholds."""
REMAPPED_ROWS = 512
"""More uncorrectable remaps than a GPU has rows for (A100 and later): NVIDIA, GPU memory error management; the limit of
Oracle's oci-hpc health checks too."""
ASKED = {
    "ecc": "whether ECC is on",
    "persistence": "its persistence mode",
    "compute_mode": "its compute mode",
    "pcie_width": "the width of its PCIe link",
    "pcie_max_width": "the width that its PCIe link can have",
}
"""What a GPU has to say of itself before it is called healthy."""


@dataclass(frozen=True)
class Seen:
    """A node's GPUs before the load and, where that was planned and is usable, after it. minutes: between the two."""

    node: Node
    ids: tuple[str, ...]
    first: GpuHealthFacts
    last: GpuHealthFacts | None
    minutes: float

    @property
    def readings(self) -> list[tuple[GpuHealthFacts, str]]:
        """Each reading with its `when`."""
        return [(self.first, "")] + ([(self.last, " at the end of the run")] if self.last is not None else [])


@method("gpu-health", "what GPUs say of errors, repairs, throttling, link and modes, twice")
def judge_gpu_health(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node that was to be looked at. Where none has a GPU, the criterion does not apply to this site."""
    bound = Bound(
        metric="gpu_health", unit="", equal=criterion.bound.words, derivation=_sources(), source=criterion.source
    )
    seen = [_seen(case, criterion, id_, bound) for id_ in first_readings(case, criterion)]
    peers = [one for one in seen if isinstance(one, Seen)]
    judged: list[Judgement] = []
    without: list[Judgement] = []
    for one in seen:
        if isinstance(one, Judgement):
            judged.append(one)
            continue
        verdict, code, why = _judge(case, one, peers)
        text = "; ".join(map(_words, (one.last or one.first).gpus)) or None
        said = judgement(criterion, one.node.name, verdict, code, why, one.ids, text=text, bound=bound)
        (without if verdict == "not-applicable" else judged).append(said)
    return judged or without


def _sources() -> tuple[str, ...]:
    return (
        f"a GPU is replaced from {RETIRED_PAGES} retired pages on (NVIDIA, Dynamic Page Retirement), or with more than "
        f"{REMAPPED_ROWS} rows remapped for uncorrectable errors (NVIDIA, GPU memory error management)",
        f"{REPLAYS_PER_MINUTE:g} PCIe replays in a minute (NVIDIA DCGM, background health checks)",
    )


def first_readings(case: Case, criterion: Criterion) -> list[str]:
    """Ids of the readings before the load."""
    return [m.id for m in case.serving(criterion) if not m.id.startswith(f"{AFTER}.")]


def _seen(case: Case, criterion: Criterion, id_: str, bound: Bound) -> Seen | Judgement:
    node = case.topology.node(case.plan.measurement(id_).nodes[0])
    after = f"{AFTER}.{node.name}"
    ids = (id_, after) if after in case.planned else (id_,)
    first = facts_for(case, criterion, node.name, id_, GpuHealthFacts, bound)
    if isinstance(first, Judgement):
        return first
    if len(ids) == 1:
        return Seen(node, ids, first, None, 0.0)
    gone = unusable(case, criterion, node.name, (after,), bound)
    if gone is not None:
        worse = _states(case, Seen(node, ids, first, None, 0.0), [])[0]
        if not worse:
            return gone
        return Seen(node, ids, first, None, 0.0)
    last = facts_for(case, criterion, node.name, after, GpuHealthFacts, bound)
    if isinstance(last, Judgement):
        return last
    begin, end = moment(case.latest[id_].provenance.ended), moment(case.latest[after].provenance.started)
    minutes = (end - begin).total_seconds() / 60 if begin is not None and end is not None else 0.0
    return Seen(node, ids, first, last, max(minutes, 0.0))


def _words(gpu: GpuReading) -> str:
    """`GPU 0 (0000:1a:00.0): 41 C, 1530 MHz, 55 W, PCIe x16, 0 uncorrectable and 3 corrected errors`."""
    state = gpu.state
    found = [
        (state.temperature_c, "{} C"), (state.sm_mhz, "{} MHz"), (state.power_w, "{:.0f} W"),
        (gpu.pcie_width, "PCIe x{}"), (gpu.ecc_uncorrected, "{} uncorrectable errors"),
        (gpu.ecc_corrected, "{} corrected errors"),
    ]  # fmt: skip
    return (
        f"{gpu.words}: {', '.join(form.format(value) for value, form in found if value is not None) or 'says nothing'}"
    )


def declared(case: Case, node: Node) -> int:
    """GPUs that this node is to have; 0 where nobody says so."""
    return node.gpus or (case.topology.here.gpus if case.topology.here is not None else 0)


def _judge(case: Case, one: Seen, peers: list[Seen]) -> tuple[VerdictName, ReasonCode, str]:
    first, wanted = one.first, declared(case, one.node)
    missing: ReasonCode = "virtual" if case.virtual else "missing-metric"
    if not (wanted or first.gpus or first.lost):
        return "not-applicable", "not-applicable", "no GPU in this node, and none declared"
    if first.unread:
        return "not-measured", missing, f"its GPUs cannot be read: {first.unread}"
    if first.emulated and not case.virtual:
        return "not-measured", "missing-metric", "the GPUs are emulated"
    wrong, unknown = _states(case, one, peers)
    if one.last is not None:
        grown, lost = growth(one.first, one.last, one.minutes)
        wrong, unknown = wrong + grown, unknown + lost
    elif len(case.plan.suites) > 1:
        unknown.append("no second reading was planned")
    if wrong:
        return "fail", "not-equal", "; ".join(wrong)
    if unknown:
        return "not-measured", missing, "; ".join(unknown)
    span = f"in {one.minutes:.0f} minutes nothing grew" if one.last is not None else "read once: growth was not judged"
    what = "emulated GPUs, whose counters and states are described" if first.emulated else "GPUs"
    return "pass", "within-bounds", f"{len(first.gpus)} {what}: none with a fault; {span}{_told(one)}"


def _told(one: Seen) -> str:
    """What is no fault, and worth to be known."""
    last = one.last or one.first
    said = [
        f"{gpu.words}: {words.format(value)}"
        for gpu in last.gpus
        for value, words in (
            (gpu.ecc_corrected, "{} corrected memory errors"),
            (gpu.ecc_uncorrected_ever, "{} uncorrectable memory errors in its life"),
            (gpu.pages_retired, "{} pages retired"),
            (gpu.rows_uncorrected, "{} rows remapped for uncorrectable errors"),
            (_unnamed(gpu), "reasons for its clock without a name here: {}"),
        )
        if value
    ]
    return f". Reported, not judged: {'; '.join(said)}" if said else ""


def _unnamed(gpu: GpuReading) -> str:
    """Bits of its reasons that only a later release names."""
    return ", ".join(name for name in gpu.state.throttle_reasons or () if name.startswith("0x"))


def _states(case: Case, one: Seen, peers: list[Seen]) -> tuple[list[str], list[str]]:
    """What is wrong with the GPUs as they stand, each once, and what of it is not known."""
    wrong: list[str] = []
    unknown: list[str] = []
    wanted = declared(case, one.node)
    there = len(one.first.gpus)
    if there < wanted:
        wrong.append(f"NVML shows {there} of {number_of(wanted, 'GPU')}")
    elif wanted and there > wanted:
        wrong.append(f"NVML shows {number_of(there, 'GPU')}, {wanted} declared")
    told: set[tuple[str, str]] = set()  # GPU, fault
    for facts, when in one.readings:
        wrong += [f"{lost}{when}" for lost in facts.lost]
        if facts.unread:
            wrong.append(f"{facts.unread}{when}")
        for gpu in facts.gpus:
            faults = [fault for fault in _faults(gpu, one.node) if (gpu.words, fault) not in told]
            told |= {(gpu.words, fault) for fault in faults}
            wrong += [f"{gpu.words}: {fault}{when}" for fault in faults]
    for gpu in one.first.gpus:
        wrong += [f"{gpu.words}: {odd}" for odd in _odd(gpu, one.first, peers)]
        silent = _silent(gpu)
        if silent:
            unknown.append(f"{gpu.words} does not say {', '.join(silent)}")
        after = one.last.same(gpu) if one.last is not None else None
        later = [words for words in _silent(after) if words not in silent] if after is not None else []
        if later:
            unknown.append(f"{gpu.words} does not say {', '.join(later)} at the end of the run")
    return wrong, unknown


def _silent(gpu: GpuReading) -> list[str]:
    """What a GPU has to say and does not."""
    silent = [words for key, words in ASKED.items() if getattr(gpu, key) is None]
    silent += ["why its clocks are where they are"] if gpu.state.throttle_reasons is None else []
    silent += ["its memory errors"] if gpu.ecc and gpu.ecc_uncorrected is None else []
    silent += ["whether a memory repair waits"] if gpu.pages_pending is None and gpu.rows_pending is None else []
    return silent


def _faults(gpu: GpuReading, node: Node) -> Iterable[str]:
    """What is wrong with a GPU by its own words."""
    if gpu.ecc is False:
        yield "ECC is off"
    if gpu.ecc is not None and gpu.ecc_pending is not None and gpu.ecc_pending != gpu.ecc:
        yield f"ECC will be {'on' if gpu.ecc_pending else 'off'} after the next reset"
    if gpu.ecc_uncorrected:
        yield f"{gpu.ecc_uncorrected} uncorrectable memory errors since its driver was loaded"
    if gpu.pages_pending or gpu.rows_pending:
        yield "a memory repair waits for a reset of the GPU"
    if gpu.channel_repair_pending:
        yield "the repair of a memory channel waits for a reset of the GPU"
    if gpu.tpc_repair_pending:
        yield "the repair of a TPC waits for a reset of the GPU"
    if gpu.memory_unrepairable:
        yield "it has memory that cannot be repaired: replace it"
    if gpu.rows_failed:
        yield "its memory could not be repaired (row remapping failed): replace it"
    if (gpu.pages_retired or 0) >= RETIRED_PAGES:
        yield f"{gpu.pages_retired} pages of its memory are retired: replace it"
    if (gpu.rows_uncorrected or 0) > REMAPPED_ROWS:
        yield (
            f"{number_of(gpu.rows_uncorrected, 'row')} of its memory are remapped for uncorrectable errors: replace it"
        )
    state = gpu.state
    hot = f" at {state.temperature_c} C" if state.temperature_c is not None else ""
    mine = [words for reason, words in THROTTLED.items() if reason in (state.throttle_reasons or ())]
    if mine:
        yield f"{mine[-1]}{hot}" + (f", {state.sm_mhz} of {state.sm_max_mhz} MHz" if state.sm_mhz is not None else "")
    elif state.temperature_c is not None and gpu.slowdown_c is not None and state.temperature_c >= gpu.slowdown_c:
        yield f"it is{hot}, and lowers its clock from {gpu.slowdown_c} C on"
    if gpu.pcie_width is not None and gpu.pcie_max_width is not None and gpu.pcie_width < gpu.pcie_max_width:
        yield f"its PCIe link has {gpu.pcie_width} of {gpu.pcie_max_width} lanes"
    if gpu.persistence is False:
        yield "persistence mode is off"
    if gpu.compute_mode not in (None, "default"):
        yield f"its compute mode is {gpu.compute_mode}, default wanted"
    if bool(gpu.mig) != node.mig:
        yield "MIG is on, and the inventory does not declare it (gpu_mig)" if gpu.mig else "MIG is off, on declared"
    if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig:
        yield f"MIG will be {'on' if gpu.mig_pending else 'off'} after the next reset"
    if gpu.set_mhz is not None and gpu.default_mhz is not None and gpu.set_mhz < gpu.default_mhz:
        yield f"its clock is set to {gpu.set_mhz} MHz, {gpu.default_mhz} is its default"


def _odd(gpu: GpuReading, facts: GpuHealthFacts, peers: list[Seen]) -> list[str]:
    """In what a GPU differs from most others of its model, on all nodes."""
    said: tuple[tuple[str, Callable[[GpuReading, GpuHealthFacts], object]], ...] = (
        ("VBIOS", lambda one, _: one.vbios),
        ("driver", lambda _, of: of.driver),
        ("PCIe lanes at most", lambda one, _: one.pcie_max_width),
        ("PCIe generation at most", lambda one, _: one.pcie_max_generation),
    )
    found = []
    for name, of in said:
        counted = Counter(
            of(one, peer.first)
            for peer in peers
            for one in peer.first.gpus
            if one.name == gpu.name and of(one, peer.first)
        )
        mine = of(gpu, facts)
        if mine and len(counted) > 1 and counted[mine] < sum(counted.values()) / 2:
            others = ", ".join(f"{value} ({number})" for value, number in counted.most_common() if value != mine)
            found.append(f"{name} {mine}, others of its model have {others}")
        elif mine and len(counted) > 1 and len(set(counted.values())) == 1:
            found.append(f"{name} {mine}, as many others of its model differ")
    return found
