"""Page one: what was tested, what came out, what it means, and the figures that matter. Made from the data alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from validation.model import CriterionVerdict, Judgement, VerdictDoc, WaiverUse
from validation.model.base import NAMESPACES
from validation.model.judgement import others
from validation.report.claims import annex, conformance_of, on_front
from validation.report.criteria import CriterionRow, tally
from validation.report.delivered import Delivered, delivered, network
from validation.report.documents import RunDocuments
from validation.report.front_lines import bandwidth, brief_context, one_way
from validation.report.numbers import NONE, quantity
from validation.report.partner import partner_blocks
from validation.report.repeat import limits, repeats
from validation.report.serial_lines import SerialLine, serial_line
from validation.report.words import FrontWords, front_words
from validation.rules.conformance import Conformance

_MOST_FAILED, _MOST_WAIVERS, _MOST_OPEN = 3, 2, 10
"""How many page one names, so that it stays one page."""
_WIDE, _TIGHT = 20, 26
"""Below so many lines the gaps of page one are wide, from so many lines on it is set as tight as can be."""
_MOST_NAME = 40
"""Characters of a customer's name that fit the line of who signs."""


@dataclass(frozen=True)
class FrontFigure:
    """One figure of page one. `value` is None where nothing was measured; `note` and `reason` are in words."""

    label: str
    value: str | None
    note: str | None
    verdict: str
    verdict_words: str
    reason: str | None
    anchor: str

    @property
    def chip(self) -> bool:
        """False where the words in place of the value say the verdict already."""
        return self.value is not None or self.verdict not in ("not-measured", "not-applicable")


@dataclass(frozen=True)
class WaiverGroup:
    """Criteria that the same person waived for the same reason."""

    by: str
    why: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Front:
    """What page one shows. `sentences` are three: what was tested, what came out, what it means. `rules`: words where
    they are not those of a release.
    """

    words: FrontWords
    language: str
    title: str
    meta: tuple[tuple[str, str], ...]
    logo: str | None
    logo_alt: str
    partner_files: tuple[str, ...]
    state: str
    sentences: tuple[str, str, str]
    rules: str | None
    figures: tuple[FrontFigure, ...]
    failed: tuple[CriterionRow, ...]
    failed_more: int
    waivers: tuple[WaiverGroup, ...]
    waivers_more: int
    missing: tuple[str, ...]
    claims: tuple[str, str, str]
    delivered: tuple[Delivered, ...]
    delivered_title: str
    network: str
    serials: SerialLine
    signers: tuple[str, ...]
    sign_note: str

    @property
    def lines(self) -> int:
        """About how many lines of text differ from page to page: the title counts twice, what stands in halves too."""
        found = _lines(self.title, 34 if self.logo else 52) * 2 + sum(_lines(s, 92) for s in self.sentences)
        found += _lines("".join(f"{label}: {value}     " for label, value in self.meta), 112)
        found += sum(_lines(f"{d.model}{d.gpus}{d.adapter}{d.nodes}    ", 80) + bool(d.serials) for d in self.delivered)
        found += _lines(f"{self.serials.tags} {self.serials.parts}", 90)
        missing = sum(_lines(line, 50) for line in self.missing) + 2 * bool(self.missing)
        found += max(2 * len(self.failed) + missing, 4 * len(self.waivers))
        return found + sum(_lines(name, 24) - 1 for name in self.signers)

    @property
    def room(self) -> Literal["wide", "", "tight"]:
        """How wide the gaps between its lines are on paper, so that all of page one is on one page and fills it."""
        return "wide" if self.lines < _WIDE else "tight" if self.lines >= _TIGHT else ""


