"""What of the long annexes is shown, and what is summed up: summaries first, details as far as a reader can use them.

A browser takes some ten thousand rows, paper some hundred. Beyond that the failed, the unmeasured and the waived rows
come first, and a sentence says how many more there are and where they stand. Nothing is left out without being said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from validation.model import Judgement, VerdictName
from validation.model.judgement import others
from validation.report import judgement_columns
from validation.report.criteria import CriterionRow, Derivation
from validation.report.evidence import AnnexEntry, MissingResult
from validation.report.numbers import interval, moment, plural, unit_text
from validation.report.serial_lines import parts_list

_ORDER: dict[VerdictName, int] = {"fail": 0, "not-measured": 1, "waived": 2, "not-applicable": 4, "pass": 5}
_ODD = ("fail", "not-measured", "waived")
_WORDS = {
    "pass": "passed",
    "fail": "failed",
    "waived": "waived",
    "not-measured": "not measured",
    "not-applicable": "not applicable",
}


@dataclass(frozen=True)
class Limits:
    """How many rows a medium takes. `each`: up to so many results, every one has a row of its own; of more only those
    that need a look have one, `results` at most. `unfolded`: up to so many judgements in all, none is folded away.

    `derivations`: so many bounds are derived step by step with a chart, the others in a line. `summed`: what passed,
    and what was measured and can prove nothing, is only summed up by criterion, and bounds that hold are in brief.
    `elsewhere`: where everything stands.
    """

    judgements: int
    results: int
    each: int
    missing: int
    unfolded: int
    derivations: int
    summed: bool
    elsewhere: str


SCREEN = Limits(
    judgements=20_000,
    results=20_000,
    each=20_000,
    missing=2_000,
    unfolded=600,
    derivations=400,
    summed=False,
    elsewhere="report.json",
)
PAPER = Limits(
    judgements=100,
    results=50,
    each=12,
    missing=60,
    unfolded=10**9,
    derivations=3,
    summed=True,
    elsewhere="report.html and report.json",
)


@dataclass(frozen=True)
class ShownSection:
    """The judgements of a criterion. `summary` counts all of them; `rest` says what is not among `shown`."""

    row: CriterionRow
    summary: str
    shown: Sequence[Judgement]
    rest: str | None
    unfolded: bool


@dataclass(frozen=True)
class Summed:
    """A criterion of which no judgement has a row: none failed, was waived or not measured."""

    row: CriterionRow
    summary: str


@dataclass(frozen=True)
class ShownJudgements:
    """Annex A: criteria with rows, and those that are summed up in a line each."""

    sections: tuple[ShownSection, ...]
    summed: tuple[Summed, ...]


@dataclass(frozen=True)
class ResultGroup:
    """All results of one tool and version, where not each has a row of its own. Times are the first and last start."""

    tool: str
    count: int
    first: str
    last: str
    command: str


@dataclass(frozen=True)
class Results:
    """The provenance annex: rows, and, where that are not all, groups that count all of them."""

    shown: tuple[AnnexEntry, ...]
    groups: tuple[ResultGroup, ...]
    rest: str | None


def level(counts: Sequence[int], budget: int) -> int:
    """The largest number such that so many of each, or all where there are fewer, keep to the budget; at least 1."""
    left, parts = budget, len(counts)
    for count in sorted(counts):
        if count * parts > left:
            return max(left // parts, 1)
        left -= count
        parts -= 1
    return max(counts, default=1)


def judgements(rows: Sequence[CriterionRow], limits: Limits) -> ShownJudgements:
    """Annex A: each criterion that was applied to something."""
    judged = [row for row in rows if row.criterion.judgements]
    total = sum(len(row.criterion.judgements) for row in judged)
    if not limits.summed:
        most = level([len(row.criterion.judgements) for row in judged], limits.judgements)
        unfolded = total <= limits.unfolded
        return ShownJudgements(tuple(_section(row, most, unfolded, limits) for row in judged), ())
    odd = {row.anchor: sum(map(_telling, others(row.criterion.judgements))) for row in judged}
    most = level([count for count in odd.values() if count], limits.judgements)
    return ShownJudgements(
        tuple(_section(row, min(most, odd[row.anchor]), True, limits) for row in judged if odd[row.anchor]),
        tuple(Summed(row, _summary(row.criterion.judgements)) for row in judged if not odd[row.anchor]),
    )


def _telling(judgement: Judgement) -> bool:
    """True for what has a row of its own on paper; what was measured and could prove nothing is summed up."""
    return judgement.verdict in _ODD and judgement.reason_code != "virtual"


def _rank(judgement: Judgement) -> int:
    return 3 if judgement.reason_code == "virtual" else _ORDER[judgement.verdict]


def _section(row: CriterionRow, most: int, unfolded: bool, limits: Limits) -> ShownSection:
    every = row.criterion.judgements
    shown = tuple(every) if len(every) <= most else judgement_columns.foremost(every, most, _rank)
    left = judgement_columns.verdicts(every) - Counter(j.verdict for j in shown)
    rest = None
    if left:
        rest = (
            f"Shown: {len(shown)} of {len(every)}, those that did not pass first. Not shown: {_count(left)}. "
            f"All of them: {limits.elsewhere}, criterion {row.criterion.id}."
        )
    return ShownSection(row, _summary(every), shown, rest, unfolded)


def _count(verdicts: Counter[VerdictName]) -> str:
    return ", ".join(f"{verdicts[name]} {_WORDS[name]}" for name in _ORDER if verdicts.get(name))


def _summary(judgements: Sequence[Judgement]) -> str:
    values, units = judgement_columns.values(judgements), judgement_columns.units(judgements)
    words = _count(judgement_columns.verdicts(judgements))
    if len(units) == 1 and len(values) > 1:
        unit = units.pop()
        span = interval(min(values), max(values), unit)
        words += f"; {span} {unit_text(unit)}".rstrip() if span else "; all values equal"
    return words


def _odd(item: AnnexEntry) -> bool:
    return item.result.status != "ok" or item.anchor is None or any(state != "intact" for _, state in item.raw)


def results(annex: Sequence[AnnexEntry], limits: Limits) -> Results:
    """Annex B: every result, or, where those are too many, groups and the results that need a look."""
    if len(annex) <= min(limits.results, limits.each):
        return Results(tuple(annex), (), None)
    odd = [item for item in annex if _odd(item)]
    shown = tuple(odd[: limits.results])
    whose = "the one" if len(shown) == 1 else "those"
    words = f"{whose} that failed, that were repeated, or whose raw log changed" if shown else "none needs a look"
    more = f" There are {len(odd) - len(shown)} more of these." if len(odd) > len(shown) else ""
    rest = (
        f"{plural(len(annex), 'result')}, summed up by tool. Shown one by one: {len(shown)}, {words}.{more} "
        f"All of them, with command, times and hashes: {limits.elsewhere}, and results.jsonl of the run."
    )
    return Results(shown, _groups(annex), rest)


def _groups(annex: Sequence[AnnexEntry]) -> tuple[ResultGroup, ...]:
    tools: dict[str, list[AnnexEntry]] = {}
    for item in annex:
        provenance = item.result.provenance
        tools.setdefault(f"{provenance.tool} {provenance.tool_version}".strip(), []).append(item)
    out = []
    for tool, items in tools.items():
        starts = sorted(item.result.provenance.started for item in items)
        out.append(ResultGroup(tool, len(items), moment(starts[0]), moment(starts[-1]), items[0].command))
    return tuple(out)


def derivations(every: Sequence[Derivation], most: int) -> tuple[tuple[Derivation, ...], tuple[Derivation, ...]]:
    """Derivations to be shown step by step, those with failures first, and the others; each in its own order."""
    order = sorted(range(len(every)), key=lambda i: not every[i].failing)
    kept = set(order[:most])
    return tuple(d for i, d in enumerate(every) if i in kept), tuple(d for i, d in enumerate(every) if i not in kept)


def paged(views: Mapping[str, Any], medium: Literal["screen", "paper"]) -> dict[str, Any]:
    """The templates' values that depend on how much the medium takes. `anchors` names what has a row to link to."""
    limits = SCREEN if medium == "screen" else PAPER
    provenance = results(views["annex"], limits)
    missing: tuple[MissingResult, ...] = tuple(views["missing"])
    left = len(missing) - limits.missing
    judged = judgements(views["rows"], limits)
    bounds: Sequence[Derivation] = views["derivations"]
    most = min(limits.derivations, sum(bool(d.failing) for d in bounds)) if limits.summed else limits.derivations
    whole, brief = derivations(bounds, most)
    return {
        "printed": medium == "paper",
        "parts": parts_list(views["server_parts"], medium == "paper"),
        "sections": judged.sections,
        "summed": judged.summed,
        "provenance": provenance,
        "anchors": {e.result.measurement: e.anchor for e in provenance.shown if e.anchor is not None},
        "missing_shown": missing[: limits.missing],
        "missing_rest": f"{left} more are named in {limits.elsewhere}, key missing." if left > 0 else None,
        "derivations": whole,
        "derivations_brief": brief,
    }
