"""Judging RDMA: whether it works between each pair of ports, and its bandwidth and latency by operation.

Whether it works is judged in a rehearsal too, for emulated machines speak real verbs. What only real ports can show,
a rate or a latency, is then reported and not judged.
"""

from __future__ import annotations

from validation.analysis.stats import summarize
from validation.criterion import Criterion
from validation.fabric import rdma_bandwidth_bound, rdma_latency_bound
from validation.judging.case import Case, judgement, unusable
from validation.judging.values import against, subject_of
from validation.model import Bound, Judgement, Measurement, Result

NOT_THE_FABRIC = frozenset({"tool-missing", "tool", "stopped"})
"""Faults of the tools and not of RDMA: they leave it unmeasured."""

BROKEN = ("failed", "timeout", "unparseable")


def judge_works(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each ordered pair of ports, over all its RDMA measurements."""
    pairs: dict[str, list[Measurement]] = {}
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
    if result.status == "timeout" and not (result.facts.get("at") or result.facts.get("towards")):
        return None
    fault = result.facts.get("fault")
    return result if fault and fault not in NOT_THE_FABRIC else None


def _works(case: Case, criterion: Criterion, subject: str, mine: list[Measurement]) -> Judgement:
    bad = [m for m in mine if broken(case, m) is not None]
    if bad:
        first = case.latest[bad[0].id]
        reason = f"{_words(bad[0])}: {first.error}"
        if len(mine) > 1:
            reason = f"{len(bad)} of {len(mine)} runs fail; {reason}"
        return judgement(criterion, subject, "fail", "not-working", reason, [m.id for m in bad], text="does not work")
    ids = [m.id for m in mine]
    gone = unusable(case, criterion, subject, ids, None)
    if gone is not None:
        return gone
    text = _proof(case, mine)
    return judgement(criterion, subject, "pass", "within-bounds", f"{len(mine)} runs: {text}", ids, text=text)


def _words(measurement: Measurement) -> str:
    """A measurement's kind and label without its ports: "rdma-bandwidth.write"."""
    a, b = measurement.endpoints
    return measurement.id.removesuffix(f".{a.node}-{a.port}.{b.node}-{b.port}")


def _proof(case: Case, mine: list[Measurement]) -> str:
    """On what they ran, by the facts of their results; what differs between runs is listed."""
    results = [r for m in mine if (r := case.usable(m.id)) is not None]

    def all_of(*keys: str) -> str:
        found = dict.fromkeys(str(r.facts[key]) for key in keys for r in results if r.facts.get(key) not in (None, ""))
        return "/".join(found) or "unknown"

    again = sum(v for r in results for v in r.values("rdma_retransmits"))
    kind = all_of("roce_version", "peer_roce_version") if case.fabric.transport != "ib" else all_of("link_layer")
    return (
        f"device {all_of('device', 'peer_device')}, {kind}, GID index {all_of('gid_index', 'peer_gid_index')}, "
        f"RDMA MTU {all_of('active_mtu')}, {again:g} packets repeated or out of order"
    )


def _quantity(measurement: Measurement) -> tuple[str, str]:
    """(metric, what it is in words) of a bandwidth or latency measurement."""
    op = str(measurement.params.get("op", ""))
    if measurement.kind == "rdma-latency":
        return f"rdma_{op}_latency_us", op
    if measurement.params.get("bidirectional"):
        return f"rdma_{op}_bidirectional_gbps", f"{op}, both ways"
    return f"rdma_{op}_bandwidth_gbps", op


def _bound(case: Case, measurement: Measurement) -> Bound | None:
    if measurement.kind == "rdma-latency":
        return rdma_latency_bound(case.fabric, measurement.params.get("op") == "read")
    return rdma_bandwidth_bound(case.fabric, bool(measurement.params.get("bidirectional")))


def judge_rdma(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each ordered pair and operation, over all runs of it: its median against the bound."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in case.serving(criterion):
        metric, words = _quantity(measurement)
        groups.setdefault((metric, f"{subject_of(measurement)} ({words})"), []).append(measurement)
    return [_figure(case, criterion, metric, subject, mine) for (metric, subject), mine in groups.items()]


def _figure(case: Case, criterion: Criterion, metric: str, subject: str, mine: list[Measurement]) -> Judgement:
    bound, ids, unit = _bound(case, mine[0]), [m.id for m in mine], criterion.unit or ""
    gone = unusable(case, criterion, subject, ids, bound)
    if gone is not None:
        return gone
    found = [s for m in mine if (r := case.usable(m.id)) is not None for s in r.samples if s.metric == metric]
    if not found or {s.unit for s in found} != {unit}:
        why = f"{ids[0]} has a result, but no {metric} in {unit} in it"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids, bound=bound)
    summary = summarize([s.value for s in found])
    measured = f"measured {summary.median:.4g} {'Gbit/s' if unit == 'Gbit/s' else unit}"
    if case.virtual and criterion.rehearsal.judge == "not-judged":
        fabric = "emulated" if any(case.emulated(m) for m in mine) else "virtual"
        why = f"not judged: {fabric} fabric, {measured}"
        return judgement(criterion, subject, "not-measured", "virtual", why, ids, bound=bound, summary=summary)
    if bound is None:
        why = f"no bound published for {case.fabric.name}; {measured}"
        return judgement(criterion, subject, "not-measured", "no-bound", why, ids, summary=summary)
    return against(criterion, subject, ids, summary, bound)
