"""Facts of kind burn-in: what the devices of a node did under load for a given time."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, flag, json_object, number, real
from validation.kinds.record import Kind, on_node
from validation.measures.compute.burn_copies_probe import window_s
from validation.measures.compute.burn_facts import BurnDevice, BurnFacts, other_than_first
from validation.measures.compute.exact import reference as turn
from validation.measures.compute.segments import Segment, full_share, together
from validation.measures.gpu.growth import growth
from validation.measures.gpu.kinds import gpus_of
from validation.measures.gpu.watch import watch_of
from validation.measures.gpu.xid import judge_readings
from validation.measures.training.training_short_probe import ENTER
from validation.model import Bound, Job, Judgement, Measurement, Node, Param, ReasonCode, Sample, Subject, Topology
from validation.probes import ProbeDoc, exact_products
from validation.rules.criterion import Criterion

# ----------------------------------------------------------------------------------------------------------------------
# Burn-in: windows, comparisons and digests of each device, held against the time and against each other.


UNITS = {"torch-cuda": "TFLOP/s", "torch-cpu": "TFLOP/s", "copies": "GB/s", "processors": "turns/s"}
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WHAT = "burn-in"


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`burn_wrong` of each device: results that were not what they had to be. The rest stands in the facts."""
    report = json_object(doc["stdout"], f"{_WHAT}: the report")
    load, raw, emulated = report["load"], report["devices"], flag(doc["facts"]["emulated"], f"{_WHAT}: emulated")
    expect(params, "seconds", report["seconds"], f"{_WHAT}: seconds")
    seconds, took = (number(report[key], f"{_WHAT}: {key}") for key in ("seconds", "took_s"))
    if report["window_s"] != window_s(seconds):
        raise ParseError(f"{_WHAT}: windows of {report['window_s']} s, {window_s(seconds):g} s expected")
    if load not in UNITS or not isinstance(raw, list) or not raw:
        raise ParseError(f"{_WHAT}: nothing was loaded")
    gpus = load in ("torch-cuda", "copies")
    wanted = [f"cuda:{n}" for n in range(len(raw))] if gpus else ["cpu"]
    if [one["device"] for one in raw] != wanted or doc["facts"].get("devices") != len(raw):
        raise ParseError(f"{_WHAT}: the devices are not {', '.join(wanted)}")
    declared = int(count(params.get("gpus", 0), f"{_WHAT}: declared GPUs"))
    if declared and (not gpus or len(raw) < declared):
        raise ParseError(f"{_WHAT}: {len(raw) if gpus else 0} of {number_of(declared, 'GPU')} were loaded")
    if took < seconds and not all(one.get("fault") for one in raw):
        raise ParseError(f"{_WHAT}: {took:g} s of the {seconds:g} s that were asked for")
    devices = [_device(one, report, load) for one in raw]
    facts = {key: report[key] for key in ("load", "how", "seconds", "took_s", "window_s", "before", "after")}
    found = as_facts(BurnFacts, {"type": "burn-in", **facts, "emulated": emulated, "devices": devices}, _WHAT)
    samples = [Sample(metric="burn_wrong", value=d.wrong + sum(d.bad.values()), unit="count") for d in found.devices]
    return samples, found


def _device(one: Mapping[str, Any], report: Mapping[str, Any], load: str) -> dict[str, Any]:
    what = f"{_WHAT}: {one['device']}"
    fault, unit = str(one["fault"]), UNITS[load]
    if "rates" not in one:  # its process ended without a report
        empty = {"name": "", "address": "", "load": "", "unit": unit, "rates": [], "checks": 0, "wrong": 0}
        return {"device": one["device"], **empty, "products": 0, "fault": fault or "its process ended without a report"}
    if one["unit"] != unit:
        raise ParseError(f"{what}: rates in {one['unit']}, {unit} expected")
    rates = [number(rate, f"{what}: rate") for rate in one["rates"]]
    checks, wrong = (int(count(one[key], f"{what}: {key}")) for key in ("checks", "wrong"))
    steps = {str(share): [real(s, f"{what}: seconds at {share}") for s in spent] for share, spent in _steps(one)}
    most = report["took_s"] / report["window_s"] + 1
    if sum(lasted for lasted, _ in steps.values()) > report["took_s"] + 1:
        raise ParseError(f"{what}: steps of more than the {report['took_s']:g} s that went by")
    if not (0 if fault else 1) <= len(rates) <= most or checks < len(rates) or wrong > checks:
        raise ParseError(f"{what}: {len(rates)} windows and {checks} results in {report['took_s']:g} s, {wrong} wrong")
    products, bad, unproved = _digests(one["exact"], what)
    seen = {each["when"] for each in one["exact"]}
    if not fault and not ({"during"} if load == "processors" else {"cold", "hot"}) <= seen:
        raise ParseError(f"{what}: no digest cold and hot")
    address = str(one["address"])
    found = {key: str(one[key]) for key in ("device", "name", "load")}
    course = [[real(at, f"{what}: second"), *rest] for at, *rest in report["courses"].get(address, [])]
    return {
        **found, "address": address, "unit": unit, "rates": rates, "checks": checks, "wrong": wrong, "fault": fault,
        "products": products, "bad": bad, "unproved": unproved, "course": course,
        "first": str(one.get("first", "")), "steps": steps,
        "watch": watch_of(report["watch"], address) if one["device"] != "cpu" else None,
    }  # fmt: skip


