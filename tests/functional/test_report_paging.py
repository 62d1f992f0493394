"""Large runs: what is summed up is said, what did not pass comes first, and every link still leads somewhere."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support.page import Page
from tests.support.report_fixture import make_run
from tests.support.report_large import make_large_run
from validation.report import paging
from validation.report.documents import read_run
from validation.report.render import fill, view
from validation.report.svg.charts import Dot, bound_strip
from validation.run.catalogue import load_criteria

pytestmark = pytest.mark.systems


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_large_run(tmp_path_factory.mktemp("large") / "run", nodes=40, metrics=60)


@pytest.fixture(scope="module")
def views(folder):
    return view(read_run(folder))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return view(read_run(make_run(tmp_path_factory.mktemp("small") / "run", slow="gpu2")))


def failing(views) -> str:
    """A criterion of the nodes' own metrics that one node fails."""
    ids = [r.criterion.id for r in views["rows"] if r.criterion.verdict == "fail" and r.criterion.id.startswith("gn.")]
    return ids[0]


@pytest.mark.parametrize(
    ("counts", "budget", "expected"),
    [((), 10, 1), ((3, 3), 10, 3), ((1, 100), 11, 10), ((100, 100, 1), 21, 10), ((5, 5, 5), 1, 1)],
)
def test_level_is_the_most_that_keeps_to_the_budget(counts, budget, expected):
    assert paging.level(counts, budget) == expected
    if budget >= len(counts):
        assert sum(min(c, expected) for c in counts) <= budget


@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize("which", ["views", "small"])
def test_every_link_leads_somewhere_on_screen_and_on_paper(request, which, printed):
    Page(fill(request.getfixturevalue(which), printed)).whole()


def test_screen_holds_every_judgement_and_result_of_a_usual_run(views, folder):
    text = fill(views)
    page = Page(text)
    assert "Not shown:" not in text
    for line in (folder / "results.jsonl").read_text().splitlines()[::50]:
        assert re.search(r'"measurement":"([^"]+)"', line)[1] in page.text
    assert text.count('<details class="page">') == len(views["rows"]) - sum(
        not row.criterion.judgements for row in views["rows"]
    )


def test_small_runs_fold_no_judgement_away_on_a_screen(small):
    text = fill(small)
    assert '<details class="page" open>' in text
    assert '<details class="page">' not in text
    assert "Not shown:" not in text
    assert 'id="m-facts.head"' in text


def test_paper_sums_up_what_passed_and_lists_what_did_not(views):
    paper = paging.paged(views, "paper")
    shown = {section.row.criterion.id: section for section in paper["sections"]}
    summed = {item.row.criterion.id for item in paper["summed"]}
    for row in views["rows"]:
        judged = row.criterion.judgements
        if not judged:
            continue
        odd = [
            j for j in judged if j.verdict in ("fail", "not-measured", "waived") and j.reason_code != "virtual"
        ]  # what was measured and proves nothing has no row either
        assert (row.criterion.id in shown) is bool(odd)
        assert (row.criterion.id in summed) is not bool(odd)
        if odd:
            section = shown[row.criterion.id]
            assert all(j in odd for j in section.shown)
            assert (section.rest is None) is (len(section.shown) == len(judged))
            assert section.rest is None or "report.html and report.json" in section.rest
    assert sum(len(s.shown) for s in paper["sections"]) <= paging.PAPER.judgements
    assert any(section.rest for section in paper["sections"])
    assert [(j.subject, j.verdict) for j in shown[failing(views)].shown] == [("gpu0001", "fail")]
    page = Page(fill(views, printed=True))
    for row in views["rows"]:
        assert row.criterion.id in page.text


def test_paper_names_results_that_need_a_look_and_counts_all(views, folder):
    provenance = paging.paged(views, "paper")["provenance"]
    count = len((folder / "results.jsonl").read_text().splitlines())
    assert sum(group.count for group in provenance.groups) == count
    assert f"{count} results, summed up by tool" in provenance.rest
    assert "none needs a look" in provenance.rest
    bad = replace(views["annex"][0], raw=((views["annex"][0].raw[0][0], "changed"),))
    provenance = paging.results([*views["annex"], bad], paging.PAPER)
    assert provenance.shown == (bad,)


def test_beyond_the_limits_what_did_not_pass_comes_first_and_the_rest_is_counted(views, monkeypatch):
    limits = replace(paging.SCREEN, judgements=300, results=10, missing=0)
    monkeypatch.setattr(paging, "SCREEN", limits)
    paged = paging.paged(views, "screen")
    section = next(s for s in paged["sections"] if s.row.criterion.id == failing(views))
    assert section.shown[0].verdict == "fail"
    left = 40 - len(section.shown)
    assert section.rest.startswith(f"Shown: {len(section.shown)} of 40")
    assert f"Not shown: {left} passed." in section.rest
    assert section.summary.startswith("1 failed, 39 passed; ")
    assert paged["missing_shown"] == ()
    assert paged["missing_rest"] == "1 more are named in report.json, key missing."
    assert Page(fill(views)).text.count("Not shown: ") == sum(s.rest is not None for s in paged["sections"])


def test_every_criterion_stands_in_both(views):
    for printed in (False, True):
        ids = Page(fill(views, printed)).ids
        assert all(f"c-{criterion.id}" in ids for criterion in load_criteria())


def test_a_strip_of_thousands_draws_few_dots_and_no_failure_is_covered():
    dots = [Dot(f"n{i}", 100 + (i % 700) / 100, failed=i == 77) for i in range(5000)]
    svg = bound_strip("s", dots, "GB/s", floor=99)
    assert svg.count("<circle") < 400
    assert "more close to it" in svg
    assert svg.count('d="M') - svg.count("<circle") < 20
    assert "<title>n77: 100.8 GB/s</title>" in svg
    few = bound_strip("s", dots[:100], "GB/s", floor=99)
    assert few.count("<circle") == 99
