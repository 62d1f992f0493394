"""PDFs that were exchanged before signing, and machines with other fonts."""
# ruff: noqa: F401, F811 - fixtures of forged_case

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forged_case import FORGED, looked_at, made, quick_pdf, run
from tests.support.signing_case import NEEDS_SSH
from validation.report.pdf_record import PdfRecord, remember
from validation.signing import again
from validation.signing.pdf_words import differences
from validation.signing.verify import verify

pytestmark = [NEEDS_SSH, pytest.mark.computes]


@pytest.mark.parametrize("record", ["kept", "mended", "other-fonts", "gone"])
def test_an_exchanged_pdf_is_never_verified(run: Path, made: tuple[Path, Path, Path], record: str) -> None:
    (run / "report.pdf").write_bytes(FORGED)
    path = run / "report-pdf.json"
    said = json.loads(path.read_text())
    if record == "gone":
        path.unlink()
    elif record != "kept":
        said["pdf_sha256"] = hashlib.sha256(FORGED).hexdigest()
        if record == "other-fonts":
            said["fonts"] = [{"name": "Example-Sans", "sha256": "0" * 64}]
            said["libraries"]["weasyprint"] = "1.0"
        path.write_text(json.dumps(said))
    found = looked_at(run, made)
    assert found.answer == ("not-intact" if record in ("kept", "mended") else "not-checked")
    assert any(words.startswith(("report.pdf: ", "report-pdf.json: ")) for words in (*found.faults, *found.unchecked))
    if record == "other-fonts":
        assert any("Example-Sans" in words and "weasyprint 1.0" in words for words in found.unchecked)


def test_a_record_of_other_parts_beside_the_same_pdf_is_told(run: Path, made: tuple[Path, Path, Path]) -> None:
    path = run / "report-pdf.json"
    said = json.loads(path.read_text())
    said["libraries"]["pango"] = "9.9"
    path.write_text(json.dumps(said))
    assert looked_at(run, made).answer == "not-checked"


def test_without_the_library_a_pdf_is_not_checked(
    run: Path, made: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "no-pdf").mkdir()
    (tmp_path / "no-pdf/weasyprint.py").write_text("raise ImportError\n")
    monkeypatch.syspath_prepend(tmp_path / "no-pdf")
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    found = verify(run, made[2])
    assert found.answer == "not-checked"
    assert any("report.pdf: was not made again to compare" in words for words in found.unchecked)


FONTS = Path("/usr/share/fonts/truetype")


LOOK = """
import sys
from pathlib import Path
from validation.report.pdf import pdf_bytes
from validation.report.pdf_record import record_of
pdf = pdf_bytes(Path(sys.argv[1]).read_text())
Path(sys.argv[2]).write_bytes(pdf)
Path(sys.argv[3]).write_bytes(record_of(pdf).text())
"""


PAGE = """<html><head><style>body {{ font-family: 'Liberation Sans', 'DejaVu Sans' }}</style></head><body>
<h1>Validation report</h1><p>{}</p><p>Outcome: {}. {}</p></body></html>"""


def laid_out(folder: Path, words: str, fonts: str = "") -> tuple[bytes, bytes]:
    """A PDF by the real library and its record, in a process of its own, with the fonts of one folder alone."""
    folder.mkdir()
    (folder / "page.html").write_text(PAGE.format("how a site was measured, in many words " * 60, words, "x" * 300))
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    if fonts:
        conf = (
            f'<?xml version="1.0"?><fontconfig><dir>{FONTS / fonts}</dir><cachedir>{folder}/c</cachedir></fontconfig>'
        )
        (folder / "fonts.conf").write_text(conf)
        environment["FONTCONFIG_FILE"] = str(folder / "fonts.conf")
    files = [folder / name for name in ("page.html", "page.pdf", "page.json")]
    subprocess.run([sys.executable, "-c", LOOK, *files], env=environment, check=True, cwd=folder)
    return files[1].read_bytes(), files[2].read_bytes()


@pytest.mark.skipif(not all((FONTS / name).is_dir() for name in ("dejavu", "liberation")), reason="fonts are missing")
def test_with_other_fonts_words_are_compared_and_nothing_is_verified(tmp_path: Path) -> None:
    mine, record = laid_out(tmp_path / "mine", "REJECTED")
    assert laid_out(tmp_path / "again", "REJECTED")[0] == mine, "the same machine gives the same bytes"
    theirs, other = laid_out(tmp_path / "theirs", "REJECTED", "dejavu")
    forged, forged_record = laid_out(tmp_path / "forged", "ACCEPTED", "dejavu")
    assert theirs != mine
    here = PdfRecord.model_validate_json(record)
    remember(here)
    run = tmp_path / "run"
    run.mkdir()
    for stands, said, faults, open_ in (
        (mine, record, "", ""),
        (theirs, other, "", "this machine lacks what it was made with: font DejaVu-Sans"),
        (forged, forged_record, "says what the data of the run do not give: 'ACCEPTED.'", ""),
        (forged.replace(b"%%EOF", b"%%EOF\n"), record, "names another report.pdf than the one that is there", ""),
    ):
        (run / "report-pdf.json").write_bytes(said)
        wrong, unchecked = again._pdf(run, stands, mine, True)
        assert faults in " ".join(wrong)
        assert open_ in " ".join(unchecked)
        assert (bool(wrong), bool(unchecked)) == (bool(faults), bool(open_)), (wrong, unchecked)
    edited = here.model_copy(update={"pdf_sha256": hashlib.sha256(forged).hexdigest()})
    (run / "report-pdf.json").write_bytes(edited.text())
    assert again._pdf(run, forged, mine, True)[0] == [
        "report.pdf: is not what the data of the run give, by the same fonts and libraries; it was edited"
    ]
    script = theirs + b"\n9999 0 obj\n<</Type /Action/S /JavaScript/JS (app.alert(1))>>\nendobj\n"
    assert "does or carries what no report does: JavaScript, JS" in " ".join(differences(script, mine))
