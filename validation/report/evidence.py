"""What was run, what is missing, and where every number comes from."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from validation.kinds import title
from validation.model import Measurement, Param, RawLog, Result, VerdictDoc
from validation.report.agreement import contradictions
from validation.report.criteria import slug
from validation.report.documents import RawState, RunDocuments
from validation.report.numbers import NONE


@dataclass(frozen=True)
class MissingResult:
    """A planned measurement without a usable result, and why."""

    measurement: Measurement
    reason: str


@dataclass(frozen=True)
class AnnexEntry:
    """A result with its provenance, as the annex prints it. `anchor` is None for an attempt that was repeated."""

    anchor: str | None
    result: Result
    raw: tuple[tuple[RawLog, RawState], ...]

    @property
    def command(self) -> str:
        """As a shell takes it; of a fleet few are shown."""
        return shlex.join(self.result.provenance.command)


@dataclass(frozen=True)
class KindRun:
    """All measurements of one kind: how many were planned and with which parameters."""

    title: str
    kind: str
    suite: str
    planned: int
    usable: int
    parameters: str
    tools: str


def missing(documents: RunDocuments) -> tuple[MissingResult, ...]:
    """Planned measurements without a usable result: those the verdict names, or, not judged, all without an `ok`."""
    results = documents.latest
    if documents.verdict is not None:
        ids = list(documents.verdict.missing)
    else:
        ids = [m.id for m in documents.plan.measurements if m.id not in results or results[m.id].status != "ok"]
    wanted = set(ids)
    out = []
    for measurement in documents.plan.measurements:
        if measurement.id not in wanted:
            continue
        result = results.get(measurement.id)
        if result is None:
            reason = "planned, but no result was recorded"
        elif result.status == "ok":
            reason = "a result exists, but it lacks what the criterion needs"
        else:
            reason = f"{result.status}: {result.error}" if result.error else result.status
        out.append(MissingResult(measurement, reason))
    return tuple(out)


def annex(documents: RunDocuments) -> tuple[AnnexEntry, ...]:
    """Every recorded result in the order of the plan; of repeated attempts the last one carries the anchor."""
    last = {r.measurement: index for index, r in enumerate(documents.results)}
    order = {m.id: index for index, m in enumerate(documents.plan.measurements)}
    numbered = sorted(enumerate(documents.results), key=lambda item: (order[item[1].measurement], item[0]))
    return tuple(
        AnnexEntry(
            anchor=slug(result.measurement) if last[result.measurement] == index else None,
            result=result,
            raw=tuple((log, documents.raw[log.path]) for log in result.provenance.raw),
        )
        for index, result in numbered
    )


def notes(documents: RunDocuments, verdict: VerdictDoc) -> tuple[str, ...]:
    """What else a reader must know: dropped lines, results that count nowhere, and the judge's own remarks."""
    out = [documents.torn] if documents.torn and documents.torn not in verdict.notes else []
    if documents.unplanned and documents.verdict is None:
        out.append(f"results that are in no plan were ignored: {', '.join(documents.unplanned[:5])}")
    if documents.rules.other:
        out.append(f"rules: {documents.rules.line()}")
    return (*out, *contradictions(documents), *verdict.notes)


def kinds(documents: RunDocuments) -> tuple[KindRun, ...]:
    """What ran, one line per kind; parameters that differ between measurements are left to the annex."""
    without = {m.measurement.id for m in missing(documents)}
    tools: dict[str, dict[str, None]] = {}
    by_id = {m.id: m for m in documents.plan.measurements}
    for result in documents.results:
        provenance = result.provenance
        name = f"{provenance.tool} {provenance.tool_version}".strip()
        tools.setdefault(by_id[result.measurement].kind, {}).setdefault(name)
    groups: dict[str, list[Measurement]] = {}
    for measurement in documents.plan.measurements:
        groups.setdefault(measurement.kind, []).append(measurement)
    return tuple(
        KindRun(
            title=title(kind),
            kind=kind,
            suite=", ".join(dict.fromkeys(m.suite for m in group)),
            planned=len(group),
            usable=sum(1 for m in group if m.id not in without),
            parameters=_common([m.params for m in group]),
            tools=", ".join(tools.get(kind, {})) or NONE,
        )
        for kind, group in groups.items()
    )


def _common(params: list[dict[str, Param]]) -> str:
    first = params[0]
    same = {k: v for k, v in first.items() if all(k in p and p[k] == v for p in params)}
    words = {k: " ".join(v) if isinstance(v, tuple) else v for k, v in same.items()}
    return ", ".join(f"{k} {v}" for k, v in words.items()) or NONE
