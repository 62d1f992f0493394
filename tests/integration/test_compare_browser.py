"""In headless Chromium: the comparison of two runs, a campaign, a report with a logo and language, a partner's words.

How a page is looked at is in tests/support/browser.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import NEEDS_CHROMIUM, Browser, barriers, complaints, invalid, requests
from tests.support.report_fixture import make_run
from validation import campaign
from validation.compare import as_html, compare
from validation.report import write_html
from validation.report.customer import NAME, adopt

pytestmark = NEEDS_CHROMIUM
LOGO = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 12 4"><path fill="#0a5" d="M0 0h4v4H0z"/></svg>'
NAMES = ("worse", "better", "campaign", "customer")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("runs")
    clean, slow = make_run(base / "clean"), make_run(base / "slow", slow="gpu2")
    pages = {name: base / f"{name}.html" for name in NAMES}
    pages["worse"].write_text(as_html(compare(clean, slow)))
    pages["better"].write_text(as_html(compare(slow, clean)))
    fast = make_run(base / "fast", run="2026-11-22T10-15-00Z-tcp10", lab_gbps=10.0)
    pages["campaign"].write_text(campaign.as_html(campaign.campaign_of([slow, fast])))
    words = base / "words"
    (words / "ours").mkdir(parents=True)
    (words / "logo.svg").write_text(LOGO)
    (words / "ours" / "_intro.html").write_text("<h2>Über uns</h2><p>{{ customer.customer }}</p>")
    (words / "ours" / "_closing.html").write_text("<p>Ihr Partner</p>")
    (words / NAME).write_text("customer: Beispiel GmbH\nlogo: logo.svg\nlanguage: de\ntemplates: ours\n")
    adopt(words / NAME, slow)
    write_html(slow, pages["customer"])
    return pages


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", NAMES)
def test_opens_quietly_and_alone(browser: Browser, reports: dict[str, Path], name: str, width: int) -> None:
    events = browser.open(reports[name], width)
    assert complaints(events) == []
    assert [url for url in requests(events) if not url.startswith("data:")] == [reports[name].as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "scrolls sideways"


def test_logo_is_drawn(browser: Browser, reports: dict[str, Path]) -> None:
    browser.open(reports["customer"], 1280)
    assert browser.evaluate("(i => i.complete && i.naturalWidth > 0)(document.querySelector('img.logo'))")


@pytest.mark.parametrize(("name", "width"), [("worse", 390), ("worse", 1280), ("campaign", 1280), ("customer", 390)])
def test_axe_finds_no_barrier(browser: Browser, reports: dict[str, Path], name: str, width: int) -> None:
    browser.open(reports[name], width)
    found = barriers(browser)
    assert found["violations"] == []
    assert found["passes"] > 20, "axe looked at hardly anything"


def test_html_is_valid(reports: dict[str, Path]) -> None:
    assert invalid(*reports.values()) == []
