"""Criteria as the report shows them: grouped by family, worst value first, nothing hidden."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from markupsafe import Markup

from validation.model import Bound, CriterionVerdict, Judgement, VerdictDoc, VerdictName
from validation.model.judgement import others
from validation.report import judgement_columns
from validation.report.numbers import NONE, interval, plural, quantity, scaled, unit_text
from validation.report.svg.charts import Dot, bound_strip
from validation.rules.criterion import Criterion, family_of
from validation.rules.fabric import Fabric

FAMILIES = {
    "pf": "Preflight",
    "tr": "Transport",
    "co": "Compute",
    "bi": "Burn-in",
    "tn": "Training",
    "rm": "Remoting and fractions",
    "op": "Operation",
    "bl": "Against the baseline of this site",
}


@dataclass(frozen=True)
class CriterionRow:
    """One criterion in the table. `measured` is the value that decides, `spread` the range of all of them.

    `bounds` are those that were applied, or, where nothing was measured, the catalogue's words; `provisional` marks a
    bound that is this project's judgement and no published figure.
    """

    criterion: CriterionVerdict
    anchor: str
    bounds: tuple[str, ...]
    applied: bool
    provisional: bool
    nominal: str | None
    measured: str
    interval: str | None
    subject: str | None
    spread: str | None
    evidence: tuple[str, ...]
    has_derivation: bool


@dataclass(frozen=True)
class Family:
    """All criteria of one family, in the order of the catalogue."""

    key: str
    title: str
    rows: tuple[CriterionRow, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many of them have which verdict."""
        return tally(r.criterion for r in self.rows)


@dataclass(frozen=True)
class Derivation:
    """How a criterion's bound came about, with the measured values drawn against it. `name`: which bound of which
    criterion, as nothing else on the page is named.
    """

    criterion: CriterionVerdict
    anchor: str
    name: str
    lines: tuple[str, ...]
    source: str
    nominal: str | None
    strip: Markup | None
    failing: tuple[str, ...]


def slug(text: str) -> str:
    """`text` as the value of an id attribute and of a fragment link."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def tally(criteria: Iterable[CriterionVerdict]) -> dict[str, int]:
    """How many criteria have which verdict, all verdicts named, in the model's order."""
    verdicts = [c.verdict for c in criteria]
    return {name: verdicts.count(name) for name in get_args(VerdictName)}


def bound_lines(bound: Bound | None) -> tuple[str, ...]:
    """A bound in words, the demanded side first."""
    if bound is None:
        return ()
    lines = []
    if bound.equal is not None:
        lines.append(f"= {bound.equal}")
    if bound.floor is not None:
        lines.append(f"≥ {quantity(bound.floor, bound.unit)}")
    if bound.maximum is not None:
        lines.append(f"≤ {quantity(bound.maximum, bound.unit)}")
    if bound.ceiling is not None:
        lines.append(f"ceiling {quantity(bound.ceiling, bound.unit)}")
    return tuple(lines) or bound.derivation  # what is only reported has no side


def worst(judgements: Sequence[Judgement]) -> Judgement | None:
    """The judgement that decides: a failed one before others, then the value nearest to breaking its bound."""
    found = decisive(judgements)
    return None if found is None else found[1]


def decisive(judgements: Sequence[Judgement]) -> tuple[int, Judgement] | None:
    """The same with its place (from 0)."""
    order = {"fail": 0, "not-measured": 1, "waived": 2, "pass": 3, "not-applicable": 4}

    def key(item: tuple[int, Judgement]) -> tuple[int, float]:
        j = item[1]
        if j.value is None:
            return order[j.verdict], float("inf")
        upper = j.bound is not None and j.bound.maximum is not None
        return order[j.verdict], -j.value if upper else j.value

    candidates = list(judgement_columns.extreme(judgements))
    with_value = [item for item in candidates if item[1].value is not None or item[1].text is not None]
    return min(with_value or candidates, key=key, default=None)


def _equals(judgements: Sequence[Judgement], of: Judgement | None) -> list[float]:
    """The values of the pairs with which the same was done as with this one; [] where it was done with all."""
    if of is None or of.about.kind != "pair" or not of.about.sort.words:
        return []
    found = [j for j in judgements if j.value is not None]
    same = [j.value for j in found if j.value is not None and j.about.sort == of.about.sort]
    return same if len(same) < len(found) else []


def _row(criterion: CriterionVerdict, entry: Criterion | None, fabric: Fabric) -> CriterionRow:
    decides = worst(criterion.judgements)
    bound = decides.bound if decides else None
    unit = bound.unit if bound else ""
    values = judgement_columns.values(criterion.judgements)
    measured, spread = NONE, None
    if decides is not None and decides.value is not None:
        measured = quantity(decides.value, unit)
    elif decides is not None and decides.text is not None:
        measured = decides.text
    found = values if values else [j.text for j in others(criterion.judgements) if j.text is not None]
    same = len(set(found)) == 1 and len(found) == len(criterion.judgements) > 1
    if len(found) > 1 and len(set(found)) == 1:
        spread = f"all {len(found)} equal"
    elif len(values) > 1:
        mine = _equals(criterion.judgements, decides)
        of = f" of {decides.about.sort.words}" if mine and decides is not None else ""
        values = mine or values
        spread = f"all {len(values)}{of}: {interval(min(values), max(values), unit)} {unit_text(unit)}".rstrip()
    return CriterionRow(
        criterion=criterion,
        anchor=slug(criterion.id),
        bounds=bound_lines(bound) or ((entry.bound.said(fabric),) if entry else ()),
        applied=bound is not None,
        provisional=entry is not None and entry.bound.provisional,
        nominal=bound.nominal if bound else None,
        measured=measured,
        interval=interval(decides.low, decides.high, unit) if decides else None,
        subject=decides.subject if decides and measured != NONE and not same else None,
        spread=spread,
        evidence=judgement_columns.evidence(criterion.judgements),
        has_derivation=any(b.derivation for b in judgement_columns.bounds(criterion.judgements)),
    )