def _steps(one: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(one.get("steps", {}).items())  # of releases before 0.1's segments there are none


def _digests(raw: Any, what: str) -> tuple[int, dict[str, int], dict[str, str]]:
    """How many digests there are, which came out wrong, and which were not computed."""
    products, bad, unproved = 0, Counter[str](), {}
    for each in raw:
        when, precision = str(each["when"]), str(each["precision"])
        if "why" in each:
            unproved[precision] = str(each["why"])
            continue
        digests = {key: int(count(times, f"{what}: times of a digest")) for key, times in each["digests"].items()}
        right = _right(each, precision, what)
        if not digests or not all(_DIGEST.fullmatch(key) for key in (*digests, right)):
            raise ParseError(f"{what}: a digest is no SHA-256, or there is none")
        products += sum(digests.values())
        bad[f"{precision} {when}"] += sum(digests.values()) - digests.get(right, 0)
    return products, {what: times for what, times in bad.items() if times}, unproved


def _right(each: Mapping[str, Any], precision: str, what: str) -> str:
    """The digest that has to come out."""
    if precision == "turns":
        return turn()
    if precision == "copies":
        return str(each["sent"])
    if precision not in exact_products.SHAPES or each["size"] not in (exact_products.GPU_SIZE, exact_products.CPU_SIZE):
        raise ParseError(f"{what}: products in {precision} of {number_of(each['size'], 'row')}, which none has")
    return exact_products.reference(precision, each["size"])


# --- Burn-in: everything that a node has to compute with, loaded at once for a given time ----------------------------


EMULATED_BYTES = 1 << 20  # emulated devices are small, and share their host's memory
OWN_S = 60.0  # what begins and ends take, at most: torch, exact products cold and hot


def burn_id(node: str, segment: Segment) -> str:
    """Of the measurement of a node's segment."""
    return f"burn-in{segment.suffix}.{node}"


def asked(node: Node, topology: Topology, seconds: float) -> dict[str, Param]:
    """Parameters of a node's burn-in."""
    params: dict[str, Param] = {"seconds": seconds, "gpus": gpus_of(node, topology) or 0}
    if node.emulated_gpus:
        return {**params, "copy_bytes": EMULATED_BYTES}
    return {**params, "device": "cpu"} if node.virtual else params  # it sees its host's GPUs on the PCI buses


def _job(m: Measurement, topology: Topology) -> Job:
    """In the node's training container where it has one; of one machine by itself with the torch that was found."""
    node = topology.node(m.nodes[0])
    if topology.here is not None:
        unusable = {"device": "cpu"} if topology.here.gpu_trouble else {}
        return on_node(m, python=topology.here.torch_python, **unusable)
    return on_node(m, python="") if node.virtual or "gpu_servers" not in node.groups else on_node(m, enter=ENTER)


KINDS = (
    Kind(
        name="burn-in",
        title="Burn-in",
        measures="Loads every GPU of a node, or its processors, for the chosen time and compares each result with the "
        "right one.",
        tool="torch's matrix products; CUDA driver copies without torch; exact arithmetic on processors",
        more="explanation/measuring/burn-in.md",
        job=_job,
        parse=parse,
        repeat_by="probe",
        once=True,
    ),
)


# --- Judging a burn-in: every result right to the bit, no new event, no rate that sinks. Pure ------------------------


LEAST_WINDOWS = 12
"""Windows without which nobody can tell a begin from an end. Project default."""
PART = 4
"""The first and the last of so many parts of the time are compared. Project default."""
FULL = 0.5
"""Share of a part's time at full load from which its median is that of full load."""
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
    found: list[tuple[Measurement, Judgement]] = []
    for m in case.serving(criterion):
        facts = facts_for(case, criterion, m.nodes[0], m.id, BurnFacts, bound)
        mine = [facts] if isinstance(facts, Judgement) else judge(case, criterion, m, facts, bound)
        found += [(m, one) for one in mine]
    return together(found, case.attempts)


@method("burn-exact", "comparisons and digests of each device through a burn-in", counts="devices")
def judge_burn_exact(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each device: no result that is not what it had to be. Emulated ones too: exact is exact."""
    return _each(case, criterion, partial(_exact, {}))


def _exact(
    firsts: dict[tuple[str, ...], tuple[str, str]],
    case: Case, criterion: Criterion, m: Measurement, facts: BurnFacts, bound: Bound,
) -> Iterator[Judgement]:  # fmt: skip
    """`firsts`: of each device, by each torch, its first result in the first segment, and which segment that was."""
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
        elif other := other_than_first(firsts, m, facts, device):
            yield judgement(criterion, about, "fail", "not-equal", f"{_who(device)}: {other}", (m.id,), bound=bound)
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
        elif partial_ := _partial(m, facts.seconds):
            why = f"{partial_}; {why}"
            yield judgement(criterion, about, "not-measured", "missing-metric", why, (m.id,), bound=bound)
        elif bound.floor is not None and ratio < bound.floor:
            yield judgement(criterion, about, "fail", "below-floor", why, (m.id,), summary=shown, bound=bound)
        else:
            yield judgement(criterion, about, "pass", "within-bounds", why, (m.id,), summary=shown, bound=bound)


def _partial(m: Measurement, seconds: float) -> str:
    """Why begin and end do not compare, in words: one of them was mostly at less than full load; "" where they do."""
    words = m.params.get("steps", ())
    words = words if isinstance(words, tuple) else ()
    parts = {"begin": (0.0, seconds / PART), "end": (seconds - seconds / PART, seconds)}
    found = [where for where, times in parts.items() if full_share(map(str, words), *times) < FULL]
    return f"the {found[0]} of the segment is mostly at less than full load by its schedule" if found else ""


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
    grown, unknown = growth(first, last, facts.took_s / 60)
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
