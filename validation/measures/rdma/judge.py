"""Judging RDMA: whether it works between each pair of ports, and its bandwidth and latency by operation.

Whether it works is judged in a rehearsal too, for emulated machines speak real verbs. What only real ports can show,
a rate or a latency, is then reported and not judged.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from validation.analysis.denial import loss_of
from validation.analysis.stats import summarize
from validation.base.counting import number_of
from validation.judging.attempts import Attempt, decide
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import against, impossible, subject_of
from validation.measures.rdma.ports_judge import port_of
from validation.model import Bound, Endpoint, Judgement, Measurement, Result, Subject
from validation.rules.bounds import BOTH_WAYS, CEILING_SLACK, rdma_least_us
from validation.rules.criterion import Criterion
from validation.rules.fabric import RdmaLatency

NOT_THE_FABRIC = frozenset({"tool-missing", "tool", "stopped"})
"""Faults of the tools and not of RDMA: they leave it unmeasured."""

BROKEN = ("failed", "timeout", "unparseable")


@method("works", "every measurement of a pair of ports did what it should")
def judge_works(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each ordered pair of ports, over all its RDMA measurements."""
    pairs: dict[Subject, list[Measurement]] = {}
    for measurement in case.serving(criterion):
        pairs.setdefault(subject_of(measurement), []).append(measurement)
    return [_works(case, criterion, subject, mine) for subject, mine in pairs.items()]


def broken(case: Case, measurement: Measurement) -> Result | None:
    """The measurement's result where it shows that RDMA does not work between its ports, else None.

    A run that did not end in time shows it only where the ends' words or counters tell what is wrong: a node may have
    been too busy, and then nothing is known.
    """
    result = case.latest.get(measurement.id)
    if result is None or result.status not in BROKEN:
        return None
    failure = result.failure
    if failure is None or (result.status == "timeout" and not (failure.at or failure.towards)):
        return None
    return result if failure.code and failure.code not in NOT_THE_FABRIC else None


def _works(case: Case, criterion: Criterion, subject: Subject, mine: list[Measurement]) -> Judgement:
    bad = [m for m in mine if broken(case, m) is not None]
    if bad:
        first = case.latest[bad[0].id]
        reason = f"{_words(bad[0])}: {first.error}"
        if len(mine) > 1:
            reason = f"{len(bad)} of {number_of(len(mine), 'run')} fail; {reason}"
        return judgement(criterion, subject, "fail", "not-working", reason, [m.id for m in bad], text="does not work")
    ids = [m.id for m in mine]
    gone = unusable(case, criterion, subject, ids, None)
    if gone is not None:
        return gone
    unproved = [words for m in mine if (r := case.usable(m.id)) is not None for words in _unproved(case, m, r)]
    if unproved:
        more = f"; and {len(unproved) - 3} more" if len(unproved) > 3 else ""
        why = f"not proved: {'; '.join(unproved[:3])}{more}"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids)
    text = _proof(case, mine)
    return judgement(
        criterion, subject, "pass", "within-bounds", f"{number_of(len(mine), 'run')}: {text}", ids, text=text
    )


