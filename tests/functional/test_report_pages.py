"""On paper no box of any page lies beyond its margins: no column is cut off, whatever names and words a run brings."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.figures_case import rich
from tests.support.pages import beyond, laid_out
from tests.support.report_fixture import make_run
from validation.campaign import campaign_of
from validation.campaign.render import as_html as campaign_html
from validation.compare import compare
from validation.compare.render import as_html as compare_html
from validation.report.documents import RunDocuments, read_run
from validation.report.render import fill, view
from validation.report.word_breaks import longest, with_breaks
from validation.run.read import read
from validation.trend.gather import trend_of
from validation.trend.render import as_html as trend_html

pytestmark = pytest.mark.systems

pytest.importorskip("weasyprint")
LONG = "x" * 300
PATH = f"/srv/{'a' * 120}/{'b' * 120}.json"
NAME = "site-" + "n" * 58
"""As long as a host's name can be."""


def paper(documents: RunDocuments) -> str:
    return fill(view(documents), printed=True)


def hostile(folder: Path) -> RunDocuments:
    """A rehearsal that failed on nodes with the longest names, an error without a space, and words as long in it."""
    documents = rich(folder, dead="client1", error=f"{LONG} {PATH} ssh:{'%20' * 90}", site=NAME)
    assert documents.verdict is not None
    judged = documents.verdict.model_copy(update={"notes": (LONG, f"{NAME}: {PATH}", *documents.verdict.notes)})
    return replace(documents, verdict=judged)


def inspected(folder: Path) -> RunDocuments:
    """As of one machine that no inventory declares: its sign-off stands over every page."""
    documents = read_run(make_run(folder, virtual=False))
    assert documents.verdict is not None
    return replace(documents, verdict=documents.verdict.model_copy(update={"sign_off": "INSPECTION"}))


REPORTS = {
    "words that fit nowhere": hostile,
    "accepted": lambda folder: read_run(make_run(folder, virtual=False, waive=True)),
    "rehearsal": lambda folder: read_run(make_run(folder)),
    "failed": lambda folder: read_run(make_run(folder, slow="gpu2")),
    "inspection": inspected,
    "stopped": lambda folder: read_run(make_run(folder, judged=False, cut_after=20)),
}


def test_a_report_with_every_figure_and_table_keeps_its_margins(tmp_path: Path) -> None:
    assert beyond(laid_out(paper(rich(tmp_path / "run", site=NAME)))) == []


@pytest.mark.rest
@pytest.mark.parametrize("kind", REPORTS)
def test_no_box_of_any_page_of_a_report_lies_beyond_its_margins(tmp_path: Path, kind: str) -> None:
    document = laid_out(paper(REPORTS[kind](tmp_path / "run")))
    assert len(document.pages) > 15
    assert beyond(document) == []


def test_pages_of_several_runs_keep_their_margins(tmp_path: Path) -> None:
    names = [f"2026-11-2{day}T10-15-00Z-tcp10" for day in (1, 2, 3)]
    suites = ("preflight", "transport")
    runs = [make_run(tmp_path / n, run=n, day=at, suites=suites, site=NAME) for at, n in enumerate(names)]
    files = [read(run) for run in runs]
    verdicts = [read_run(run).verdict for run in runs]
    pages = {
        "compare": compare_html(compare(runs[0], runs[1])),
        "trend": trend_html(trend_of([(f, v) for f, v in zip(files, verdicts, strict=True) if v is not None])),
        "campaign": campaign_html(campaign_of(runs)),
    }
    assert {name: beyond(laid_out(page)) for name, page in pages.items()} == {name: [] for name in pages}


def table(rows: list[list[str]], kind: str = "") -> str:
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table{kind}>{cells}</table>"


PAGE = (
    "<!doctype html><style>@page { size: A4; margin: 17mm 13mm } body { font: 8.3pt sans-serif; margin: 0 } "
    "table { width: 100%; border-collapse: collapse } "
    "td { padding: 1mm 2.5mm 1mm 0; overflow-wrap: break-word }</style>"
)


@pytest.mark.parametrize("columns", [1, 3, 6, 12])
def test_tables_of_any_words_fit_their_page(columns: int) -> None:
    """The widest letters, words of all lengths, and more columns than any table of ours has."""
    chance = random.Random(columns)
    letters = ["W", "m", "1", "a", "\u00fc", "-", "."]
    rows = [
        ["".join(chance.choices(letters, k=chance.choice((2, 8, 12, 30, 200)))) for _ in range(columns)]
        for _ in range(30)
    ]
    assert beyond(laid_out(PAGE + table(rows))) == []


def test_a_table_without_the_mark_is_seen_to_be_cut_off() -> None:
    """What the other tests look for is there to be found."""
    rows = [["Inception-v4", *["Published:\u00a02\u00a0x\u00a0C4140-M\u00a0(4\u00a0+\u00a04\u00a0V100-16GB)"] * 6]]
    cut = beyond(laid_out(PAGE + table(rows, ' class="fixed" style="table-layout: auto; white-space: nowrap"')))
    assert cut
    assert cut[0].px > 50
    assert beyond(laid_out(PAGE + table(rows))) == []


def test_only_words_longer_than_their_column_may_break() -> None:
    marked = with_breaks(table([["Network", LONG, "VGG-19"]]))
    assert marked.count("overflow-wrap: anywhere") == 1
    assert "<td>Network</td>" in marked
    assert with_breaks(table([["Network", "4 852 (1.000)"]])) == table([["Network", "4 852 (1.000)"]])
    assert with_breaks(table([[LONG]], ' class="fixed"')) == table([[LONG]], ' class="fixed"')
    texts = ("a bcd", "<b>ab</b>cd e", "<p>ab</p><p>cd</p>", "ab-cde", "ab-12", "1\u00a02")
    assert [longest(text) for text in texts] == [3, 4, 2, 3, 5, 3.2]
