"""From the documents of several runs to one campaign. Reads files and judges nothing: each verdict is its run's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from validation.campaign.fit import refuse_misfits
from validation.campaign.model import Campaign, CampaignRun, Cell, NotTogether, Row, Section
from validation.campaign.published import published
from validation.campaign.sections import PARTS, RATE, Part
from validation.kinds.record import names
from validation.measures.training.jobs_figures import Training, TrainingRow, training
from validation.model import CriterionVerdict, Judgement, Measurement, VerdictDoc, VerdictName
from validation.probes.train_networks import SMALL
from validation.report.claims import conformance_of
from validation.report.criteria import bound_lines, worst
from validation.report.documents import RunDocuments, read_run
from validation.report.numbers import number, plural
from validation.report.summary import verdict_of
from validation.rules.conformance import Conformance

OWN_NETWORK = "small network of the short test"
_GRAVITY: dict[VerdictName, int] = {"fail": 0, "not-measured": 1, "waived": 2, "pass": 3, "not-applicable": 4}
_UNUSABLE = "above-ceiling"  # such a value was rejected, and is none


@dataclass(frozen=True)
class Key:
    """What makes a row, beside its criterion."""

    case: str = ""
    model: str | None = None
    batch: int | None = None


@dataclass(frozen=True)
class _Run:
    """A run with its verdict."""

    documents: RunDocuments
    verdict: VerdictDoc
    label: str

    @cached_property
    def measurements(self) -> Mapping[str, Measurement]:
        return {m.id: m for m in self.documents.plan.measurements}

    @cached_property
    def criteria(self) -> Mapping[str, CriterionVerdict]:
        return {c.id: c for c in self.verdict.criteria}

    @cached_property
    def jobs(self) -> Training | None:
        return training(self.documents)

    @cached_property
    def conformance(self) -> Conformance:
        return conformance_of(self.documents, self.verdict)

    @property
    def name(self) -> str:
        return self.documents.info.run


def campaign_of(folders: Sequence[Path]) -> Campaign:
    """The runs in these folders side by side, in this order.

    ConfigError for a damaged run; NotTogether, one line, for runs that do not fit together, or fewer than two.
    """
    if len(folders) < 2:
        raise NotTogether("a campaign is made of two runs or more; one run alone: toolkit report RUN")
    documents = [read_run(folder) for folder in folders]
    refuse_misfits(documents)
    runs = [_Run(d, verdict_of(d), label) for d, label in zip(documents, _labels(documents), strict=True)]
    first = documents[0]
    return Campaign(
        site=first.info.site,
        rehearsal=first.virtual,
        constructed=first.constructed,
        nodes=tuple(n.name for n in first.topology.nodes),
        headline=_headline(runs),
        runs=tuple(map(_told, runs)),
        sections=tuple(_section(part, runs) for part in PARTS),
        notes=tuple(_notes(runs)),
    )


def _labels(documents: Sequence[RunDocuments]) -> list[str]:
    """Fabric and, in a lab, what its links are shaped to; the run's number where that is still not one run's own."""
    links = [d.topology.lab_link for d in documents]
    said = [
        f"{d.fabric.name} on {number(link.rate_gbps)} Gbit/s" if link else d.fabric.name
        for d, link in zip(documents, links, strict=True)
    ]
    count = Counter(said)
    return [f"{text} (run {index})" if count[text] > 1 else text for index, text in enumerate(said, 1)]


def _told(run: _Run) -> CampaignRun:
    info, topology, fabric = run.documents.info, run.documents.topology, run.documents.fabric
    verdict, link = run.verdict, topology.lab_link
    return CampaignRun(
        run=info.run,
        label=run.label,
        fabric=fabric.name,
        fabric_title=fabric.title,
        transport=fabric.transport,
        line_rate_gbps=fabric.line_rate_gbps,
        created=info.created,
        toolkit_version=info.toolkit_version,
        suites=info.suites,
        profile=verdict.profile.name if verdict.profile else None,
        rehearsal=run.documents.virtual,
        virtual=tuple(dict.fromkeys(n.virtual_words for n in topology.nodes if n.virtual)),
        lab_rate_gbps=link.rate_gbps if link else None,
        emulated=bool(link and link.emulated) or any(n.emulated for n in topology.nodes),
        judged=run.documents.verdict is not None,
        sign_off=verdict.sign_off,
        outcome=verdict.outcome,
        headline=verdict.headline,
        planned=verdict.planned,
        measured=verdict.measured,
    )


def _headline(runs: Sequence[_Run]) -> str:
    count = Counter(r.verdict.outcome for r in runs)
    words = [f"{count[outcome]} {outcome}" for outcome in ("failed", "incomplete", "passed") if count[outcome]]
    fabrics = len({r.documents.fabric.name for r in runs})
    kind = "rehearsals" if runs[0].documents.virtual else "runs"
    return f"{len(runs)} {kind} over {plural(fabrics, 'fabric')}: {', '.join(words)}"


def _notes(runs: Sequence[_Run]) -> Iterable[str]:
    for run in runs:
        if run.documents.verdict is None:
            yield f"{run.name} was not judged, for verdict.json is missing: toolkit report {run.name} judges it."
    for what, found in (
        ("measured by different releases of this toolkit", [r.documents.info.toolkit_version for r in runs]),
        ("made of different suites", [", ".join(r.documents.info.suites) for r in runs]),
        ("judged by different acceptance profiles", [r.documents.info.profile or "none" for r in runs]),
    ):
        if len(set(found)) > 1:
            told = "; ".join(f"{r.label}: {words}" for r, words in zip(runs, found, strict=True))
            yield f"The runs were {what}: {told}."


# --- rows ------------------------------------------------------------------------------------------------------


def _section(part: Part, runs: Sequence[_Run]) -> Section:
    rows = [row for id_, name in part.criteria for row in _rows(id_, name, runs)]
    claims = published(
        [id_ for id_, _ in part.criteria], [(r.name, r.documents.reference, r.conformance) for r in runs]
    )
    return Section(key=part.key, title=part.title, rows=tuple(rows), published=claims)


def _rows(id_: str, name: str, runs: Sequence[_Run]) -> list[Row]:
    """A row for each case that any of the runs has; one that says why where none has any."""
    found = [_rates(run) if id_ == RATE else _judged(run, id_) for run in runs]
    keys = list(dict.fromkeys(key for cells in found for key in cells)) or [Key()]
    known = next((r.documents.catalogue[id_] for r in runs if id_ in r.documents.catalogue), None)
    units = [unit for cells in found for unit, _ in cells.values() if unit]
    return [
        Row(
            criterion=id_,
            name=name,
            statement=known.statement if known else "",
            case=key.case,
            model=key.model,
            batch=key.batch,
            unit=units[0] if units else (known.unit if known else None) or "",
            cells=tuple(
                cells[key][1] if key in cells else _empty(run, id_, bool(cells))
                for run, cells in zip(runs, found, strict=True)
            ),
        )
        for key in keys
    ]


def _empty(run: _Run, id_: str, others: bool) -> Cell:
    """Why the run has nothing here. `others`: it has other cases of the criterion."""
    criterion = run.criteria.get(id_)
    if criterion is None:
        return Cell(
            run=run.name, verdict="not-measured", reason_code="no-probe", reason="not in the catalogue of this run"
        )
    if others:
        return Cell(
            run=run.name,
            verdict="not-measured",
            reason_code="not-selected",
            reason="this case is not in the run's plan",
        )
    return Cell(run=run.name, verdict=criterion.verdict, reason_code=criterion.reason_code, reason=criterion.reason)


def _judged(run: _Run, id_: str) -> dict[Key, tuple[str, Cell]]:
    """What the run says of a criterion, by case: unit and cell."""
    criterion = run.criteria.get(id_)
    groups: dict[Key, list[Judgement]] = {}
    for judgement in criterion.judgements if criterion else ():
        groups.setdefault(_key(run, judgement), []).append(judgement)
    return {key: (_unit(run, id_, mine), _cell(run, mine)) for key, mine in groups.items()}


def _key(run: _Run, judgement: Judgement) -> Key:
    """The case of a judgement, and of the measurement behind it the network and its batch."""
    case = judgement.about.sort.words
    evidence = [run.measurements[id_] for id_ in judgement.evidence if id_ in run.measurements]
    job = _job(evidence[-1]) if evidence else Key()
    return replace(job, case=case) if case else job


def _job(measurement: Measurement) -> Key:
    params = measurement.params
    ranks, batch, model = params.get("ranks"), params.get("batch"), params.get("model")
    if measurement.kind == "training-short":
        # a plan of an older release names no network; one network in two number formats is two jobs
        precision = str(params.get("precision", "fp32"))
        model = OWN_NETWORK if model in (None, SMALL) else str(model)
        model += "" if precision == "fp32" else f", {precision}"
    case = ""
    if isinstance(ranks, int):
        nodes = len(names(measurement, "hosts") or measurement.nodes)
        case = f"{plural(ranks, 'rank')} on {plural(nodes, 'node')}"
    return Key(case, None if model is None else str(model), batch if isinstance(batch, int) else None)


def _unit(run: _Run, id_: str, judgements: Sequence[Judgement]) -> str:
    found = next((j.bound.unit for j in judgements if j.bound is not None), None)
    known = run.documents.catalogue.get(id_)
    return found or (known.unit if known else None) or ""


def _cell(run: _Run, judgements: Sequence[Judgement]) -> Cell:
    usable = sorted(
        ((j.value, j) for j in judgements if j.value is not None and j.reason_code != _UNUSABLE), key=lambda v: v[0]
    )
    gravest = min((j.verdict for j in judgements), key=_GRAVITY.__getitem__)
    deciding = worst([j for j in judgements if j.verdict == gravest])
    assert deciding is not None  # a group has a judgement
    middle = usable[(len(usable) - 1) // 2][1] if usable else None
    return Cell(
        run=run.name,
        value=middle.value if middle else None,
        low=middle.low if middle else None,
        high=middle.high if middle else None,
        subject=middle.subject if middle else None,
        lowest=usable[0][0] if usable else None,
        highest=usable[-1][0] if usable else None,
        subjects=len(judgements),
        measured=len(usable),
        verdict=deciding.verdict,
        reason_code=deciding.reason_code,
        reason=deciding.reason,
        deciding=deciding.subject,
        bound=bound_lines(deciding.bound),
        evidence=tuple(dict.fromkeys(id_ for j in judgements for id_ in j.evidence)),
    )


def _rates(run: _Run) -> dict[Key, tuple[str, Cell]]:
    """Rates of the training jobs, as the report has them; their verdict is that of the job's spread."""
    criterion = run.criteria.get(RATE)
    if criterion is None or run.jobs is None:
        return {}
    judged = {j.evidence[-1]: j for j in criterion.judgements if j.evidence}
    return {
        _job(run.measurements[row.measurement]): ("images/s", _rate(run, row, judged.get(row.measurement), criterion))
        for row in run.jobs.rows
    }


def _rate(run: _Run, row: TrainingRow, judgement: Judgement | None, criterion: CriterionVerdict) -> Cell:
    said = judgement or criterion
    return Cell(
        run=run.name,
        value=row.rate,
        low=row.low,
        high=row.high,
        subject=row.title,
        lowest=row.rate,
        highest=row.rate,
        subjects=1,
        measured=int(row.rate is not None),
        verdict=said.verdict,
        reason_code=said.reason_code,
        reason=row.problem or said.reason,
        deciding=row.title,
        bound=tuple(f"spread {line}" for line in bound_lines(judgement.bound)) if judgement else (),
        evidence=(row.measurement,),
    )
