"""Training rates and scaling efficiency.

Source of the formula: Dell EMC whitepaper on deep-learning scaling on PowerEdge C4140 (February 2019), scaling
efficiency: measured(N) / (N x measured(1)).
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from validation.analysis.scaling import average_rate, efficiency
from validation.analysis.stats import summarize
from validation.kinds.record import names
from validation.kinds.trained import NO_MPIRUN, conditions_of, config_of, words_of
from validation.measures.training.facts import TrainingFacts
from validation.model import Measurement, Result
from validation.report.documents import RunDocuments
from validation.report.numbers import NONE, number, percent
from validation.report.svg.charts import ScalingBar, scaling

KIND = "training-short"
METRIC = "images_per_s"
_ORDER = ("1", "intra", "inter")
_TITLES = {"1": "one rank", "intra": "inside a node", "inter": "across nodes"}


@dataclass(frozen=True)
class TrainingRow:
    """One training job. Rates in images/s for the whole job, of all its attempts: `average` is all images over all the
    time, as the published figures are, `rate` the median of the steps; `low` and `high` are the 95 % interval of the
    median, as the judge has them.
    """

    measurement: str
    title: str
    ranks: int
    hosts: str
    steps: int
    batch: str
    average: float | None
    rate: float | None
    low: float | None
    high: float | None
    relative_mad: float | None
    efficiency: float | None
    formula: str | None
    problem: str | None
    model: str
    trained: str  # network, batch, precision in words; "" of the small network
    conditions: str  # batch and precision alone
    on_gpus: bool
    launched: str = ""  # by what, where that is not the plan's mpirun


@dataclass(frozen=True)
class Training:
    """The training table and its figure; `figure` is None when no two jobs can be compared."""

    rows: tuple[TrainingRow, ...]
    figure: Markup | None


def _label(measurement: Measurement) -> str:
    return str(measurement.params.get("label", measurement.id))


def title(measurement: Measurement) -> str:
    """What a job is called in the report."""
    label, trained = _label(measurement), words_of(measurement)
    place = _TITLES.get(label, f"{label} ranks" if label.isdigit() else label)
    return f"{trained}, {place}" if trained else place


def _rank(measurement: Measurement) -> tuple[tuple[str, ...], int, int, str]:
    label, ranks = _label(measurement), int(str(measurement.params.get("ranks", 0)))
    return (config_of(measurement), _ORDER.index(label) if label in _ORDER else 1, ranks, label)


def _problem(latest: Result | None) -> str:
    if latest is None:
        return "no result"
    facts = latest.facts_of(TrainingFacts)
    return latest.error or (facts.out_of_memory if facts else "") or f"{latest.status}, no {METRIC}"


def _on_gpus(measurement: Measurement, latest: Result | None) -> bool:
    """By what the ranks said; of a job that said nothing by its plan."""
    facts = latest.facts_of(TrainingFacts) if latest is not None else None
    if facts is None or not facts.devices:
        return measurement.params.get("device") == "gpu"
    return all(bool(device.gpu) for device in facts.devices)


def launched(documents: RunDocuments, result: Result | None) -> str:
    """What is to be said of who launched a job: torchrun, in an image that has no mpirun. Else ""."""
    facts = result.facts_of(TrainingFacts) if result is not None else None
    if facts is None or facts.launcher != "torchrun" or documents.topology.here is not None:
        return ""
    return f"launched by torchrun: {NO_MPIRUN}"


def _positive(rates: list[float]) -> bool:
    return bool(rates) and min(rates) > 0


def training(documents: RunDocuments) -> Training | None:
    """All short training jobs of the plan, measured or not; None when none was planned."""
    planned = sorted((m for m in documents.plan.measurements if m.kind == KIND), key=_rank)
    if not planned:
        return None
    results = documents.latest
    rates: dict[str, list[float]] = {m.id: [] for m in planned}
    for result in documents.results:
        if result.measurement in rates and result.status == "ok":
            rates[result.measurement] += result.values(METRIC)
    ones = {config_of(m): rates[m.id] for m in reversed(planned) if int(str(m.params.get("ranks", 0))) == 1}
    rows, bars = [], []
    for m in planned:
        single = ones.get(config_of(m), [])
        base = average_rate(single) if _positive(single) else None
        values, ranks = rates[m.id], int(str(m.params.get("ranks", 0)))
        found = summarize(values) if values else None
        average = average_rate(values) if _positive(values) else None
        scaled = efficiency(values, single, ranks).value if average and base and ranks > 1 else None
        latest = results.get(m.id)
        problem = None if values else _problem(latest)
        if average is not None and base is not None:
            bars.append(ScalingBar(f"{title(m)} ({ranks})", average, ranks * base, scaled))
        rows.append(
            TrainingRow(
                measurement=m.id,
                title=title(m),
                ranks=ranks,
                hosts=", ".join(names(m, "hosts") or m.nodes),
                steps=len(values),
                batch=str(m.params.get("batch", NONE)),
                average=average,
                rate=found.median if found else None,
                low=found.low if found else None,
                high=found.high if found else None,
                relative_mad=found.mad / found.median if found and found.median else None,
                efficiency=scaled,
                formula=f"{number(average)} / ({ranks} \u00d7 {number(base)}) = {percent(scaled)}"
                if average is not None and base is not None and scaled is not None
                else None,
                problem=problem,
                model=config_of(m)[0],
                trained=words_of(m),
                conditions=conditions_of(m),
                on_gpus=_on_gpus(m, latest),
                launched=launched(documents, latest),
            )
        )
    return Training(rows=tuple(rows), figure=scaling(bars) if len(bars) > 1 else None)