def _lines(words: str, across: int) -> int:
    """Lines that words take, of about so many characters."""
    return -(-len(words) // across)


def front_context(documents: RunDocuments, verdict: VerdictDoc, rows: Sequence[CriterionRow]) -> dict[str, Any]:
    """The template values of page one, of the method and of the last page: `front`, `partner`, `repeats`, `namespace`;
    and `conformance`, the annex.

    Raises ConfigError, one line with file and line, for a partner's template that cannot be used.
    """
    found = conformance_of(documents, verdict)
    page = front(documents, verdict, rows, found)
    claims = annex(found)
    return {
        "front": page,
        "conformance": claims,
        **brief_context(documents, verdict, rows, claims),
        "partner": partner_blocks(documents, verdict),
        "repeats": repeats(documents),
        "limits": limits(documents, verdict),
        "repeated": sum(1 for n in Counter(r.measurement for r in documents.results).values() if n > 1),
        "namespace": NAMESPACES[verdict.sign_off],
    }


def front(
    documents: RunDocuments, verdict: VerdictDoc, rows: Sequence[CriterionRow], found: Conformance | None = None
) -> Front:
    """Page one of a run. `found`: its conformance, where that is known already."""
    found = conformance_of(documents, verdict) if found is None else found
    rehearsal = documents.virtual or verdict.sign_off == "REHEARSAL"
    customer, words = documents.customer, front_words(documents.customer.language)
    failed = [r for r in rows if r.criterion.verdict == "fail"]
    waivers = waiver_groups(verdict.waivers, words)
    site = customer.site or documents.info.site
    labels = words.labels
    meta = (
        (labels["customer"], customer.customer),
        (labels["site"], customer.site and f"{customer.site} ({documents.info.site})"),
        (labels["unit"], documents.info.unit),
        (labels["project"], customer.project),
        (labels["contact"], customer.contact),
        (labels["fabric"], f"{documents.fabric.title} ({documents.info.fabric})"),
        (labels["profile"], _profile(verdict, words, documents.topology.here is not None)),
        (labels["date"], documents.info.created[:10]),
        (labels["nodes"], str(len(documents.topology.nodes))),
        (labels["run"], documents.info.run),
        (labels["toolkit"], documents.info.toolkit_version),
    )
    return Front(
        words=words,
        language=customer.language,
        title=f"{customer.customer or site}: {customer.project or documents.fabric.title}",
        meta=tuple((label, value) for label, value in meta if value),
        logo=documents.logo,
        logo_alt=customer.customer or "Logo",
        partner_files=tuple(documents.templates),
        state=_state(documents, verdict, words),
        sentences=sentences(documents, verdict, words),
        rules=_rules(documents, words),
        figures=key_figures(documents, rows, words),
        failed=tuple(failed[:_MOST_FAILED]),
        failed_more=max(0, len(failed) - _MOST_FAILED),
        waivers=waivers[:_MOST_WAIVERS],
        waivers_more=sum(len(w.ids) for w in waivers[_MOST_WAIVERS:]),
        missing=_missing(verdict, words),
        claims=on_front(found, words),
        delivered=delivered(documents, words),
        delivered_title=labels[_title_of_delivered(documents, rehearsal)],
        network=network(documents, words),
        serials=serial_line(documents.parts, words),
        signers=_signers(verdict, customer.customer, words),
        sign_note=labels[f"sign_note{_kind(documents, rehearsal)}"],
    )


def _title_of_delivered(documents: RunDocuments, rehearsal: bool) -> str:
    if documents.topology.here is not None:
        return "delivered_here"
    return f"delivered{_kind(documents, rehearsal)}"


def _kind(documents: RunDocuments, rehearsal: bool) -> str:
    """The end of the names of words that an example and a rehearsal have of their own."""
    return "_example" if documents.constructed else "_rehearsal" if rehearsal else ""


def _signers(verdict: VerdictDoc, customer: str | None, words: FrontWords) -> tuple[str, ...]:
    """Who signs on paper: both sides of an acceptance, or who saw what accepts nothing."""
    labels = words.labels
    if verdict.sign_off not in ("ACCEPTED", "REJECTED", "INCOMPLETE"):
        return (labels["sign_rehearsal"],) * 2
    for_customer = labels["sign_for_customer"] + (f" ({customer})" if customer and len(customer) <= _MOST_NAME else "")
    return (for_customer, labels["sign_for_supplier"])


def _rules(documents: RunDocuments, words: FrontWords) -> str | None:
    rules = documents.rules
    if not rules.other:
        return None
    return words.labels["other_rules"].format(what="; ".join(rules.other), sha256=rules.sha256)


def _profile(verdict: VerdictDoc, words: FrontWords, here: bool) -> str:
    """Which acceptance profile was agreed on, and how much of the catalogue it owes."""
    name = f"{verdict.profile.name}: {verdict.profile.title}" if verdict.profile else words.labels["no_profile"]
    if here:
        return words.labels["nothing_owed"]
    return f"{name} ({words.labels['owed'].format(n=len(verdict.owed), of=len(verdict.criteria))})"


def _missing(verdict: VerdictDoc, words: FrontWords) -> tuple[str, ...]:
    """What keeps an incomplete run from a sign-off."""
    lines, labels = [], words.labels
    if verdict.missing:
        lines.append(labels["missing_words"].format(missing=len(verdict.missing), planned=verdict.planned))
    rehearsal = verdict.sign_off == "REHEARSAL"
    undecided = [
        c.id
        for c in verdict.criteria
        if c.verdict == "not-measured"
        and (
            any(
                j.verdict == "not-measured" and not (rehearsal and j.reason_code == "virtual")
                for j in others(c.judgements)
            )
            or (c.owed and not rehearsal)
        )
    ]
    if verdict.outcome == "incomplete" and undecided:
        ids = ", ".join(undecided[:_MOST_OPEN]) + (", …" if len(undecided) > _MOST_OPEN else "")
        lines.append(labels["undecided"].format(ids=ids))
    return tuple(lines)


def _state(documents: RunDocuments, verdict: VerdictDoc, words: FrontWords) -> str:
    if verdict.sign_off not in ("REHEARSAL", "INSPECTION"):
        return str(getattr(words.state, verdict.sign_off.replace(" ", "_")))
    counts = tally(verdict.criteria)
    key = "passed_waived" if verdict.outcome == "passed" and counts["waived"] else verdict.outcome
    return str(getattr(words.outcome, key)).format(
        judged=counts["pass"] + counts["fail"] + counts["waived"],
        of=len(verdict.criteria),
        failed=counts["fail"],
        waived=counts["waived"],
    )


def sentences(documents: RunDocuments, verdict: VerdictDoc, words: FrontWords) -> tuple[str, str, str]:
    """What was tested, what came out, what it means and the next step."""
    groups: dict[str, int] = {}
    for node in documents.topology.nodes:
        for group in node.groups[:1]:
            groups[group] = groups.get(group, 0) + 1
    link = documents.topology.lab_link
    here = documents.topology.here is not None
    tested = (words.tested_here if here else words.tested).format(
        date=documents.info.created[:10],
        nodes=words.count(len(documents.topology.nodes), "node"),
        site=documents.customer.site or documents.info.site,
        groups=", ".join(words.count(n, g) for g, n in groups.items()),
        fabric=documents.fabric.title,
        lab=words.on_lab.format(rate=quantity(link.rate_gbps, "Gbit/s")) if link else "",
        suites=", ".join(words.suites.get(s, s) for s in documents.info.suites),
    )
    counts = tally(verdict.criteria)
    named = dict.fromkeys(f.about.spaced for f in verdict.findings)
    names = ", ".join(list(named)[:4]) + (", …" if len(named) > 4 else "")
    came = words.came.format(
        measured=verdict.measured,
        planned=verdict.planned,
        criteria=words.count(len(verdict.criteria), "criterion"),
        passed=counts["pass"],
        failed=counts["fail"],
        waived=counts["waived"],
        open=counts["not-measured"],
        other=counts["not-applicable"],
        suspect=words.suspect.format(names=names) if named else "",
    )
    return tested, came, str(getattr(words.meaning, _meaning(documents, verdict)))


def _meaning(documents: RunDocuments, verdict: VerdictDoc) -> str:
    if documents.verdict is None:
        return "unjudged"
    if verdict.sign_off in ("REHEARSAL", "INSPECTION"):
        return f"{verdict.sign_off.lower()}_{verdict.outcome}"
    return verdict.sign_off.lower().replace(" ", "_")


def key_figures(documents: RunDocuments, rows: Sequence[CriterionRow], words: FrontWords) -> tuple[FrontFigure, ...]:
    """The six figures that people ask for, whether they were measured or not."""
    by_id = {r.criterion.id: r for r in rows}
    wanted = {
        "ratio": "rm.ratio", "intra": "tn.intra", "inter": "tn.inter", "fabric": bandwidth(documents),
        "fraction": "rm.fraction", "memory": "rm.memory",
    }  # fmt: skip
    return tuple(_figure(documents, key, by_id[id_], words) for key, id_ in wanted.items() if id_ in by_id)


def _figure(documents: RunDocuments, key: str, row: CriterionRow, words: FrontWords) -> FrontFigure:
    value: str | None = row.measured if row.measured != NONE else None
    note = f"{words.labels['bound']} {row.bounds[0]}" if row.bounds and row.applied else None
    if key == "fabric" and (share := _line_share(documents, row.criterion, words)) is not None:
        value, note = share
    criterion = row.criterion
    undecided = criterion.verdict in ("not-measured", "not-applicable")
    measured_only = value is not None and criterion.verdict == "not-measured"
    return FrontFigure(
        label=words.figures[key],
        value=value,
        note=note,
        verdict=criterion.verdict,
        verdict_words=words.labels["not_judged"] if measured_only else words.verdicts[criterion.verdict],
        reason=words.reasons.get(criterion.reason_code, criterion.reason_code) if undecided else None,
        anchor=row.anchor,
    )


def _line_share(documents: RunDocuments, criterion: CriterionVerdict, words: FrontWords) -> tuple[str, str] | None:
    """The weakest pair's bandwidth as a share of the line rate, and the note beside it; None without a value."""
    measured = one_way(criterion)
    if not measured:
        return None
    link = documents.topology.lab_link
    rate = link.rate_gbps if link else documents.fabric.line_rate_gbps
    worst = min(measured, key=_value)
    alike = [_value(j) for j in measured if j.about.op == worst.about.op]
    of = words.labels["lab_rate" if link else "line_rate"]
    note = words.labels["share_of"].format(rate=quantity(rate, "Gbit/s"), of=of)
    if len(alike) > 1:
        note += f"; {words.labels['median']} {quantity(median(alike) / rate, 'ratio', 3)}"
    return quantity(_value(worst) / rate, "ratio", 3), note


def _value(judgement: Judgement) -> float:
    assert judgement.value is not None  # asked of judgements with a value only
    return judgement.value


def waiver_groups(waivers: Sequence[WaiverUse], words: FrontWords) -> tuple[WaiverGroup, ...]:
    """Who waived what until when, criteria of the same decision together; waivers without effect are not among them."""
    groups: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for waiver in waivers:
        if waiver.covered:
            key = (waiver.who, waiver.when, waiver.expires, waiver.why)
            groups.setdefault(key, {})[waiver.criterion] = None
    return tuple(
        WaiverGroup(by=words.labels["by"].format(who=who, when=when, until=until), why=why, ids=tuple(ids))
        for (who, when, until, why), ids in groups.items()
    )
