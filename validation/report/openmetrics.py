"""The verdict as OpenMetrics text, for Prometheus (its node exporter reads the file, or any web server serves it).

All series are gauges, so that parsers of the older Prometheus format read them too. A verdict is five series, of which
one is 1: a criterion that was not measured says so, and its absence is never a pass. Units are base units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from validation.model import SignOff, VerdictDoc, VerdictName
from validation.report import judgement_columns
from validation.report.documents import RunDocuments
from validation.report.summary import verdict_of

# unit of a sample -> (unit of the series, factor)
_UNITS: dict[str, tuple[str, float]] = {
    "Gbit/s": ("bits_per_second", 1e9),
    "GB/s": ("bytes_per_second", 1e9),
    "ns": ("seconds", 1e-9),
    "us": ("seconds", 1e-6),
    "ms": ("seconds", 1e-3),
    "s": ("seconds", 1.0),
    "bytes": ("bytes", 1.0),
    "GiB": ("bytes", float(1 << 30)),
    "ratio": ("ratio", 1.0),
    "%": ("ratio", 0.01),
    "images/s": ("images_per_second", 1.0),
    "": ("count", 1.0),
}
_COMMON = ("run", "site", "fabric", "sign_off")
_BOUNDS = {"floor": "least that is accepted", "maximum": "most that is accepted", "ceiling": "most that is possible"}


def unit_of(unit: str) -> tuple[str, float]:
    """Name of the series' unit, and the factor from a sample's value to it."""
    if unit in _UNITS:
        return _UNITS[unit]
    return re.sub(r"[^a-z0-9]+", "_", unit.lower().replace("/s", "_per_second")).strip("_") or "count", 1.0


class _Run(Collector):
    """Everything of one run that is a number."""

    def __init__(self, documents: RunDocuments) -> None:
        self.documents = documents
        self.verdict: VerdictDoc = verdict_of(documents)
        self.common = (self.verdict.run, self.verdict.site, self.verdict.fabric, self.verdict.sign_off)

    def _gauge(self, name: str, words: str, labels: Iterable[str] = (), unit: str = "") -> GaugeMetricFamily:
        return GaugeMetricFamily(f"elastic_ai_{name}", words, labels=(*_COMMON, *labels), unit=unit)

    def _one(self, name: str, words: str, value: float, unit: str = "") -> GaugeMetricFamily:
        family = self._gauge(name, words, unit=unit)
        family.add_metric(self.common, value)
        return family

    def collect(self) -> Iterator[GaugeMetricFamily]:
        documents, verdict = self.documents, self.verdict
        rehearsal = documents.virtual or verdict.sign_off == "REHEARSAL"
        state = self._gauge("sign_off", "What the run is signed as: the one series that is 1.", ("state",))
        for name in get_args(SignOff):
            state.add_metric((*self.common, name), verdict.sign_off == name)
        yield state
        outcome = self._gauge("outcome", "How the run went: the one series that is 1.", ("state",))
        for name in ("passed", "failed", "incomplete"):
            outcome.add_metric((*self.common, name), verdict.outcome == name)
        yield outcome
        yield self._one("rehearsal", "1 when virtual or emulated parts took part: no acceptance.", rehearsal)
        yield self._one("constructed", "1 when the data of the run were made up: an example.", documents.constructed)
        yield self._one("measurements_planned", "Measurements that the plan has.", verdict.planned)
        yield self._one("measurements_usable", "Planned measurements with a usable result.", verdict.measured)
        created = _epoch(documents.info.created)
        if created is not None:
            yield self._one("run_created_timestamp_seconds", "When the run began, since 1970.", created, "seconds")
        criteria = self._gauge(
            "criterion_verdict",
            "Verdict on a criterion: the one series that is 1.",
            ("criterion", "required", "owed", "verdict"),
        )
        for criterion in verdict.criteria:
            said = ["true" if flag else "false" for flag in (criterion.required, criterion.owed)]
            for name in get_args(VerdictName):
                criteria.add_metric((*self.common, criterion.id, *said, name), criterion.verdict == name)
        yield criteria
        subjects = self._gauge(
            "subject_passed",
            "1 when the criterion passed on this subject; 0 otherwise, and the verdict says what it is instead.",
            ("criterion", "subject", "verdict", "reason"),
        )
        for criterion in verdict.criteria:
            for j in criterion.judgements:
                labels = (*self.common, criterion.id, j.subject, j.verdict, j.reason_code)
                subjects.add_metric(labels, j.verdict == "pass")
        yield subjects
        yield from self._values()
        yield from self._bounds()

    def _values(self) -> Iterator[GaugeMetricFamily]:
        labels = ("criterion", "metric", "subject", "verdict")
        words = {
            "measured": ("value", "Measured value, the median of its samples."),
            "interval_low": ("low", "Lower end of the 95 % interval of the measured value."),
            "interval_high": ("high", "Upper end of the 95 % interval of the measured value."),
        }
        for name, (attribute, text) in words.items():
            families: dict[str, GaugeMetricFamily] = {}
            for criterion in self.verdict.criteria:
                for j in criterion.judgements:
                    value = getattr(j, attribute)
                    if value is None:
                        continue
                    unit, factor = unit_of(j.bound.unit if j.bound else "")
                    if unit not in families:
                        families[unit] = self._gauge(f"{name}_{unit}", text, labels, unit)
                    metric = j.bound.metric if j.bound else ""
                    families[unit].add_metric(
                        (*self.common, criterion.id, metric, j.subject, j.verdict), value * factor
                    )
            yield from families.values()

    def _bounds(self) -> Iterator[GaugeMetricFamily]:
        for side, text in _BOUNDS.items():
            families: dict[str, GaugeMetricFamily] = {}
            for criterion in self.verdict.criteria:
                bounds = judgement_columns.bounds(criterion.judgements)
                found = sorted({(b.metric, b.unit, getattr(b, side)) for b in bounds if getattr(b, side) is not None})
                limits: dict[tuple[str, str], set[float]] = {}
                for metric, unit, value in found:
                    limits.setdefault((metric, unit), set()).add(value)
                for (metric, name), values in limits.items():
                    unit, factor = unit_of(name)
                    if unit not in families:
                        families[unit] = self._gauge(
                            f"bound_{side}_{unit}",
                            f"Bound: the {text}. Where subjects have different bounds, the strictest.",
                            ("criterion", "metric"),
                            unit,
                        )
                    strict = max(values) if side == "floor" else min(values)
                    families[unit].add_metric((*self.common, criterion.id, metric), strict * factor)
            yield from families.values()


def _epoch(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def open_metrics(documents: RunDocuments) -> bytes:
    """OpenMetrics text of the run, ending with `# EOF`; no time stamps of its own."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Run(documents))
    return bytes(generate_latest(registry))  # type: ignore[no-untyped-call]
