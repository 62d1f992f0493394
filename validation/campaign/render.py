"""A campaign as text for a terminal, and as one HTML file in the style of the report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jinja2 import Environment

from validation.campaign.model import Campaign, Cell, Row, Section
from validation.campaign.sections import MARKS, PARTS
from validation.report import numbers
from validation.report.claims import CHIPS, STATES
from validation.report.criteria import code_words, slug
from validation.report.pages import environment
from validation.report.svg.drawing import Figure
from validation.report.svg.plots import Span, interval_chart

_LEADS = {part.key: part.lead for part in PARTS}
_MOST_SPANS = 40


def kind(row: Row) -> str:
    """Case, network and batch of a row, as "2 ranks on 1 node, small network, batch 16"; "" where it has none."""
    batch = f"batch {row.batch}" if row.batch is not None else ""
    return ", ".join(filter(None, (row.case, row.model, batch)))


def said(cell: Cell) -> tuple[str, str]:
    """Verdict of a cell for the mark, and its words: what is only reported has no verdict."""
    words = _state(cell)
    if cell.verdict in ("not-measured", "fail"):
        words = f"{words}: {code_words(cell.reason_code)}"
    return cell.verdict, words


def _state(cell: Cell) -> str:
    """The verdict of a cell without its reason."""
    if cell.verdict == "not-measured" and cell.value is not None:
        return "not judged"  # there is a figure, so it was measured
    return "reported" if cell.reason_code == "reported" else cell.verdict.replace("-", " ")


# --- text ------------------------------------------------------------------------------------------------------


def as_text(campaign: Campaign) -> str:
    """A column for each run, a row for each quantity that any of them measured."""
    lines = ["REHEARSAL on virtual parts: nothing here is an acceptance."] if campaign.rehearsal else []
    lines += ["CONSTRUCTED EXAMPLE: the data were made up; no machine was measured."] if campaign.constructed else []
    lines += [f"{campaign.site}, {campaign.headline}", ""]
    table = [
        ["", *(r.label for r in campaign.runs)],
        ["run", *(r.run for r in campaign.runs)],
        ["sign-off", *(f"{r.sign_off}, {r.outcome}" for r in campaign.runs)],
    ]
    for section in campaign.sections:
        for row in section.rows:
            if any(cell.value is not None for cell in row.cells):
                cells = [_short(cell, row.unit) for cell in row.cells]
                table.append([": ".join(filter(None, (row.name, row.case))), *cells])
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    lines += ["  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip() for line in table]
    return "\n".join([*lines, *(f"note: {note}" for note in campaign.notes)]) + "\n"


def _short(cell: Cell, unit: str) -> str:
    if cell.value is None:
        return said(cell)[1]
    mark = "" if cell.verdict == "pass" else f" ({_state(cell)})"
    return f"{numbers.quantity(cell.value, unit)}{mark}"


# --- HTML ------------------------------------------------------------------------------------------------------


def _figures(campaign: Campaign, section: Section) -> list[Figure]:
    """A drawing for each unit of which two runs, or a run and a document, have a value."""
    units = dict.fromkeys(row.unit for row in section.rows if any(c.value is not None for c in row.cells))
    return [figure for unit in units if (figure := _figure(campaign, section, unit)) is not None]


def _figure(campaign: Campaign, section: Section, unit: str) -> Figure | None:
    labels = {r.run: r.label for r in campaign.runs}
    rows = [row for row in section.rows if row.unit == unit]
    spans = [_span(labels[cell.run], row, cell) for row in rows for cell in row.cells if cell.value is not None]
    if len(spans) < 2 or len(spans) > _MOST_SPANS:
        return None  # the table has them all
    theirs = [(p, p.value) for p in section.published if p.value is not None and p.unit == unit]
    spans += [Span(p.claim, value, published=True) for p, value in theirs]
    shown = numbers.unit_text(unit) if unit != "ratio" else "ratio"
    svg = interval_chart(
        f"{section.key}-{slug(unit)}-chart",
        f"{section.title}, {shown}",
        "; ".join(f"{s.label}: {numbers.number(s.value)}" for s in spans) + ".",
        spans,
        f"{shown}; bars are 95 % intervals",
    )
    caption = f"{section.title} by run, {shown}. Crosses: failed. The numbers are in the table."
    if theirs:
        caption += " Hollow diamonds: published figures of other machines."
    return Figure(f"{section.key}-{slug(unit)}", caption, svg)


def _span(label: str, row: Row, cell: Cell) -> Span:
    assert cell.value is not None  # asked before
    what = row.case if row.batch is not None else f"{MARKS[row.criterion]} {row.case}" if row.case else row.name
    return Span(f"{label}: {what}", cell.value, cell.low, cell.high, failed=cell.verdict == "fail")


@cache
def _environment() -> Environment:
    made = environment("validation.campaign", kind=kind, said=said)
    made.globals.update(states=STATES, chips=CHIPS)
    return made


def as_html(campaign: Campaign) -> str:
    """One file: no script, nothing from elsewhere."""
    sections = [(s, _LEADS[s.key], _figures(campaign, s)) for s in campaign.sections]
    return (
        _environment()
        .get_template("campaign.html")
        .render(
            c=campaign,
            rehearsal=campaign.rehearsal,
            constructed=campaign.constructed,
            sections=sections,
            tone=_tone(campaign),
            numbered=_numbered(campaign),
        )
    )


def _numbered(campaign: Campaign) -> dict[str, int]:
    return {run.run: number for number, run in enumerate(campaign.runs, 1)}


def _tone(campaign: Campaign) -> str:
    """Colour of the front: that of the gravest sign-off."""
    order: Sequence[str] = ("REJECTED", "INCOMPLETE", "REHEARSAL", "INSPECTION", "CONSTRUCTED EXAMPLE", "ACCEPTED")
    return min((r.sign_off for r in campaign.runs), key=order.index).lower()
