"""From two runs to what is different between them. Reads the documents of both, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from validation.analysis.part_changes import DIFFERENT, PartChange, part_changes
from validation.compare.model import (
    Change,
    Comparison,
    CriterionChange,
    Difference,
    Figure,
    NotComparable,
    SaidChange,
    Side,
)
from validation.compare.noise import ALPHA, LEAST, Shift, settled, shift_of_intervals, shift_of_samples
from validation.model import CriterionVerdict, Judgement, Node, Result, VerdictDoc
from validation.model.listed_parts import doubled
from validation.report.documents import RunDocuments, read_run
from validation.report.named_findings import named
from validation.report.numbers import plural, quantity
from validation.report.summary import verdict_of
from validation.report.system import fact_texts, fact_title
from validation.rules.criterion import Criterion
from validation.signing.record import Record, record_of

#: Facts that are another number each time somebody looks.
_RESTLESS = {"clock_offset_s"}


def compare(a: Path, b: Path) -> Comparison:
    """Run `a` (before) against run `b` (after).

    ConfigError for a damaged run; NotComparable, one line, where the runs measured different things.
    """
    old, new = read_run(a), read_run(b)
    _refuse(old, new)
    before, after = verdict_of(old), verdict_of(new)
    figures, gone, fresh = _figures(old, new, before, after)
    criteria = _criteria(before, after, figures)
    stack = _stack(old, new)
    records = record_of(a, old.info.run), record_of(b, new.info.run)
    parts = part_changes(old.parts, new.parts) if _listed(old) and _listed(new) else ()
    return Comparison(
        a=_side(old, before),
        b=_side(new, after),
        fabric=new.info.fabric,
        rehearsal=new.virtual,
        constructed=new.constructed,
        headline=_headline(before, after, criteria, stack)
        + _headline_of_parts(parts)
        + ("" if all(map(_known, (old, new))) else ", as far as known"),
        stack=stack,
        rules=_rules(old, new, before, after),
        nodes_gone=_only_in(old, new),
        nodes_new=_only_in(new, old),
        criteria=criteria,
        figures=figures,
        subjects_gone=gone,
        subjects_new=fresh,
        findings=tuple(map(named, after.findings)),
        notes=(*_notes(old, new), *_notes_of_parts(old, new, records)),
        parts=tuple(SaidChange(**one.model_dump(), words=one.said(records[0].words)) for one in parts),
        parts_unread=tuple(documents.info.run for documents in (old, new) if not _listed(documents)),
        level=ALPHA,
    )


def _refuse(old: RunDocuments, new: RunDocuments) -> None:
    def no(why: str, what_to_do: str) -> NotComparable:
        return NotComparable(f"{old.info.run} and {new.info.run} are not comparable: {why}; {what_to_do}")

    if old.fabric.name != new.fabric.name:
        raise no(f"fabric {old.fabric.name} against {new.fabric.name}", "compare runs of the same fabric profile")
    if old.virtual != new.virtual:
        raise no(
            "one is a rehearsal on virtual parts, the other ran on hardware", "compare a rehearsal with a rehearsal"
        )
    if old.constructed != new.constructed:
        raise no("one is a constructed example, the other was measured", "compare runs of the same kind")
    links = [d.topology.lab_link for d in (old, new)]
    if links[0] != links[1]:
        words = [quantity(link.rate_gbps, "Gbit/s") if link else "no lab link" for link in links]
        if words[0] == words[1]:
            words = [
                f"{w}, {'emulated' if link and link.emulated else 'not emulated'}"
                for w, link in zip(words, links, strict=True)
            ]
        raise no(f"lab links of {words[0]} against {words[1]}", "compare runs of the same lab")
    tags = [{one.service_tag for one in documents.parts if one.service_tag} for documents in (old, new)]
    if not {n.name for n in old.topology.nodes} & {n.name for n in new.topology.nodes} and not tags[0] & tags[1]:
        raise no("they have no node or service tag in common", "compare two runs of the same site")


def _listed(documents: RunDocuments) -> bool:
    """Whether it lists any part or service tag; a run from before parts were read does not."""
    return any(one.parts or one.service_tag for one in documents.parts)


def _headline_of_parts(parts: Sequence[PartChange]) -> str:
    odd = sum(one.what in DIFFERENT for one in parts)
    return f"; {plural(odd, 'difference')} by serial number" if odd else ""


def _notes_of_parts(old: RunDocuments, new: RunDocuments, records: tuple[Record, Record]) -> Iterator[str]:
    for documents, record in zip((old, new), records, strict=True):
        if record.fault:
            yield f"{record.run} was signed, but is not as it was signed: {record.fault}. toolkit verify says more."
        for double in doubled(documents.parts):
            yield f"{record.run}: {double}."


def _known(documents: RunDocuments) -> bool:
    return len(fact_texts(documents)) == len(documents.topology.nodes)


def _side(documents: RunDocuments, verdict: VerdictDoc) -> Side:
    info = documents.info
    return Side(
        run=info.run,
        site=info.site,
        created=info.created,
        toolkit_version=info.toolkit_version,
        sign_off=verdict.sign_off,
        outcome=verdict.outcome,
        planned=verdict.planned,
        measured=verdict.measured,
    )


def _only_in(one: RunDocuments, other: RunDocuments) -> tuple[str, ...]:
    names = {n.name for n in other.topology.nodes}
    return tuple(n.name for n in one.topology.nodes if n.name not in names)


# --- stack and rules -------------------------------------------------------------------------------------------


def _stack(old: RunDocuments, new: RunDocuments) -> tuple[Difference, ...]:
    """Facts, and what the inventory declares, that differ on nodes of both runs; equal changes in one row."""
    before, after = fact_texts(old), fact_texts(new)
    rows: dict[tuple[str, str | None, str | None], list[str]] = {}
    for node in new.topology.nodes:
        if node.name not in {n.name for n in old.topology.nodes}:
            continue
        one, two = before.get(node.name, {}), after.get(node.name, {})
        if not one or not two:
            continue  # not known is no change; it is said in the notes
        for key in dict.fromkeys([*two, *one]):
            if key not in _RESTLESS and one.get(key) != two.get(key):
                rows.setdefault((fact_title(key), one.get(key), two.get(key)), []).append(node.name)
    for node in new.topology.nodes:
        was = next((n for n in old.topology.nodes if n.name == node.name), None)
        for what, o, n in _declared(was, node) if was else ():
            rows.setdefault((what, o, n), []).append(node.name)
    found = [Difference(what=w, old=o, new=n, nodes=tuple(nodes)) for (w, o, n), nodes in rows.items()]
    if old.info.toolkit_version != new.info.toolkit_version:
        toolkit = ("This toolkit", old.info.toolkit_version, new.info.toolkit_version)
        found.append(Difference(what=toolkit[0], old=toolkit[1], new=toolkit[2]))
    return tuple(found)


def _declared(old: Node, new: Node) -> list[tuple[str, str | None, str | None]]:
    """What the inventory says otherwise of a node: bill of materials, stack, fabric ports, ranks."""

    def texts(node: Node) -> dict[str, str]:
        bom = {f"bom: {k}": str(v) for k, v in node.bom.model_dump(exclude_none=True).items()}
        stack = {f"stack: {k}": v for k, v in node.stack.items()}
        ports = ", ".join(
            f"{p.interface} {p.rate_gbps or '?'} Gbit/s{'' if p.rdma else ' TCP only'}" for p in node.ports
        )
        return {**bom, **stack, "fabric_ports": ports, "training_slots": str(node.slots)}

    one, two = texts(old), texts(new)
    return [
        (f"declared {key}", one.get(key), two.get(key))
        for key in dict.fromkeys([*two, *one])
        if one.get(key) != two.get(key)
    ]


def _rules(old: RunDocuments, new: RunDocuments, before: VerdictDoc, after: VerdictDoc) -> tuple[Difference, ...]:
    """Changes of the fabric profile, of the catalogue, and of the bounds that were applied."""
    found = []
    one, two = old.fabric.model_dump(mode="json"), new.fabric.model_dump(mode="json")
    for key in dict.fromkeys([*two, *one]):
        if one.get(key) != two.get(key):
            found.append(Difference(what=f"fabric profile: {key}", old=str(one.get(key)), new=str(two.get(key))))
    for id_ in dict.fromkeys([*new.catalogue, *old.catalogue]):
        both = [(d.catalogue.get(id_), d.fabric) for d in (old, new)]
        rules = [None if c is None else (c.bound.words, c.required) for c, _ in both]
        words = [
            None if c is None else c.bound.said(fabric) + (", required" if c.required else "") for c, fabric in both
        ]
        if rules[0] != rules[1]:  # another figure of the fabric is told above
            found.append(Difference(what=f"criterion {id_}", old=words[0], new=words[1]))
    if old.info.profile != new.info.profile:
        said = [d.info.profile or "none: everything required is owed" for d in (old, new)]
        found.append(Difference(what="acceptance profile", old=said[0], new=said[1]))
    if old.info.suites != new.info.suites:
        found.append(Difference(what="suites", old=", ".join(old.info.suites), new=", ".join(new.info.suites)))
    return tuple(found)


def _notes(old: RunDocuments, new: RunDocuments) -> tuple[str, ...]:
    notes = []
    if old.info.run == new.info.run:
        notes.append(f"Before and after are the same run, {new.info.run}: nothing can differ.")
    if old.info.site != new.info.site:
        notes.append(f"The inventories have different names: {old.info.site} and {new.info.site}.")
    for documents in (old, new):
        known = fact_texts(documents)
        silent = [n.name for n in documents.topology.nodes if n.name not in known]
        if silent:
            notes.append(f"{documents.info.run}: nothing is known of the stack of {', '.join(silent)}.")
        if documents.verdict is None:
            notes.append(
                f"{documents.info.run} was not judged, for verdict.json is missing: none of its criteria passed."
            )
    return tuple(notes)


# --- figures ---------------------------------------------------------------------------------------------------


def _figures(
    old: RunDocuments, new: RunDocuments, before: VerdictDoc, after: VerdictDoc
) -> tuple[tuple[Figure, ...], tuple[str, ...], tuple[str, ...]]:
    """Figures of subjects with a value in both runs; subjects that only one run has, old and new."""
    one, two = _judged(before), _judged(after)
    results = old.latest, new.latest
    both = [(new.catalogue.get(key[0]), one[key], now) for key, now in two.items() if key in one]
    both = [(entry, was, now) for entry, was, now in both if was.value is not None and now.value is not None]
    # a baseline's values are those of the criterion behind it, and would be asked after twice
    both = [one for one in both if one[0] is None or one[0].bound.since is None]
    # equals: the same criterion of the same sort of things, of which the same was done
    shifts = settled(((now.criterion, now.about.sort), _shift(results, entry, was, now)) for entry, was, now in both)
    figures = [_figure(*each, shift) for each, shift in zip(both, shifts, strict=True)]
    gone = tuple(f"{id_}: {subject}" for id_, subject in one if (id_, subject) not in two)
    fresh = tuple(f"{id_}: {subject}" for id_, subject in two if (id_, subject) not in one)
    return tuple(figures), gone, fresh


def _judged(verdict: VerdictDoc) -> dict[tuple[str, str], Judgement]:
    return {(c.id, j.subject): j for c in verdict.criteria for j in c.judgements}


Latest = Mapping[str, Result]


def _shift(results: tuple[Latest, Latest], entry: Criterion | None, was: Judgement, now: Judgement) -> Shift:
    assert was.value is not None  # both are figures
    assert now.value is not None
    if entry is not None and _exact(entry):
        return Shift(now.value / was.value - 1 if was.value else None, None, None, "beyond")
    before, after = _samples(results[0], entry, was), _samples(results[1], entry, now)
    if before and after:
        return shift_of_samples(before, after)
    fewer = min(was.samples, now.samples)
    if fewer < LEAST:
        return Shift(now.value / was.value - 1 if was.value else None, None, None, "unknown")
    return shift_of_intervals((was.value, was.low, was.high), (now.value, now.low, now.high), fewer)


def _exact(entry: Criterion) -> bool:
    """True where the value is read or counted and has no noise: an MTU, breaches, holes."""
    return entry.direction == "equal" or entry.method == "count"


def _samples(latest: Latest, entry: Criterion | None, judgement: Judgement) -> list[float]:
    """The samples of which the judged value is the median; [] where it is computed otherwise."""
    if entry is None or entry.method not in ("value", "rdma"):
        return []
    metric = entry.metric or (judgement.bound.metric if judgement.bound else None)
    results = [latest[id_] for id_ in judgement.evidence if id_ in latest]
    found = [v for r in results for v in (r.values(metric) if metric else [])]
    return found if len(found) == judgement.samples else []


def _figure(entry: Criterion | None, was: Judgement, now: Judgement, shift: Shift) -> Figure:
    assert was.value is not None
    assert now.value is not None
    unit = (now.bound.unit if now.bound else None) or (entry.unit if entry else None) or ""
    return Figure(
        criterion=now.criterion,
        subject=now.subject,
        unit=unit,
        old=was.value,
        old_low=was.low,
        old_high=was.high,
        old_samples=was.samples,
        new=now.value,
        new_low=now.low,
        new_high=now.high,
        new_samples=now.samples,
        change=shift.change,
        change_low=shift.low,
        change_high=shift.high,
        noise=shift.noise,
        p=shift.p,
        between=shift.between,
        verdict=_direction(entry, was, now, shift),
    )


_JUDGED = ("pass", "fail", "waived")


def _direction(entry: Criterion | None, was: Judgement, now: Judgement, shift: Shift) -> Change:
    """Better or worse only where both values were judged: what a rehearsal cannot prove is no decline either."""
    assert was.value is not None
    assert now.value is not None
    if was.value == now.value or shift.noise in ("within", "small"):
        return "same"
    judged = was.verdict in _JUDGED and now.verdict in _JUDGED
    if shift.noise == "unknown" or not judged or entry is None or entry.direction not in ("higher", "lower"):
        return "changed"
    return "better" if (now.value > was.value) == (entry.direction == "higher") else "worse"


# --- criteria --------------------------------------------------------------------------------------------------


def _criteria(before: VerdictDoc, after: VerdictDoc, figures: Sequence[Figure]) -> tuple[CriterionChange, ...]:
    one: Mapping[str, CriterionVerdict] = {c.id: c for c in before.criteria}
    two: Mapping[str, CriterionVerdict] = {c.id: c for c in after.criteria}
    by_id: dict[str, list[Figure]] = {}
    for figure in figures:
        by_id.setdefault(figure.criterion, []).append(figure)
    return tuple(_criterion(one.get(i), two.get(i), by_id.get(i, [])) for i in dict.fromkeys([*two, *one]))


def _criterion(was: CriterionVerdict | None, now: CriterionVerdict | None, figures: list[Figure]) -> CriterionChange:
    known = now or was
    assert known is not None
    failing = [{j.subject for j in c.judgements if j.verdict == "fail"} if c else set() for c in (was, now)]
    verdict, why = _verdicts(was, now)
    worse = [f for f in figures if f.verdict == "worse"]
    better = [f for f in figures if f.verdict == "better"]
    broke, mended = sorted(failing[1] - failing[0]), sorted(failing[0] - failing[1])
    if verdict in ("same", "changed") and was and now:
        if broke:
            verdict, why = "worse", f"fails now: {_some(broke)}"
        elif worse:
            verdict, why = "worse", f"{_share(worse, figures)} worse beyond noise: {_some([f.subject for f in worse])}"
        elif mended and verdict == "same":
            verdict, why = "better", f"no longer fails: {_some(mended)}"
        elif better and verdict == "same":
            verdict, why = "better", f"{_share(better, figures)} better beyond noise"
    return CriterionChange(
        id=known.id,
        statement=known.statement,
        old=was.verdict if was else None,
        new=now.verdict if now else None,
        old_reason=was.reason if was else "",
        new_reason=now.reason if now else "",
        verdict=verdict,
        why=why,
        new_failures=tuple(broke),
        mended=tuple(mended),
    )


def _verdicts(was: CriterionVerdict | None, now: CriterionVerdict | None) -> tuple[Change, str]:
    """What the two verdicts alone say. A pass that is no longer proved is worse; so is anything that fails now."""
    if was is None or now is None:
        return "changed", "only the new run has it" if was is None else "only the old run has it"
    old, new = was.verdict, now.verdict
    words = f"was {old}, is {new}"
    if old == new:
        return "same", ""
    if new == "fail" or (old == "pass" and new in ("waived", "not-measured")):
        return "worse", words
    return ("better" if new == "pass" and old != "not-applicable" else "changed"), words


def _share(some: Sequence[Figure], figures: Sequence[Figure]) -> str:
    return f"{len(some)} of {plural(len(figures), 'figure')}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _headline(
    before: VerdictDoc, after: VerdictDoc, criteria: Sequence[CriterionChange], stack: Sequence[Difference]
) -> str:
    worse, better = ([c.id for c in criteria if c.verdict == v] for v in ("worse", "better"))
    parts = [f"worse: {', '.join(worse)}" if worse else "no criterion got worse"]
    parts += [f"better: {', '.join(better)}"] if better else []
    if before.sign_off != after.sign_off:
        parts.append(f"{before.sign_off} before, {after.sign_off} after")
    return "; ".join([*parts, f"{plural(len(stack), 'difference')} in the stack"])
