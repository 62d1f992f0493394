"""Conformance as the report shows it: a sentence for page one, and a line for each claim."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from validation.model import VerdictDoc
from validation.report.documents import RunDocuments
from validation.report.numbers import NONE, interval, quantity
from validation.report.words import FrontWords
from validation.rules.conformance import ClaimLine, Conformance, State, conformance

STATES: dict[State, str] = {
    "confirmed": "confirmed",
    "missed": "missed",
    "rehearsed": "rehearsed",
    "not-measured": "not measured",
    "elsewhere": "not of this site",
}
CHIPS: dict[State, str] = {
    "confirmed": "pass",
    "missed": "fail",
    "rehearsed": "waived",
    "not-measured": "not-measured",
    "elsewhere": "not-applicable",
}
_ORDER: tuple[State, ...] = ("missed", "confirmed", "rehearsed", "not-measured")


@dataclass(frozen=True)
class ClaimRow:
    """A claim in the annex. `chip` is the verdict whose colour its state has."""

    line: ClaimLine
    published: str
    measured: str
    interval: str | None
    chip: str
    state: str


@dataclass(frozen=True)
class ClaimGroup:
    """The claims of a document that are this site's, and those that are not."""

    document: str
    rows: tuple[ClaimRow, ...]
    elsewhere: tuple[ClaimRow, ...]


@dataclass(frozen=True)
class ClaimsAnnex:
    """All claims, with the sentence of page one in English."""

    sentence: str
    rehearsal: bool
    groups: tuple[ClaimGroup, ...]


def conformance_of(documents: RunDocuments, verdict: VerdictDoc) -> Conformance:
    """The claims that the run began with against its verdict."""
    emulated = [id_ for id_, result in documents.latest.items() if getattr(result.facts, "emulated", False)]
    return conformance(verdict, documents.reference, documents.topology, documents.plan, emulated)


def sentence(found: Conformance) -> str:
    """How many claims of the reference architecture are confirmed, missed and not measured here."""
    counts, here = found.counts, found.here
    rest = f"{counts['not-measured']} not measured. {counts['elsewhere']} more concern other fabrics or machines."
    concern = f"{here} claims of the reference architecture concern this site"
    if found.constructed:
        return f"A constructed example confirms no claim. {concern}: {counts['rehearsed']} are in the example, {rest}"
    if found.rehearsal:
        return f"A rehearsal confirms no claim. {concern}: {counts['rehearsed']} rehearsed, {rest}"
    return f"{concern}: {counts['confirmed']} confirmed, {counts['missed']} missed, {rest}"


def on_front(found: Conformance, words: FrontWords) -> tuple[str, str, str]:
    """What page one says of it: label, how many are confirmed, and the rest."""
    counts, labels = found.counts, words.labels
    numbers = {state.replace("-", "_"): count for state, count in counts.items()}
    kind = "example" if found.constructed else "rehearsed" if found.rehearsal else "note"
    note = labels[f"claims_{kind}"]
    return (
        labels["claims"],
        labels["claims_confirmed"].format(here=found.here, **numbers),
        note.format(open=counts["not-measured"], **numbers),
    )


def annex(found: Conformance) -> ClaimsAnnex:
    """The annex Conformance."""
    titles = dict.fromkeys(line.document for line in found.claims)
    return ClaimsAnnex(
        sentence=sentence(found),
        rehearsal=found.rehearsal,
        groups=tuple(_group(title, [c for c in found.claims if c.document == title]) for title in titles),
    )


def _group(title: str, lines: Iterable[ClaimLine]) -> ClaimGroup:
    rows = [_row(line) for line in lines]
    mine = [row for row in rows if row.line.state != "elsewhere"]
    mine.sort(key=lambda row: _ORDER.index(row.line.state))
    return ClaimGroup(title, tuple(mine), tuple(row for row in rows if row.line.state == "elsewhere"))


def _row(line: ClaimLine) -> ClaimRow:
    return ClaimRow(
        line=line,
        published=_published(line),
        measured=quantity(line.value, line.unit) if line.value is not None else line.text or NONE,
        interval=interval(line.low, line.high, line.unit),
        chip=CHIPS[line.state],
        state=STATES[line.state],
    )


def _published(line: ClaimLine) -> str:
    if line.published is None:
        return "no figure"
    marks = [f"{name} inferred" for name in line.inferred]
    return line.published + (f" ({', '.join(marks)})" if marks else "")
