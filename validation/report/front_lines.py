"""What the first pages show in lines: criteria that passed, reasons of the others, claims, the worst link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from validation.model import CriterionVerdict, Judgement, VerdictDoc
from validation.report.claims import ClaimRow, ClaimsAnnex
from validation.report.criteria import CriterionRow, code_words
from validation.report.documents import RunDocuments
from validation.report.numbers import quantity
from validation.rules.conformance import ClaimLine


@dataclass(frozen=True)
class Reason:
    """Criteria that came out alike for one reason: `words` say it, `ids` are the criteria, in the catalogue's order."""

    verdict: str
    words: str
    ids: tuple[str, ...]
    owed: int


@dataclass(frozen=True)
class WorstLink:
    """The pair of fabric ports that came nearest to its bound, or furthest below it, in one direction."""

    source: str
    destination: str
    value: str
    share: str
    failed: bool
    criterion: str
    op: str = ""

    @property
    def ends(self) -> tuple[str, str]:
        """Both ports."""
        return self.source, self.destination


@dataclass(frozen=True)
class ClaimReason:
    """Claims of this site that were not measured for one reason."""

    words: str
    ids: tuple[str, ...]


def bandwidth(documents: RunDocuments) -> str:
    """The criterion of the fabric's bandwidth: RDMA where the fabric has it, else TCP."""
    return "tr.rdmabw" if documents.fabric.needs_rdma else "tr.tcpbw"


def one_way(criterion: CriterionVerdict) -> list[Judgement]:
    """The judgements of a criterion of pairs that have a value of one direction."""
    return [j for j in criterion.judgements if j.value is not None and not j.about.both_ways]


def worst_link(documents: RunDocuments) -> WorstLink | None:
    """The slowest pair of ports by bandwidth; None where no pair was measured, or all are alike."""
    wanted = bandwidth(documents)
    criterion = next((c for c in documents.verdict.criteria if c.id == wanted), None) if documents.verdict else None
    found = [j for j in one_way(criterion) if j.about.kind == "pair"] if criterion is not None else []
    if not found:
        return None
    worst = min(found, key=lambda j: j.value if j.value is not None else 0.0)
    others = [j.value for j in found if j.about.op == worst.about.op and j.about.ends != worst.about.ends]
    if others and all(value == worst.value for value in others):
        return None  # an operation may be slower than another; of links that are alike in it none is the slowest
    link = documents.topology.lab_link
    rate = link.rate_gbps if link else documents.fabric.line_rate_gbps
    assert worst.value is not None  # of those with a value
    source, destination = map(str, worst.about.ends)
    return WorstLink(
        source=source,
        destination=destination,
        value=quantity(worst.value, worst.bound.unit if worst.bound else "Gbit/s"),
        share=f"{quantity(worst.value / rate, 'ratio', 3)} of {quantity(rate, 'Gbit/s')}",
        failed=worst.verdict == "fail",
        criterion=wanted,
        op=worst.about.op,
    )


def reasons(rows: Iterable[CriterionRow], verdict: str, documents: RunDocuments) -> tuple[Reason, ...]:
    """The criteria with a verdict, together by why; the reason of most criteria first."""
    groups: dict[str, list[CriterionVerdict]] = {}
    for row in rows:
        if row.criterion.verdict == verdict:
            groups.setdefault(_why(row.criterion, documents), []).append(row.criterion)
    found = [
        Reason(verdict, why, tuple(c.id for c in criteria), sum(c.owed for c in criteria))
        for why, criteria in groups.items()
    ]
    return tuple(sorted(found, key=lambda reason: -len(reason.ids)))


def _why(criterion: CriterionVerdict, documents: RunDocuments) -> str:
    """The reason in words of its kind: which suite was left out, else those of its code."""
    entry = documents.catalogue.get(criterion.id)
    if criterion.reason_code == "not-selected" and entry is not None and entry.suite not in documents.plan.suites:
        return f"the suite {entry.suite} was not selected for this run"
    return _PLAIN.get(criterion.reason_code, code_words(criterion.reason_code).replace("-", " "))


_PLAIN = {
    "virtual": "measured, but virtual or emulated parts prove no figure of hardware",
    "no-probe": "this release has no measurement for it",
    "no-bound": "no bound is known for this fabric or these machines",
    "missing-result": "planned, but there is no result",
    "tool-failed": "the tool failed",
    "missing-metric": "the result lacks the figure",
    "too-noisy": "the 95 % interval includes the bound, or the machine was busy",
    "above-ceiling": "the reading is above what the line can carry",
    "not-the-fabric": "between machines of one host, so not over the fabric",
    "not-selected": "not part of this run's plan",
    "not-applicable": "has no meaning on this fabric or these machines",
    "reported": "reported for information, without a bound",
}


def passed(rows: Iterable[CriterionRow]) -> tuple[CriterionRow, ...]:
    """The criteria that passed."""
    return tuple(row for row in rows if row.criterion.verdict == "pass")


def claim_rows(annex: ClaimsAnnex) -> tuple[ClaimRow, ...]:
    """The claims that this run decided, of all documents: missed ones first."""
    order = {"missed": 0, "confirmed": 1, "rehearsed": 2}
    rows = [row for group in annex.groups for row in group.rows if row.line.state in order]
    return tuple(sorted(rows, key=lambda row: order[row.line.state]))


def claim_reasons(annex: ClaimsAnnex, verdict: VerdictDoc, documents: RunDocuments) -> tuple[ClaimReason, ...]:
    """The claims of this site that were not measured, together by why."""
    criteria = {c.id: c for c in verdict.criteria}
    groups: dict[str, list[str]] = {}
    for line in _open(annex):
        criterion = criteria.get(line.criterion or "")
        why = "no criterion can confirm it; annex G says what of it is measured"
        if criterion is not None:
            why = _why(criterion, documents) if criterion.verdict != "pass" else "not measured as the document did"
        groups.setdefault(why, []).append(line.id)
    found = [ClaimReason(words, tuple(ids)) for words, ids in groups.items()]
    return tuple(sorted(found, key=lambda reason: -len(reason.ids)))


def _open(annex: ClaimsAnnex) -> list[ClaimLine]:
    return [row.line for group in annex.groups for row in group.rows if row.line.state == "not-measured"]


def _usual(texts: Iterable[str]) -> str:
    """The text that most have, "" where none has any."""
    found = Counter(text for text in texts if text).most_common(1)
    return found[0][0] if found else ""


def brief_context(
    documents: RunDocuments, verdict: VerdictDoc, rows: Sequence[CriterionRow], annex: ClaimsAnnex
) -> dict[str, Any]:
    """The template values of the pages between page one and the annexes."""
    return {
        "worst": worst_link(documents),
        "passed_rows": passed(rows),
        "open_reasons": reasons(rows, "not-measured", documents),
        "other_reasons": reasons(rows, "not-applicable", documents),
        "claim_rows": claim_rows(annex),
        "claim_reasons": claim_reasons(annex, verdict, documents),
        "usually_not_owed": _usual(r.criterion.not_owed for r in rows),
        "elsewhere": sum(len(group.elsewhere) for group in annex.groups),
    }
