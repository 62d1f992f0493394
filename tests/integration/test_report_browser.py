"""The report in a real browser: no console message, no request but for the file itself, fits the window, prints whole,
can be filtered, searched and sorted, read without script, and has nothing to object to for axe-core and the Nu checker.

Headless Chromium is driven through its DevTools protocol over a pipe, so that no driver and no port is needed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import NEEDS_CHROMIUM, Browser, axe, barriers, complaints, invalid, requests
from tests.support.figures_case import rich
from tests.support.report_fixture import make_run
from validation.report import write_html
from validation.report.render import render

pytestmark = NEEDS_CHROMIUM

RUNS: dict[str, dict[str, Any]] = {
    "clean": {},
    "slow": {"slow": "gpu2"},
    "dead": {"dead": "gpu2", "error": "<script>alert(1)</script><img src=http://192.0.2.1/x.png>"},
    "real": {"virtual": False, "waive": True},
    "unjudged": {"judged": False, "cut_after": 20},
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("runs")
    made = {name: write_html(make_run(base / name, **how)) for name, how in RUNS.items()}
    made["rich"] = base / "rich.html"  # something in every figure
    made["rich"].write_text(render(rich(base / "rich")))
    return made


@pytest.mark.parametrize("width", [390, 1000, 1440])
@pytest.mark.parametrize("name", [*RUNS, "rich"])
def test_opens_quietly_and_alone(browser: Browser, reports: dict[str, Path], name: str, width: int) -> None:
    events = browser.open(reports[name], width)
    assert complaints(events) == []
    assert [url for url in requests(events) if url != "data:,"] == [reports[name].as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "scrolls sideways"
    assert browser.evaluate("document.compatMode") == "CSS1Compat"
    assert browser.evaluate("document.querySelectorAll('svg').length") >= 3


def test_the_checks_above_can_fail(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<!doctype html><title>x</title><img src='absent.png'><script>console.error('x'); nope()</script>")
    events = browser.open(page, 1000)
    assert len(complaints(events)) >= 2
    assert any(url.endswith("absent.png") for url in requests(events))


def test_rehearsal_mark_stays_in_sight(browser: Browser, reports: dict[str, Path]) -> None:
    browser.open(reports["clean"], 1280)
    browser.evaluate("window.scrollTo(0, 3000)")
    assert browser.evaluate("document.querySelector('.mark').getBoundingClientRect().top") == 0
    assert browser.evaluate("document.querySelector('.mark').innerText").startswith("REHEARSAL")


@pytest.mark.parametrize("name", ["slow", "rich"])
def test_figures_are_drawn_inside_their_frames(browser: Browser, reports: dict[str, Path], name: str) -> None:
    browser.open(reports[name], 1280)
    outside = browser.evaluate(
        """[...document.querySelectorAll('svg')].flatMap(svg => {
             const frame = svg.getBoundingClientRect();
             return [...svg.querySelectorAll('text')].filter(t => {
               const box = t.getBoundingClientRect();
               return box.left < frame.left - 1 || box.right > frame.right + 1
                   || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
             }).map(t => t.textContent);
           })"""
    )
    assert outside == []


def test_every_printed_page_of_a_rehearsal_says_so(browser: Browser, reports: dict[str, Path], tmp_path: Path) -> None:
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext here; bin/test installs it (apt install poppler-utils)")
    browser.open(reports["clean"], 1280)
    file = tmp_path / "report.pdf"
    file.write_bytes(browser.pdf())
    text = subprocess.run(["pdftotext", "-layout", str(file), "-"], check=True, capture_output=True, text=True).stdout
    pages = text.split("\f")[:-1]
    assert len(pages) > 5
    # the strip along the edge, drawn vertically, in every browser; the line in the margin in this one
    assert all("REHEARSAL, not an acceptance" in page for page in pages)
    assert all(re.search(r"Page +\d+ +of", page) for page in pages)
    raw = subprocess.run(["pdftotext", "-raw", str(file), "-"], check=True, capture_output=True, text=True).stdout
    assert all("not an acceptance of any hardware" in " ".join(page.split()) for page in raw.split("\f")[:-1])


CRITERIA = "section[aria-labelledby=criteria]"
JUDGEMENTS = "section[aria-labelledby=judgements]"
SHOWN = "[...document.querySelectorAll('{section} tbody tr')].filter(r => getComputedStyle(r).display != 'none')"


def shown(browser: Browser, section: str) -> int:
    return int(browser.evaluate(f"({SHOWN.format(section=section)}).length"))


def search(browser: Browser, section: str, words: str) -> None:
    browser.evaluate(
        f"""(() => {{ const box = document.querySelector('{section} input[type=search]');
            box.value = {json.dumps(words)};
            box.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"""
    )
    browser.evaluate("new Promise(done => setTimeout(done, 200))")


def test_filter_hides_nothing_until_asked_and_says_what_it_hides(browser: Browser, reports: dict[str, Path]) -> None:
    browser.open(reports["slow"], 1280)
    total = browser.evaluate(f"document.querySelectorAll('{CRITERIA} tbody tr').length")
    assert total > 30
    assert shown(browser, CRITERIA) == total  # not measured and waived ones among them
    assert browser.evaluate("[...document.querySelectorAll('.filter input[type=checkbox]')].every(b => b.checked)")
    unmeasured = browser.evaluate(f"document.querySelectorAll('{CRITERIA} tbody .v-not-measured').length")
    assert unmeasured > 5
    browser.evaluate(f"document.querySelector('{CRITERIA} input[value=not-measured]').click()")
    assert shown(browser, CRITERIA) == total - unmeasured
    said = browser.evaluate(f"document.querySelector('{CRITERIA} output').textContent")
    assert said == f"{total - unmeasured} of {total} listed criteria shown; hidden: {unmeasured} not measured"
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert shown(browser, CRITERIA) == total, "a filter on the screen must not reach the paper"
    browser.call("Emulation.setEmulatedMedia", media="")
    browser.evaluate(f"document.querySelector('{CRITERIA} button[type=reset]').click()")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")
    assert shown(browser, CRITERIA) == total


def test_search_finds_words_in_any_order_and_opens_what_is_folded(browser: Browser, reports: dict[str, Path]) -> None:
    browser.open(reports["slow"], 1280)
    search(browser, CRITERIA, "bandwidth TCP")
    found = browser.evaluate(f"({SHOWN.format(section=CRITERIA)}).map(r => r.id)")
    assert "c-tr.tcpbw" in found
    assert len(found) < 10
    browser.evaluate(
        "document.querySelectorAll('section[aria-labelledby=judgements] details').forEach(d => d.open = false)"
    )
    search(browser, JUDGEMENTS, "tr.tcpbw gpu2")
    assert shown(browser, JUDGEMENTS) == 6
    assert browser.evaluate(f"({SHOWN.format(section=JUDGEMENTS)}).every(r => r.checkVisibility())")
    search(browser, JUDGEMENTS, "")
    assert shown(browser, JUDGEMENTS) > 6


def test_columns_sort_by_number_and_back_with_the_keyboard(browser: Browser, reports: dict[str, Path]) -> None:
    browser.open(reports["slow"], 1280)
    table = (
        f"[...document.querySelectorAll('{JUDGEMENTS} table')].find(t => t.caption.textContent.includes('tr.tcpbw'))"
    )
    values = f"[...{table}.tBodies[0].rows].map(r => parseFloat(r.cells[1].textContent))"
    before = browser.evaluate(values)
    browser.evaluate("document.querySelectorAll('.annex > details').forEach(d => d.open = true)")
    browser.evaluate(f"{table}.tHead.rows[0].cells[1].querySelector('button').focus()")

    def press() -> Any:
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if kind == "keyDown" else {}
            browser.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, **text
            )
        return browser.evaluate(f"{table}.tHead.rows[0].cells[1].getAttribute('aria-sort')")

    assert press() == "ascending"
    assert browser.evaluate(values) == sorted(before)
    assert sorted(before) != before
    assert press() == "descending"
    assert browser.evaluate(values) == sorted(before, reverse=True)
    assert press() is None
    assert browser.evaluate(values) == before


def test_criteria_sort_by_severity_of_their_verdict(browser: Browser, reports: dict[str, Path]) -> None:
    browser.open(reports["slow"], 1280)
    table = f"[...document.querySelectorAll('{CRITERIA} table')].find(t => t.querySelector('.v-fail'))"
    browser.evaluate(f"{table}.tHead.rows[0].cells[3].querySelector('button').click()")
    verdicts = browser.evaluate(f"[...{table}.tBodies[0].rows].map(r => r.querySelector('.v').textContent)")
    order = ["fail", "not measured", "waived", "not applicable", "pass"]
    assert verdicts[0] == "fail"
    assert verdicts == sorted(verdicts, key=order.index)


def test_link_leads_to_a_row_that_the_filter_hides(browser: Browser, reports: dict[str, Path]) -> None:
    browser.open(reports["slow"], 1280)
    search(browser, CRITERIA, "nothing has these words")
    assert shown(browser, CRITERIA) == 0
    browser.evaluate("location.hash = '#c-tr.tcpbw'")
    browser.evaluate("new Promise(done => setTimeout(done, 100))")
    assert browser.evaluate("document.getElementById('c-tr.tcpbw').checkVisibility()")


def test_without_script_everything_can_be_read(browser: Browser, reports: dict[str, Path], tmp_path: Path) -> None:
    rows = {}
    plain = tmp_path / "plain.html"
    plain.write_text(re.sub(r"<script>.*</script>", "", reports["rich"].read_text(), flags=re.DOTALL))
    for page in (reports["rich"], plain):
        browser.open(page, 1280)
        rows[page] = browser.evaluate("[...document.querySelectorAll('tbody tr')].map(r => r.textContent)")
    assert browser.evaluate("document.querySelectorAll('script, .filter, button').length") == 0
    assert rows[plain] == rows[reports["rich"]]
    assert shown(browser, CRITERIA) > 30


def test_policy_lets_no_other_script_run(browser: Browser, reports: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "tampered.html"
    text = reports["clean"].read_text().replace("</body>", "<script>document.title = 'ran'</script></body>")
    page.write_text(text.replace("<h1", "<h1 onclick=\"document.title = 'ran'\"", 1))
    events = browser.open(page, 1280)
    browser.evaluate("document.querySelector('h1').click()")
    assert browser.evaluate("document.title") != "ran"
    assert complaints(events)


@pytest.mark.parametrize(
    ("name", "width"), [("slow", 1280), ("dead", 390), ("real", 1280), ("rich", 390), ("rich", 1280)]
)
def test_axe_finds_no_barrier(browser: Browser, reports: dict[str, Path], name: str, width: int) -> None:
    browser.open(reports[name], width)
    found = barriers(browser)
    assert found["violations"] == []
    assert found["passes"] > 20, "axe looked at hardly anything"


@pytest.mark.parametrize("name", ["slow", "real", "rich"])
def test_axe_finds_no_barrier_in_the_dark_scheme_with_everything_unfolded(
    browser: Browser, reports: dict[str, Path], name: str
) -> None:
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    try:
        browser.open(reports[name], 1280)
        assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 24, 31)"
        browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        found = barriers(browser)
    finally:
        browser.call("Emulation.setEmulatedMedia", features=[])
    assert found["violations"] == []
    assert found["passes"] > 20, "axe looked at hardly anything"


@pytest.mark.parametrize("name", [*RUNS, "rich"])
def test_before_anything_is_unfolded_the_page_is_short(browser: Browser, reports: dict[str, Path], name: str) -> None:
    browser.open(reports[name], 1280)
    assert browser.evaluate("[...document.querySelectorAll('.annex > details')].every(d => !d.open)")
    assert browser.evaluate("document.documentElement.scrollHeight") < 20_000


VERDICT_BOXES = """[...document.querySelectorAll('.state .word, .v')].filter(e => e.checkVisibility())
    .map(e => e.getBoundingClientRect()).filter(b => b.left < 0 || b.right > 390).length"""


@pytest.mark.parametrize("name", ["slow", "rich"])
def test_on_a_phone_every_verdict_is_on_the_screen(browser: Browser, reports: dict[str, Path], name: str) -> None:
    browser.open(reports[name], 390)
    assert browser.evaluate("document.querySelector('.state .word').getBoundingClientRect().bottom") < 600
    browser.evaluate("document.querySelectorAll('.annex > details').forEach(d => d.open = true)")
    assert browser.evaluate("document.querySelectorAll('section[aria-labelledby=criteria] .v').length") > 30
    assert browser.evaluate(VERDICT_BOXES) == 0


@pytest.mark.parametrize("width", [320, 390])
def test_on_a_phone_no_word_of_the_verdict_is_broken(browser: Browser, tmp_path: Path, width: int) -> None:
    browser.open(write_html(make_run(tmp_path / "run", made_up=True, judged=True)), width)
    assert browser.evaluate("document.querySelector('.state .word').innerText") == "CONSTRUCTED EXAMPLE"
    lines = """(() => { const r = document.createRange(); const t = document.querySelector('.state .word').firstChild;
        const at = t.data.indexOf('CONSTRUCTED'); r.setStart(t, at); r.setEnd(t, at + 11);
        return r.getClientRects().length; })()"""
    assert browser.evaluate(lines) == 1
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "scrolls sideways"


def test_on_a_phone_the_drawing_can_be_read_and_moved_with_the_keyboard(
    browser: Browser, reports: dict[str, Path]
) -> None:
    browser.open(reports["slow"], 390)
    smallest = """Math.min(...[...document.querySelectorAll('#fig-fabric-drawing svg text')]
        .map(t => t.getBoundingClientRect().height))"""
    assert browser.evaluate(smallest) >= 9
    region = "document.querySelector('#fig-fabric-drawing .sideways')"
    assert browser.evaluate(f"{region}.scrollWidth > {region}.clientWidth && {region}.tabIndex === 0")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390, "scrolls sideways"


def test_axe_can_object(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<!doctype html><title>x</title><p style='color:#bbb'>pale</p><img src='data:,'>")
    browser.open(page, 1000)
    browser.evaluate(axe())
    found = browser.evaluate("axe.run(document).then(r => r.violations.map(v => v.id))")
    assert {"color-contrast", "image-alt", "html-has-lang"} <= set(found)


def test_html_is_valid_to_a_checker_that_can_object(reports: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<!doctype html><html lang=en><title>x</title><p><table><td id=a>1</table><b id=a>")
    found = invalid(*reports.values(), page)
    assert len(found) >= 2
    assert [line for line in found if str(page) not in line] == []
