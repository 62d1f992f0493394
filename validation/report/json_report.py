"""The report as one JSON document: everything that the HTML shows, for programs. Its form: json_entries.py."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from functools import lru_cache
from io import BytesIO
from statistics import median
from typing import Any

from pydantic_core import to_json

from validation.measures.pool.use_rows_figures import pool_use
from validation.model import (
    Bound,
    CriterionVerdict,
    Judgement,
    Model,
    Node,
    Result,
    VerdictDoc,
)
from validation.model.node_facts import NodeFacts
from validation.report.claims import conformance_of, sentence
from validation.report.criteria import FAMILIES, bound_lines, decisive, tally
from validation.report.documents import RunDocuments
from validation.report.evidence import missing, notes
from validation.report.json_entries import (
    SCHEMA,
    ConformanceEntry,
    CriterionEntry,
    Judged,
    MissingEntry,
    NodeEntry,
    ReportDoc,
    WaiverEntry,
)
from validation.report.named_findings import named
from validation.report.repeat import limits
from validation.report.summary import verdict_of
from validation.report.summary_page import sentences
from validation.report.words import front_words
from validation.rules.criterion import family_of


class _Bounds:
    """Every distinct bound once, in the order of first use."""

    def __init__(self) -> None:
        self.positions: dict[Bound, int] = {}

    def place(self, bound: Bound | None) -> int | None:
        if bound is None:
            return None
        return self.positions.setdefault(bound, len(self.positions))


def _judged(judgement: Judgement, bounds: _Bounds) -> dict[str, Any]:
    """A `Judged`: of a fleet there are too many to make a model of each."""
    bound = bounds.place(judgement.bound)
    return {name: bound if name == "bound" else getattr(judgement, name) for name in Judged.model_fields}


def _criterion(criterion: CriterionVerdict, documents: RunDocuments, bounds: _Bounds) -> bytes:
    """A `CriterionEntry` as JSON."""
    entry = documents.catalogue.get(criterion.id)
    place, decides = decisive(criterion.judgements) or (None, None)
    words = bound_lines(decides.bound if decides else None) or ((entry.bound.said(documents.fabric),) if entry else ())
    key = family_of(criterion.id)
    without = CriterionEntry(
        id=criterion.id,
        family=FAMILIES.get(key, key),
        statement=criterion.statement,
        source=criterion.source,
        required=criterion.required,
        owed=criterion.owed,
        not_owed=criterion.not_owed,
        provisional=entry is not None and entry.bound.provisional,
        bound_words=words,
        verdict=criterion.verdict,
        reason_code=criterion.reason_code,
        reason=criterion.reason,
        coverage=criterion.coverage,
        decisive=place,
        judgements=(),
    )
    return _json({**vars(without), "judgements": [_judged(j, bounds) for j in criterion.judgements]})


def _waivers(verdict: VerdictDoc) -> tuple[WaiverEntry, ...]:
    waived = {w.criterion for w in verdict.waivers}
    judged = {(c.id, j.subject): j.reason for c in verdict.criteria if c.id in waived for j in c.judgements}
    whole = {c.id: c.reason for c in verdict.criteria}
    return tuple(
        WaiverEntry(
            criterion=w.criterion,
            subject=subject if (w.criterion, subject) in judged else None,
            who=w.who,
            when=w.when,
            expires=w.expires,
            why=w.why,
            words=judged.get((w.criterion, subject), whole[w.criterion]),
        )
        for w in verdict.waivers
        for subject in w.covered
    )


def _node(node: Node, facts: dict[str, Result]) -> NodeEntry:
    found = facts.get(node.name)
    return NodeEntry(
        name=node.name,
        groups=node.groups,
        virtual=node.virtual,
        emulated=node.emulated,
        os_stand_in=node.os_stand_in,
        slots=node.slots,
        ports=node.ports,
        declared=node.bom,
        declared_stack=node.stack,
        found=None if found is None else found.facts_of(NodeFacts),
    )


def _distributions(result: Result) -> list[dict[str, Any]]:
    """`Distribution`s."""
    groups: dict[tuple[str, str], list[float]] = {}
    if len(result.samples) == 1:  # most of a fleet's
        (only,) = result.samples
        same = dict.fromkeys(("minimum", "median", "maximum"), only.value)
        return [{"metric": only.metric, "unit": only.unit, "count": 1, **same}]
    for sample in result.samples:
        groups.setdefault((sample.metric, sample.unit), []).append(sample.value)
    return [
        {"metric": metric, "unit": unit, "count": len(v), "minimum": min(v), "median": median(v), "maximum": max(v)}
        for (metric, unit), v in groups.items()
    ]


def _results(documents: RunDocuments) -> Iterator[bytes]:
    """The `ResultEntry`s as JSON, in the order of the plan."""
    planned = {m.id: (index, m) for index, m in enumerate(documents.plan.measurements)}
    last = {r.measurement: index for index, r in enumerate(documents.results)}
    places = [planned[r.measurement][0] for r in documents.results]
    quote = lru_cache(maxsize=20_000)(shlex.quote)
    for index in sorted(range(len(places)), key=places.__getitem__):
        r = documents.results[index]
        provenance, measurement = r.provenance, planned[r.measurement][1]
        yield _json(
            {
                "measurement": r.measurement,
                "kind": measurement.kind,
                "suite": measurement.suite,
                "status": r.status,
                "error": r.error,
                "counts": last[r.measurement] == index,
                "nodes": provenance.nodes,
                "devices": provenance.devices,
                "tool": provenance.tool,
                "tool_version": provenance.tool_version,
                "command": " ".join(map(quote, provenance.command)),
                "started": provenance.started,
                "ended": provenance.ended,
                "duration_s": provenance.duration_s,
                "samples": _distributions(r),
                "raw": [
                    {"path": log.path, "sha256": log.sha256, "state": documents.raw[log.path]} for log in provenance.raw
                ],
            }
        )


def _conformance(documents: RunDocuments, verdict: VerdictDoc) -> ConformanceEntry:
    found = conformance_of(documents, verdict)
    return ConformanceEntry(
        sentence=sentence(found),
        rehearsal=found.rehearsal,
        here=found.here,
        counts={state: count for state, count in found.counts.items()},
        claims=found.claims,
    )


def _without(documents: RunDocuments, verdict: VerdictDoc) -> ReportDoc:
    """Everything that the report says about a run, without criteria, their bounds and results."""
    latest = documents.latest
    facts = {
        m.nodes[0]: latest[m.id]
        for m in documents.plan.measurements
        if m.kind == "facts" and m.nodes and m.id in latest and latest[m.id].status == "ok"
    }
    return ReportDoc(
        schema=SCHEMA,
        run=documents.info,
        constructed=documents.constructed,
        rehearsal=documents.virtual or verdict.sign_off == "REHEARSAL",
        judged=documents.verdict is not None,
        sign_off=verdict.sign_off,
        outcome=verdict.outcome,
        headline=verdict.line,
        customer=documents.customer,
        sentences=sentences(documents, verdict, front_words("en")),
        profile=verdict.profile,
        planned=verdict.planned,
        measured=verdict.measured,
        missing=tuple(
            MissingEntry(measurement=m.measurement.id, criteria=m.measurement.criteria, reason=m.reason)
            for m in missing(documents)
        ),
        counts=tally(verdict.criteria),
        findings=tuple(map(named, verdict.findings)),
        waivers=_waivers(verdict),
        points=verdict.points,
        notes=notes(documents, verdict),
        limits=limits(documents, verdict),
        left_out=tuple(left.why for left in documents.plan.left_out),
        coverage=documents.plan.coverage,
        fabric=documents.fabric,
        lab_link=documents.topology.lab_link,
        nodes=tuple(_node(n, facts) for n in documents.topology.nodes),
        parts=documents.parts,
        conformance=_conformance(documents, verdict),
        built=documents.built,
        bounds=(),
        criteria=(),
        pool_use=pool_use(documents),
        results=(),
    )


def report_json(documents: RunDocuments) -> bytes:
    """report.json as UTF-8 text, keys in the order of the schema. Lists of things stand one thing a line.

    Each thing is written as soon as it is made: a fleet's are four times as large as what is written.
    """
    verdict = verdict_of(documents)
    document = _without(documents, verdict)
    bounds = _Bounds()
    lines: dict[str, Iterable[bytes]] = {"criteria": [_criterion(c, documents, bounds) for c in verdict.criteria]}
    lines["bounds"] = (_model(bound) for bound in bounds.positions)
    lines["results"] = _results(documents)
    out = BytesIO()
    for place, (name, field) in enumerate(ReportDoc.model_fields.items()):
        out.write(f"{',' if place else '{'}\n{json.dumps(field.alias or name)}: ".encode())
        value = getattr(document, name)
        if name in lines:
            _write_lines(out, lines.pop(name))
        elif isinstance(value, tuple) and value and isinstance(value[0], Model):
            _write_lines(out, map(_model, value))
        elif isinstance(value, Model):
            out.write(_model(value))
        else:
            out.write(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    out.write(b"\n}\n")
    return out.getvalue()


def _write_lines(out: BytesIO, items: Iterable[bytes]) -> None:
    before = b"[\n"
    for item in items:
        out.write(before)
        out.write(item)
        before = b",\n"
    out.write(b"[]" if before == b"[\n" else b"\n]")


def _model(value: Model) -> bytes:
    return value.model_dump_json().encode()


def _json(value: dict[str, Any]) -> bytes:
    """As pydantic writes a model with these fields."""
    return to_json(value, inf_nan_mode="null")