def families(verdict: VerdictDoc, catalogue: Mapping[str, Criterion], fabric: Fabric) -> tuple[Family, ...]:
    """The criteria table: every criterion once, families in their usual order, unknown ones last."""
    groups: dict[str, list[CriterionVerdict]] = {}
    for criterion in verdict.criteria:
        groups.setdefault(family_of(criterion.id), []).append(criterion)
    keys = [k for k in FAMILIES if k in groups] + sorted(k for k in groups if k not in FAMILIES)
    return tuple(
        Family(key=k, title=FAMILIES.get(k, k), rows=tuple(_row(c, catalogue.get(c.id), fabric) for c in groups[k]))
        for k in keys
    )


def derivations(verdict: VerdictDoc) -> tuple[Derivation, ...]:
    """How each bound came about, once per criterion and distinct derivation, with the values measured under it."""
    out = []
    for criterion in verdict.criteria:
        groups: dict[tuple[str, ...], list[Judgement]] = {}
        derived = any(bound.derivation for bound in judgement_columns.bounds(criterion.judgements))
        for judgement in criterion.judgements if derived else ():
            if judgement.bound is not None and judgement.bound.derivation:
                groups.setdefault(judgement.bound.derivation, []).append(judgement)
        for index, (lines, judgements) in enumerate(groups.items()):
            bound = judgements[0].bound
            assert bound is not None  # grouped by its derivation
            anchor = slug(criterion.id) + (f"-{index + 1}" if index else "")
            out.append(
                Derivation(
                    criterion=criterion,
                    anchor=anchor,
                    name=f"Bound {index + 1} of {criterion.id}" if len(groups) > 1 else f"Bound of {criterion.id}",
                    lines=lines,
                    source=bound.source,
                    nominal=bound.nominal,
                    strip=_strip(f"strip-{anchor}", judgements, bound),
                    failing=tuple(j.subject for j in judgements if j.verdict == "fail"),
                )
            )
    return tuple(out)


def _own(judgements: Sequence[Judgement]) -> bool:
    """Whether bounds of one derivation differ, as those of a baseline: each subject has its own."""
    return len({(j.bound.floor, j.bound.maximum) for j in judgements if j.bound is not None}) > 1


def _shares(judgement: Judgement) -> Judgement:
    """A judgement in shares of its own bound, which is then 1."""
    bound = judgement.bound
    limit = (bound.floor if bound.floor is not None else bound.maximum) if bound is not None else None
    over = {name: getattr(judgement, name) for name in ("value", "low", "high")}
    return judgement.model_copy(update={k: v / limit if v is not None and limit else None for k, v in over.items()})


def _strip(id_: str, judgements: Sequence[Judgement], bound: Bound) -> Markup | None:
    if _own(judgements):
        ones = {side: 1.0 for side in ("floor", "maximum") if getattr(bound, side) is not None}
        shares = bound.model_copy(update={**ones, "ceiling": None, "unit": ""})
        return _drawn(id_, [_shares(j) for j in judgements], shares, "of its own bound")
    return _drawn(id_, judgements, bound, unit_text(bound.unit))


def _drawn(id_: str, judgements: Sequence[Judgement], bound: Bound, unit: str) -> Markup | None:
    dots = [
        Dot(
            j.subject,
            scaled(j.value, bound.unit),
            None if j.low is None else scaled(j.low, bound.unit),
            None if j.high is None else scaled(j.high, bound.unit),
            failed=j.verdict in ("fail", "waived") or j.reason_code == "above-ceiling",
        )
        for j in judgements
        if j.value is not None
    ]
    if not dots:
        return None
    limits = [None if b is None else scaled(b, bound.unit) for b in (bound.floor, bound.maximum, bound.ceiling)]
    return bound_strip(id_, dots, unit, *limits)


_CODES = {
    "above-ceiling": "above the ceiling",
    "too-noisy": "too noisy",
    "missing-result": "no result",
    "tool-failed": "tool failed",
    "missing-metric": "metric lacking",
    "not-the-fabric": "within one host",
    "no-bound": "no bound known",
    "no-probe": "no probe yet",
    "not-selected": "not selected",
    "virtual": "virtual hardware",
}


def code_words(code: str) -> str:
    """A reason code in two or three words, for where the whole reason has no room."""
    return _CODES.get(code, code)


def headline(verdict: VerdictDoc) -> str:
    """The headline as a sentence."""
    text = verdict.headline
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def summary(verdict: VerdictDoc) -> str:
    """One sentence with every count, e.g. "7 of 33 criteria passed, 26 were not measured."."""
    counts = tally(verdict.criteria)
    parts = [f"{counts['pass']} of {plural(len(verdict.criteria), 'criterion', 'criteria')} passed"]
    words = {
        "fail": "failed",
        "waived": "waived",
        "not-measured": "not measured",
        "not-applicable": "not applicable",
    }
    parts += [f"{counts[name]} {word}" for name, word in words.items() if counts[name]]
    return ", ".join(parts) + "."