def _unproved(case: Case, measurement: Measurement, result: Result) -> list[str]:
    """What a result lacks, or contradicts, of the proof that RDMA was used as planned; empty where it is whole."""
    name = _words(measurement)
    values = {s.metric: s.value for s in result.samples}
    again = values.pop("rdma_retransmits", None)
    found = []
    if not values or not all(math.isfinite(v) and v > 0 for v in values.values()):
        found.append(f"{name} has no figure")
    if again is None or again < 0:
        found.append(f"{name} has no rdma_retransmits")
    facts: Mapping[str, object] = result.plain
    keys = ["device", "peer_device", "gid_index", "peer_gid_index"]
    if measurement.kind != "rdma-ucx":  # which does not say it
        keys.append("active_mtu")
    if measurement.kind == "rdma-first-light":
        keys.append("peer_active_mtu")
    found += [f"{name} does not say {key}" for key in keys if not _said(key, facts.get(key))]
    wanted: dict[str, object] = {"link_layer": case.fabric.link_layer, "peer_link_layer": case.fabric.link_layer}
    if case.fabric.transport != "ib":
        wanted |= {"roce_version": "RoCE v2", "peer_roce_version": "RoCE v2"}
    wanted |= {key: case.fabric.rdma_mtu for key in keys if key.endswith("active_mtu")}
    for key, value in wanted.items():
        if key in keys and not _said(key, facts.get(key)):
            continue  # said above
        if (key in facts or not key.endswith("active_mtu")) and facts.get(key) != value:
            found.append(f"{name}: {key} is {facts.get(key) or 'not known'}, {value} wanted")
    for key, end in zip(("device", "peer_device"), measurement.endpoints, strict=True):
        behind = _device_behind(case, end)
        if behind and _said(key, facts.get(key)) and facts.get(key) != behind:
            found.append(f"{name} used {facts[key]} of {end.node}, but {end} is {behind}")
    return found


def _device_behind(case: Case, end: Endpoint) -> str:
    """The RDMA device that carries a port by what the node says of its ports; "" where it was not read."""
    seen = port_of(case, end)
    return seen.device if seen is not None else ""


def _said(key: str, value: object) -> bool:
    """True where a fact is of its kind: a device is a name, an index or MTU a number."""
    if key.endswith("device"):
        return isinstance(value, str) and bool(value)
    return type(value) is int and value >= 0


def _words(measurement: Measurement) -> str:
    """A measurement's kind and label without its ports: "rdma-bandwidth.write"."""
    a, b = measurement.endpoints
    return measurement.id.removesuffix(f".{a.node}-{a.port}.{b.node}-{b.port}")


def _proof(case: Case, mine: list[Measurement]) -> str:
    """On what they ran, by the facts of their results; what differs between runs is listed."""
    results = [r for m in mine if (r := case.usable(m.id)) is not None]

    def all_of(*keys: str) -> str:
        found = dict.fromkeys(str(r.plain[key]) for key in keys for r in results if r.plain.get(key) not in (None, ""))
        return "/".join(found) or "unknown"

    again = sum(v for r in results for v in r.values("rdma_retransmits"))
    kind = all_of("roce_version", "peer_roce_version") if case.fabric.transport != "ib" else all_of("link_layer")
    return (
        f"device {all_of('device', 'peer_device')}, {kind}, GID index {all_of('gid_index', 'peer_gid_index')}, "
        f"RDMA MTU {all_of('active_mtu')}, {again:g} packets repeated or out of order"
    )


def _quantity(measurement: Measurement) -> tuple[str, Subject]:
    """Metric and subject of a bandwidth or latency measurement."""
    op, both = str(measurement.params.get("op", "")), bool(measurement.params.get("bidirectional"))
    source, destination = measurement.endpoints
    what = "latency_us" if measurement.kind == "rdma-latency" else f"{'bidirectional' if both else 'bandwidth'}_gbps"
    return f"rdma_{op}_{what}", Subject.pair(source, destination, op, both)


def _key(measurement: Measurement) -> str:
    """Under which key the fabric has its bound."""
    if measurement.kind == "rdma-latency":
        return "rdma_read_latency" if measurement.params.get("op") == "read" else "rdma_write_latency"
    return BOTH_WAYS if measurement.params.get("bidirectional") else "rdma_bandwidth"


