"""A run whose data were made up is a CONSTRUCTED EXAMPLE everywhere, whatever came out of it, and accepts nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.report_fixture import make_run
from tests.support.signing_case import NEEDS_SSH, make_key, sign
from toolkit.cli import cli
from validation.model import VerdictDoc
from validation.model.load import ConfigError
from validation.report.documents import read_run
from validation.report.formats import FILES, write_formats
from validation.run.baseline import baseline_of
from validation.run.read import read
from validation.signing.again import judged_again
from validation.signing.pdf_words import _Pdf
from validation.signing.verify import verify

pytestmark = pytest.mark.computes

WORDS = "CONSTRUCTED EXAMPLE"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that would be ACCEPTED if its nodes' facts did not say that they were made up; not to be changed."""
    made = make_run(tmp_path_factory.mktemp("made") / "run", virtual=False, waive=True, made_up=True)
    write_formats(made)
    return made


def verdict_of(run: Path) -> VerdictDoc:
    found = read_run(run).verdict
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({"virtual": False, "waive": True}, "passed"),
        ({"virtual": False, "slow": "gpu2"}, "failed"),
        ({"virtual": False, "dead": "gpu2"}, "incomplete"),
        ({"virtual": True}, "passed"),
    ],
)
def test_whatever_came_out_it_is_an_example(tmp_path: Path, how: dict[str, object], outcome: str) -> None:
    found = verdict_of(make_run(tmp_path / "run", made_up=True, **how))  # type: ignore[arg-type]
    assert (found.sign_off, found.outcome) == (WORDS, outcome)
    assert found.line.startswith(f"{WORDS}: ")
    assert any("no machine was measured" in note for note in found.notes)


def test_every_file_carries_the_label_and_none_an_acceptance(run: Path) -> None:
    for name, file in FILES.items():
        if name != "pdf":
            text = (run / file).read_text()
            assert WORDS in text, name
            assert "ACCEPTED" not in text.replace('state="ACCEPTED"} 0.0', ""), name
    page = (run / "report.html").read_text().partition("</style>")[2]
    assert 'aria-label="Constructed example"' in page
    assert "s-accepted" not in page
    assert "o-passed" not in page
    document = json.loads((run / "report.json").read_text())
    assert document["constructed"]
    assert document["conformance"]["counts"]["confirmed"] == 0
    assert "elastic_ai_constructed{" in (run / "metrics.prom").read_text()
    assert '<skipped message="a constructed example accepts nothing' in (run / "junit.xml").read_text()


def test_every_page_of_the_pdf_carries_the_label(run: Path) -> None:
    pdf = _Pdf((run / "report.pdf").read_bytes())
    marks = "".join("".join(one.split()) for one in pdf.runs).count("CONSTRUCTEDEXAMPLE·notanacceptance")
    assert pdf.pages > 5
    assert marks == pdf.pages


@NEEDS_SSH
def test_it_is_signed_as_an_example_alone(run: Path, tmp_path: Path) -> None:
    signed = sign(run, make_key(tmp_path / "key"))
    assert signed.statement.namespace == "elastic-ai-constructed-example"
    assert signed.statement.text().startswith(f"# {WORDS}. Its data were made up; no machine was measured;")
    assert signed.certificate is not None
    certificate = _Pdf(signed.certificate.read_bytes()).text
    assert "CONSTRUCTEDEXAMPLEOFACERTIFICATE·NOTANACCEPTANCE" in certificate
    assert "CERTIFICATEOFACCEPTANCE" not in certificate
    assert (run / "README.txt").read_text().startswith(f"{WORDS}: ")
    assert verify(run).answer == "intact"


def test_a_verdict_that_says_otherwise_is_refused(tmp_path: Path) -> None:
    for made_up, said in ((True, "ACCEPTED"), (False, WORDS)):
        made = make_run(tmp_path / said, virtual=False, waive=True, made_up=made_up)
        path = made / "verdict.json"
        path.write_text(path.read_text().replace(f'"sign_off": "{verdict_of(made).sign_off}"', f'"sign_off": "{said}"'))
        with pytest.raises(ConfigError, match=rf"sign_off: is {said}, but the run's data were"):
            read_run(made)


def test_it_bounds_nothing(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", virtual=False, waive=True, made_up=True, run="2026-11-22T10-15-00Z-tcp10")
    runs = [(files, files.verdict) for files in map(read, (run, other))]
    with pytest.raises(ConfigError, match="is CONSTRUCTED EXAMPLE, passed: only accepted runs"):
        baseline_of(runs)


def test_whoever_takes_the_label_out_of_the_facts_gets_no_acceptance(tmp_path: Path) -> None:
    """The raw logs still say it, so that the facts are not what the nodes said, and count as not measured."""
    made = make_run(tmp_path / "run", virtual=False, waive=True, made_up=True)
    results = made / "results.jsonl"
    before = results.read_text()
    results.write_text(before.replace('"constructed":true', '"constructed":false'))
    assert results.read_text() != before
    _, fault = judged_again(read(made))
    assert "verdict.json" in fault
    rejudged = CliRunner().invoke(cli, ["validate", "--rejudge", str(made), "--format", "none"])
    assert rejudged.exit_code == 3
    assert verdict_of(made).sign_off == "INCOMPLETE"
