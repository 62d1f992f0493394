"""Eight pages that a customer reads, then annexes: how long they are, what page one says, and that nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.support.figures_case import rich
from tests.support.page import Page
from tests.support.pages import beyond, laid_out
from tests.support.report_fixture import make_run
from validation.model import LeftOut
from validation.report.criteria import families
from validation.report.delivered import delivered, network
from validation.report.documents import RunDocuments, read_run
from validation.report.front_lines import reasons, worst_link
from validation.report.numbers import typeset
from validation.report.render import fill, view
from validation.report.summary import verdict_of
from validation.report.svg.drawing import Figure
from validation.report.unplanned import why_unplanned
from validation.report.words import front_words

pytestmark = pytest.mark.systems

BEFORE_ANNEXES, ANNEXES = 8, 25
LEAST_PX = 6.1 * 4 / 3
"""The smallest type: 6.1 pt, of a command in a table of the annexes."""


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    return read_run(make_run(tmp_path_factory.mktemp("pages") / "run", slow="gpu2"))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    """Something in every figure."""
    return rich(tmp_path_factory.mktemp("everything") / "run")


def boxes(box: Any) -> Iterator[Any]:
    if type(box).__name__ == "TextBox" and box.text.strip():
        yield box
    for child in getattr(box, "children", None) or ():
        yield from boxes(child)


def test_a_rehearsal_of_four_nodes_has_eight_pages_at_most_and_25_of_annexes(failed: RunDocuments) -> None:
    pytest.importorskip("weasyprint")
    document = laid_out(fill(view(failed), printed=True))
    (first,) = (number for number, page in enumerate(document.pages) if "judgements" in page.anchors)
    assert first <= BEFORE_ANNEXES
    assert len(document.pages) - first <= ANNEXES
    assert beyond(document) == []
    assert "attention" in document.pages[1].anchors
    words = [
        box for page in document.pages for child in page._page_box.children for box in boxes(child)
        if type(child).__name__ != "MarginBox"
    ]  # fmt: skip
    assert min(box.style["font_size"] for box in words) >= LEAST_PX
    page = document.pages[0]._page_box
    body = [box for child in page.children if type(child).__name__ != "MarginBox" for box in boxes(child)]
    end = max(box.position_y + box.height for box in body)
    assert end > page.content_box_y() + page.height * 2 / 3, "an empty third"


def texts(views: dict[str, Any]) -> Iterator[str]:
    """What every criterion, judgement, claim and table of a report says."""
    for row in views["rows"]:
        criterion = row.criterion
        yield from (criterion.id, criterion.statement, criterion.source, criterion.reason, criterion.not_owed)
        yield from (*row.bounds, row.spread or "", row.nominal or "")
        for judgement in criterion.judgements:
            yield from (judgement.subject, judgement.reason)
    for derivation in views["derivations"]:
        yield from derivation.lines
    for group in views["conformance"].groups:
        for row in (*group.rows, *group.elsewhere):
            yield from (row.line.id, row.line.statement, row.published, row.line.reason)
    for value in views.values():
        for figure in value if isinstance(value, tuple) else ():
            if isinstance(figure, Figure):
                yield from (figure.caption, figure.empty or "")
                for cells in figure.table.rows if figure.table else ():
                    yield from cells
    for item in (*views["system"].materials, *views["system"].stack):
        yield from (item.part, item.declared or "", item.found or "")
    for fact in views["system"].facts:
        yield from (fact.name, *(value.value for value in fact.values))
    for item in views["annex"]:
        yield from (item.command, *(log.sha256 for log, _ in item.raw))
    yield from views["limits"]


def plain(text: str) -> str:
    """Without marks, spaces and what only typesets."""
    return re.sub(r"[\s\u2009\u00a0\u202f]", "", typeset(text).replace("<>", "\u2194").replace(">", "\u2192"))


def test_nothing_is_lost_in_the_html(everything: RunDocuments) -> None:
    views = view(everything)
    page = Page(fill(views))
    page.whole()
    said = plain(unescape("".join(page.words)))
    lost = {text for text in texts(views) if text and plain(text) not in said}
    assert lost == set()


def test_the_search_for_what_is_lost_finds_what_is_cut(everything: RunDocuments) -> None:
    views = view(everything)
    assert plain("no such criterion") not in plain("".join(Page(fill(views)).words))
    assert len(set(texts(views))) > 1000


def test_nothing_green_and_no_passed_stands_on_page_one_of_a_rehearsal(tmp_path: Path) -> None:
    text = fill(view(read_run(make_run(tmp_path / "run"))))
    front = text[text.index('<header class="front') : text.index("</header>")]
    assert re.search(r"\d+ of \d+ criteria judged, all passed\.", front)
    assert "PASSED" not in front
    assert "ACCEPTED" not in front
    assert "#1d6f5c" not in front
    assert '<body class="no-acceptance">' in text
    assert re.search(r"\.no-acceptance \{ --pass: #46525f; --t-pass: #46525f; \}", text)
    assert ".o-passed" not in text


def test_page_one_says_what_was_delivered_by_whom_and_who_signs(tmp_path: Path) -> None:
    words = front_words("en")
    documents = read_run(make_run(tmp_path / "run", virtual=False, waive=True))
    lines = {line.nodes: line for line in delivered(documents, words)}
    assert lines["gpu1, gpu2"].what == "2 GPU servers"
    assert lines["gpu1, gpu2"].model == "PowerEdge C4140"
    assert network(documents, words) == "switch not declared"
    leaf = [
        node.model_copy(update={"ports": tuple(p.model_copy(update={"leaf": "leaf1"}) for p in node.ports)})
        for node in documents.topology.nodes
    ]
    racked = replace(documents, topology=documents.topology.model_copy(update={"nodes": tuple(leaf)}))
    assert network(racked, words) == "switches, as declared: leaf1"
    front = fill(view(documents)).partition("</header>")[0]
    assert "For the customer" in front
    assert front.count('class="line"') == 6


def test_the_gpus_of_each_machine_stand_on_page_one(everything: RunDocuments) -> None:
    found = [line.gpus for line in delivered(everything, front_words("en")) if "gpu1" in line.nodes]
    assert found == ["4 \u00d7 V100"] or found == ["4 \u00d7 V100 each"]


def test_the_slowest_link_is_marked_in_the_drawing_and_named_below(failed: RunDocuments, tmp_path: Path) -> None:
    worst = worst_link(failed)
    assert worst is not None
    assert "gpu2/fab0" in worst.ends
    assert worst.failed
    page = Page(fill(view(failed))).text
    assert f"slowest measured link: {worst.source} to {worst.destination}" in page
    assert f"Slowest link: {worst.source} → {worst.destination}, {worst.value}" in page
    bare = replace(failed, verdict=None)
    assert worst_link(bare) is None
    assert "No link was measured, so none is marked in the drawing." in Page(fill(view(bare))).text


def test_what_was_not_measured_has_one_line_for_each_reason(failed: RunDocuments) -> None:
    verdict = verdict_of(failed)
    rows = [row for family in families(verdict, failed.catalogue, failed.fabric) for row in family.rows]
    found = reasons(rows, "not-measured", failed)
    assert len({reason.words for reason in found}) == len(found) < 12
    named = [id_ for reason in found for id_ in reason.ids]
    assert sorted(named) == sorted(c.id for c in verdict.criteria if c.verdict == "not-measured")
    assert "the suite remoting was not selected for this run" in {reason.words for reason in found}


def test_why_nothing_was_planned_is_one_reason_and_the_true_one(failed: RunDocuments) -> None:
    assert why_unplanned(failed, "remoting") == "the suite remoting was not selected for this run"
    selected = failed.plan.model_copy(update={"suites": (*failed.plan.suites, "remoting")})
    asked = replace(failed, plan=selected)
    assert why_unplanned(asked, "remoting") == "the suite remoting was selected, and planned nothing for this figure"
    lonely = [node for node in failed.topology.nodes if "clients" not in node.groups]
    alone = replace(asked, topology=failed.topology.model_copy(update={"nodes": tuple(lonely)}))
    assert why_unplanned(alone, "remoting") == "the inventory declares no client"
    left = selected.model_copy(update={"left_out": (LeftOut(why="no engine is installed", criteria=("rm.copy",)),)})
    assert why_unplanned(replace(failed, plan=left), "remoting", ("rm.copy",)) == "no engine is installed"
    for documents in (failed, asked, alone):
        assert "or found no client" not in fill(view(documents))