def _bound(case: Case, measurement: Measurement, medians: Sequence[float]) -> Bound | None:
    """The fabric's bound. Where its limit is derived and not published no pair may take much longer than the others:
    `medians` are those of all pairs, by the same operation.
    """
    key = _key(measurement)
    bound, limit = case.bounds.get(key), getattr(case.fabric, key, None)
    times = limit.times_median if isinstance(limit, RdmaLatency) else None
    if bound is None or bound.maximum is None or times is None or case.virtual:
        return bound
    if len(medians) < 2:
        line = "only one pair was measured, so that there is none to compare it with"
        return bound.model_copy(update={"derivation": (*bound.derivation, line)})
    middle = statistics.median_low(medians)  # of two pairs the faster one: a mean would hide the other
    most = min(bound.maximum, times * middle)
    lines = (
        *bound.derivation,
        f"median of the {number_of(len(medians), 'pair')}: {middle:.4g} us; none may take more than "
        f"{times:g} x {middle:.4g} = "
        f"{times * middle:.4g} us",
        f"limit: the lesser of the two, {most:.4g} us",
    )
    return bound.model_copy(update={"maximum": most, "derivation": lines})


@method(
    "rdma", "RDMA figures of a pair by operation against the fabric profile's bounds", figures=True, counts="results"
)
def judge_rdma(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each ordered pair and operation, over all runs of it: its median against the bound."""
    groups: dict[tuple[str, Subject], list[Measurement]] = {}
    for measurement in case.serving(criterion):
        groups.setdefault(_quantity(measurement), []).append(measurement)
    medians: dict[str, list[float]] = {}
    for (metric, _), mine in groups.items():
        values = [v for m in mine if (r := case.usable(m.id)) is not None for v in r.values(metric)]
        if values and all(map(math.isfinite, values)):
            medians.setdefault(metric, []).append(statistics.median(values))
    return [
        _figure(case, criterion, metric, subject, mine, medians.get(metric, []))
        for (metric, subject), mine in groups.items()
    ]


def _figure(
    case: Case,
    criterion: Criterion,
    metric: str,
    subject: Subject,
    mine: list[Measurement],
    medians: Sequence[float],
) -> Judgement:
    bound, ids, unit = _bound(case, mine[0], medians), [m.id for m in mine], criterion.unit or ""
    gone = unusable(case, criterion, subject, ids, bound)
    if gone is not None:
        return gone
    tries = [list(filter(None, same)) for same in zip_longest(*(case.tries(m.id) for m in mine))]
    lacking = [r.measurement for same in tries for r in same if not _has(r, metric, unit)]
    if lacking:
        why = f"{lacking[0]} has a result, but no {metric} in {unit} in it"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids, bound=bound)
    attempts = [Attempt(tuple(v for r in same for v in r.values(metric)), loss_of(same)) for same in tries]
    values = [value for attempt in attempts for value in attempt.values]
    summary = summarize(values)
    measured = f"measured {summary.median:.4g} {'Gbit/s' if unit == 'Gbit/s' else unit}"
    ceiling = bound.ceiling if bound is not None and not case.virtual else None  # virtual ports have no line
    most = ceiling * CEILING_SLACK if ceiling is not None else math.inf
    least = rdma_least_us(case.fabric, _key(mine[0]))[0] if unit == "us" else None
    wrong = impossible(values, unit, metric, most, least)
    if wrong:
        return judgement(criterion, subject, "not-measured", "above-ceiling", wrong, ids, bound=bound, summary=summary)
    if case.virtual and criterion.rehearsal.judge == "not-judged":
        fabric = "emulated" if any(case.emulated(m) for m in mine) else "virtual"
        why = f"not judged: {fabric} fabric, {measured}"
        return judgement(criterion, subject, "not-measured", "virtual", why, ids, bound=bound, summary=summary)
    if bound is None:
        why = f"no bound published for {case.fabric.name}; {measured}"
        return judgement(criterion, subject, "not-measured", "no-bound", why, ids, summary=summary)
    return decide(attempts, lambda some: against(criterion, subject, ids, summarize(some), bound))


def _has(result: Result | None, metric: str, unit: str) -> bool:
    """True where the result has the metric, in this unit alone, and finite."""
    mine = [s for s in result.samples if s.metric == metric] if result is not None else []
    return bool(mine) and all(s.unit == unit and math.isfinite(s.value) for s in mine)
