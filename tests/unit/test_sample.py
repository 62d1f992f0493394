"""docs/sample is of today: today's criteria in today's words; the constructed example says what it is.

tools/make_sample.py                  renews it
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from validation.report.numbers import typeset
from validation.run.catalogue import load_criteria
from validation.signing.pdf_words import _Pdf

SAMPLE = Path(__file__).parents[2] / "docs/sample"
CONSTRUCTED = SAMPLE / "constructed"
WORDS = "CONSTRUCTED EXAMPLE"
MOST_BYTES = 5 << 20
RENEW = "renew it: tools/make_sample.py"


def text_of(page: Path) -> str:
    """What a reader of a report reads, on one line."""
    body = re.sub(r"(?s)<(style|script|head)\b.*?</\1>", " ", page.read_text())
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


def plain(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", str(typeset(text)))).split())


@pytest.mark.parametrize("folder", [SAMPLE, CONSTRUCTED], ids=["rehearsal", "constructed"])
def test_a_sample_has_todays_criteria_in_todays_words(folder: Path) -> None:
    page, text = (folder / "report.html").read_text(), text_of(folder / "report.html")
    criteria = load_criteria()
    shown = set(re.findall(r'id="c-([a-z0-9.-]+)"', page))
    assert shown == {c.id for c in criteria}, f"other criteria than today's; {RENEW}"
    old = [c.id for c in criteria if plain(c.statement) not in text]
    assert not old, f"other words than today's of {old}; {RENEW}"


def test_a_criterion_that_is_another_would_be_seen() -> None:
    text = text_of(SAMPLE / "report.html")
    assert plain(load_criteria()[0].statement + " and more") not in text


def test_what_is_shown_beside_it_is_there_and_not_large() -> None:
    words = (SAMPLE / "README.md").read_text()
    for name in re.findall(r"\]\(([^)#]+)\)", words):
        assert (SAMPLE / name).is_file(), f"{name}: {RENEW}"
    for folder in (SAMPLE, CONSTRUCTED):
        pages = _Pdf((folder / "report.pdf").read_bytes()).pages
        assert f"report.pdf) ({pages} pages)" in words, RENEW
        assert _Pdf((folder / "certificate.pdf").read_bytes()).pages == 1
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*")) < MOST_BYTES


def test_the_rehearsal_has_eight_pages_at_most_and_25_of_annexes() -> None:
    pages = _Pdf((SAMPLE / "report.pdf").read_bytes()).pages
    assert pages <= 8 + 25


def test_the_rehearsal_is_one_and_never_an_acceptance() -> None:
    certificate = _Pdf((SAMPLE / "certificate.pdf").read_bytes()).text
    assert "CERTIFICATEOFREHEARSAL·NOTANACCEPTANCE" in certificate
    assert 'aria-label="Rehearsal"' in (SAMPLE / "report.html").read_text()


def test_the_constructed_example_says_so_in_every_file_and_on_every_page() -> None:
    for name in ("report.html", "report.json", "junit.xml", "metrics.prom", "README.txt"):
        text = (CONSTRUCTED / name).read_text()
        assert WORDS in text, name
        assert "ACCEPTED" not in text.replace('state="ACCEPTED"} 0.0', ""), name
    pdf = _Pdf((CONSTRUCTED / "report.pdf").read_bytes())
    marks = "".join("".join(run.split()) for run in pdf.runs).count("CONSTRUCTEDEXAMPLE·notanacceptance")
    assert marks == pdf.pages > 8
    certificate = _Pdf((CONSTRUCTED / "certificate.pdf").read_bytes()).text
    assert "CONSTRUCTEDEXAMPLEOFACERTIFICATE·NOTANACCEPTANCE" in certificate
    assert json.loads((CONSTRUCTED / "report.json").read_text())["constructed"] is True
    properties = ElementTree.parse(CONSTRUCTED / "junit.xml").getroot().iter("property")
    assert {p.attrib["value"] for p in properties if p.attrib["name"] == "sign_off"} == {WORDS}
