"""The PDF is laid out once for a report and the signature that follows, and once more by whoever verifies."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.report_fixture import make_run
from tests.support.signing_case import NEEDS_SSH, make_key
from toolkit import acceptance, prepare_signing
from toolkit.cli import cli
from validation.report.formats import write_formats
from validation.signing.again import made_again

pytestmark = pytest.mark.systems

QUICK = Path(__file__).parents[1] / "support/quick_pdf"


@pytest.fixture
def layouts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Digest of each report that was laid out; by a stand-in, and with a cache of the test's own. A certificate, which
    is one page and made anew by each signature, does not count."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(QUICK)
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    import weasyprint

    done: list[str] = []
    lay_out = weasyprint.HTML.write_pdf

    def noted(self: Any, pdf_tags: bool) -> bytes:
        if not self.certificate:
            done.append(self.digest)
        return lay_out(self, pdf_tags)

    monkeypatch.setattr(weasyprint.HTML, "write_pdf", noted)
    return done


@pytest.fixture
def run(layouts: list[str], tmp_path: Path) -> Path:
    """A judged run whose report was just written."""
    folder = make_run(tmp_path / "run")
    write_formats(folder)
    assert len(layouts) == 1
    layouts.clear()
    return folder


def complete(run: Path) -> bytes:
    """What `toolkit sign` and `toolkit bundle` do first; the PDF that is then in the run."""
    prepare_signing.complete(run, lambda words: None)
    return (run / "report.pdf").read_bytes()


def test_a_pdf_just_made_of_the_same_text_is_not_laid_out_again(run: Path, layouts: list[str]) -> None:
    stood = (run / "report.pdf").read_bytes()
    assert complete(run) == stood
    assert layouts == []


@pytest.mark.parametrize("damage", ["edited", "removed", "text", "no-note", "other-version"])
def test_whatever_is_not_that_is_laid_out_again(
    run: Path, layouts: list[str], damage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pdf = run / "report.pdf"
    stood = pdf.read_bytes()
    if damage == "edited":
        pdf.write_bytes(stood.replace(b"stand-in", b"prettier"))
    elif damage == "removed":
        pdf.unlink()
    elif damage == "text":
        info = run / "run.json"
        info.write_text(json.dumps({**json.loads(info.read_text()), "command": ["toolkit", "validate", "-v"]}))
    elif damage == "no-note":
        next((tmp_path / "cache").glob("*/pdf/*")).unlink()
    else:
        monkeypatch.setattr("validation.report.laid_out.version", lambda package: "0")
    assert (complete(run) == stood) == (damage != "text")
    assert len(layouts) == 1


@pytest.mark.parametrize("open_", [".", ".."])
def test_notes_that_others_may_write_are_not_believed(
    run: Path, layouts: list[str], tmp_path: Path, open_: str
) -> None:
    next((tmp_path / "cache").glob("*/pdf")).joinpath(open_).resolve().chmod(0o777)
    complete(run)
    assert len(layouts) == 1


def test_report_lays_out_whatever_stands_there(run: Path, layouts: list[str]) -> None:
    write_formats(run)
    assert len(layouts) == 1


@NEEDS_SSH
def test_verify_asks_no_note_so_a_forged_one_is_found(run: Path, layouts: list[str], tmp_path: Path) -> None:
    forged = b"%PDF-1.7\n% all fine\n%%EOF\n"
    (run / "report.pdf").write_bytes(forged)
    note = next((tmp_path / "cache").glob("*/pdf/*"))
    note.write_text(hashlib.sha256(forged).hexdigest())
    said = toolkit("sign", str(run), "--key", str(make_key(tmp_path / "key")), "--as", "A. Example, Example AG")
    assert said.exit_code == 0, said.output
    assert layouts == []
    assert (run / "report.pdf").read_bytes() == forged
    again = made_again(run)
    assert len(layouts) == 1
    assert "report.pdf" not in again.same
    assert any(words.startswith("report.pdf: differs from the one made here") for words in again.notes)


def test_the_verdict_is_told_before_the_pdf_is_laid_out(
    tmp_path: Path, layouts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path / "run")
    write = acceptance.write_report

    def told(run_dir: Path, formats: Any = None, *rest: Any) -> Any:
        print("FORMATS", *formats)
        return write(run_dir, formats, *rest)

    monkeypatch.setattr(acceptance, "write_report", told)
    lines = toolkit("validate", "--rejudge", str(folder)).output.splitlines()
    where = [
        i for i, line in enumerate(lines) if line.split()[:1] in (["FORMATS"], ["report"])
    ]  # a long path is folded
    assert [lines[i].split()[0] for i in where] == ["FORMATS", "report", "FORMATS"]
    assert lines[where[0]].split()[1:] == ["html", "json", "junit", "prom"]
    assert lines[where[2]] == "FORMATS pdf"
    assert (folder / "report.pdf").is_file()


def toolkit(*arguments: str) -> Result:
    """The command line in this process."""
    return CliRunner().invoke(cli, arguments)
