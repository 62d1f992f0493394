"""A trend for node-exporter's textfile collector: how the newest validation of a site ended, and what drifted.

Few series, of which none has the name of a run: Prometheus keeps each for as long as it keeps anything. All figures of
a run are in its own metrics.prom.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from validation.trend.model import Trend
from validation.trend.soaks import SoakFinding

HELP = {
    "elastic_ai_site_validated_timestamp_seconds": "When the newest judged validation of the site began.",
    "elastic_ai_site_overdue_seconds": "Age from which that validation is overdue.",
    "elastic_ai_site_passed": "1 where everything that it judged passed; 0 where it failed or is incomplete.",
    "elastic_ai_site_soak_findings": "Segments of a subject's newest burn-in that failed, or were broken off.",
    "elastic_ai_site_drift_ratio": "Change of a figure that drifted for the worse, as a share; of the largest ones.",
}
MOST_DRIFTS = 50
"""Series of drifts at most, the largest changes. Project default."""
MOST_FINDINGS = 50
"""Series of what burn-ins found at most, failures first. Project default."""

_COMMON = ("site", "fabric", "rehearsal")


class _Site(Collector):
    def __init__(self, trend: Trend, overdue_s: float, soaks: Sequence[SoakFinding]) -> None:
        self.trend, self.overdue_s, self.soaks = trend, overdue_s, soaks
        self.common = (trend.site, trend.fabric, str(trend.rehearsal).lower())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        newest = self.trend.runs[-1]
        began = datetime.fromisoformat(newest.created.replace("Z", "+00:00")).timestamp()
        found: dict[str, tuple[tuple[str, ...], list[tuple[tuple[str, ...], float]]]] = {
            "elastic_ai_site_validated_timestamp_seconds": ((), [((), began)]),
            "elastic_ai_site_overdue_seconds": ((), [((), self.overdue_s)]),
            "elastic_ai_site_passed": (("outcome",), [((newest.outcome,), float(newest.outcome == "passed"))]),
            "elastic_ai_site_soak_findings": (
                ("criterion", "subject", "found"),
                [((f.criterion, f.subject, f.found), float(f.segments)) for f in self.soaks[:MOST_FINDINGS]],
            ),
            "elastic_ai_site_drift_ratio": (
                ("criterion", "subject", "kind"),
                [((d.criterion, d.subject, d.kind), d.change) for d in self.trend.worse[:MOST_DRIFTS]],
            ),
        }
        for name, (labels, samples) in found.items():
            family = GaugeMetricFamily(name, HELP[name], labels=(*_COMMON, *labels))
            for values, number in samples:
                family.add_metric((*self.common, *values), number)
            yield family


def metrics_text(trend: Trend, overdue_s: float, soaks: Sequence[SoakFinding] = ()) -> bytes:
    """The text of the file. `overdue_s`: age of the newest validation from which another one is missing, in seconds."""
    registry = CollectorRegistry()
    registry.register(_Site(trend, overdue_s, soaks))
    return generate_latest(registry)
