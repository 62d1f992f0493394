"""The certificate of a signature: one page, of this signature and run alone, found wherever it is another."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.serial_case import part, server
from tests.support.signing_case import NEEDS_SSH, allow, make_key, reported_run, sign
from validation.model.base import NAMESPACES
from validation.model.listed_parts import KINDS
from validation.model.load import ConfigError
from validation.report.customer import Customer
from validation.report.documents import read_run
from validation.report.pdf import pdf_bytes
from validation.report.pdf_record import record_of
from validation.signing import ssh
from validation.signing.certificate import TITLES, Certificate, certificate, certificate_html
from validation.signing.pack import bundle_run
from validation.signing.pdf_words import _Pdf, differences
from validation.signing.statement import MOST, WORDS, Statement, certificate_names, read_statement
from validation.signing.verify import verify

pytestmark = [NEEDS_SSH, pytest.mark.computes]
FIRST = "signatures/01-a-example-certificate.pdf"
RECORD = "signatures/01-a-example-certificate.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A signed rehearsal, its key, and a file of allowed signers; not to be changed."""
    folder = tmp_path_factory.mktemp("certificate")
    run, key = reported_run(folder / "run"), make_key(folder / "key")
    sign(run, key)
    return run, key, allow(folder / "allowed", key)


@pytest.fixture
def run(made: tuple[Path, Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "run"))


def read(path: Path) -> _Pdf:
    return _Pdf(path.read_bytes())


def says(pdf: _Pdf, words: str) -> bool:
    return "".join(words.split()) in pdf.text


def statement_of(run: Path) -> Statement:
    return read_statement((run / "signatures/01-a-example.txt").read_text(), "x")


def signed_with(run: Path, key: Path, pdf: bytes, record: bytes | None = None) -> None:
    """This PDF as the certificate, under a statement that names its hash, signed by the same key."""
    known = record_of(pdf)
    record = record or (known.text() if known else (run / RECORD).read_bytes())
    (run / FIRST).write_bytes(pdf)
    (run / RECORD).write_bytes(record)
    sums = tuple((n, hashlib.sha256(c).hexdigest()) for n, c in ((FIRST, pdf), (RECORD, record)))
    said = replace(statement_of(run), certificate=sums)
    path = run / "signatures/01-a-example.txt"
    path.write_text(said.text())
    path.with_name(f"{path.name}.sig").write_bytes(ssh.sign(ssh.read_key(key), said.namespace, said.text().encode()))


def other(run: Path, /, **changes: Any) -> Certificate:
    return certificate(read_run(run), [replace(statement_of(run), **changes)])


def test_one_page_says_who_signed_what_and_how_to_check_it(run: Path, made: tuple[Path, Path, Path]) -> None:
    pdf = read(run / FIRST)
    assert pdf.pages == 1
    said = statement_of(run)
    for words in (
        "CERTIFICATE OF REHEARSAL", "NOT AN ACCEPTANCE", WORDS["REHEARSAL"], said.run, said.site, said.headline,
        "container (systemd-nspawn)", "gpu1, gpu2",
        "A. Example, Example AG", said.time, said.key, said.manifest_sha256, said.rules,
        "sha256sum -c --quiet MANIFEST.sha256", "ssh-keygen -Y check-novalidate -n elastic-ai-rehearsal",
        f"toolkit verify {said.run}.zip",
    ):  # fmt: skip
        assert says(pdf, words), words
    found = verify(run, made[2])
    assert (found.answer, found.notes) == ("verified", ["report.pdf: is not there"])
    assert FIRST in found.made_again


def test_the_statement_covers_it_and_stock_tools_check_it(run: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "-c", "--strict", "signatures/01-a-example.txt"],
        cwd=run,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["MANIFEST.sha256: OK", f"{FIRST}: OK", f"{RECORD}: OK"]


def test_only_an_acceptance_is_called_one(made: tuple[Path, Path, Path]) -> None:
    assert set(TITLES) == set(NAMESPACES)
    documents, said = read_run(made[0]), statement_of(made[0])
    for sign_off, title in TITLES.items():
        page = certificate_html(documents, [replace(said, sign_off=sign_off)])
        accepted = sign_off == "ACCEPTED"
        assert ("CERTIFICATE OF ACCEPTANCE" in page) == accepted
        assert (f'content: "{title}  ·  NOT AN ACCEPTANCE"' in page) == (not accepted), "the mark of every page"
        assert f'<body class="{sign_off.lower().replace(" ", "-")}">' in page
        assert WORDS[sign_off] in page
    green = {line for line in page.splitlines() if "#175c4c" in line}
    assert green == {"body.accepted { --tone: #175c4c; }"}


@pytest.mark.parametrize("many", [1, 64])
def test_it_stays_one_page_however_much_there_is_to_say(made: tuple[Path, Path, Path], many: int) -> None:
    documents, said = read_run(made[0]), statement_of(made[0])
    nodes = documents.topology.nodes
    kinds = tuple(
        n.model_copy(update={"name": f"{'n' * 60}{k}", "virtual": "v" * (50 + k)}) for k in range(9) for n in nodes[:1]
    )
    documents = replace(
        documents,
        topology=documents.topology.model_copy(update={"nodes": kinds}),
        customer=Customer(customer="W" * 80, site="W" * 80, project="W" * 80),
    )
    long = replace(
        said, headline="REHEARSAL: " + "failed: tr.tcpbw, " * 400, name="W" * MOST, company="M M " * (MOST // 4),
        site="s" * 200, profile="p " * 300, rules="OTHER " * 500,
    )  # fmt: skip
    assert _Pdf(certificate(documents, [long] * many).pdf[1]).pages == 1
    parts = [part(kind, f"{kind}{n}", str(n)) for kind in KINDS for n in range(1000)]
    vars(documents)["parts"] = tuple(server(f"n{n}", *parts, tag="T" * 80) for n in range(300))
    assert _Pdf(certificate(documents, [long] * many).pdf[1]).pages == 1


def test_who_signs_later_has_a_certificate_with_all_names(
    run: Path, made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    before = (run / FIRST).read_bytes()
    second = make_key(tmp_path / "second", "-t", "ecdsa")
    signed = sign(run, second, "Käthe Söhne")
    assert signed.certificate == run / "signatures/02-kathe-sohne-certificate.pdf"
    assert (run / FIRST).read_bytes() == before
    pdf = read(signed.certificate)
    for one in (statement_of(run), signed.statement):
        assert says(pdf, f"{one.name}, {one.company}")
        assert says(pdf, one.key)
    assert verify(run, allow(Path(shutil.copy(made[2], tmp_path / "allowed")), second, "k@example.com")).good
    for path in (run / "signatures").glob("01-*"):  # the first signature is taken away, the second's number mended
        path.unlink()
    assert not verify(run).good


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda run: (run / FIRST).write_bytes(b"%PDF-1.7\n%%EOF\n"), f"{FIRST}: changed since it was signed"),
        (lambda run: (run / RECORD).write_text("{}\n"), f"{RECORD}: changed since it was signed"),
        (lambda run: (run / FIRST).unlink(), f"{FIRST}: missing, though its statement names it"),
        (lambda run: (run / RECORD).unlink(), f"{RECORD}: missing, though its statement names it"),
        (lambda run: (run / FIRST).rename(run / "x") and (run / FIRST).symlink_to("../x"), f"{FIRST}: is not an"),
        (lambda run: (run / "signatures/02-b-certificate.pdf").write_bytes(b""), "02-b-certificate.pdf: is no pair"),
    ],
)
def test_a_certificate_that_is_not_the_one_signed_is_named_and_nobody_signs_beside_it(
    run: Path, tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    damage(run)
    found = verify(run)
    assert found.answer == "not-intact"
    assert any(words in fault for fault in found.faults), found.faults
    if "is no pair" not in words:
        with pytest.raises(ConfigError, match="was changed since it was signed") as caught:
            sign(run, make_key(tmp_path / "other"), "B")
        assert words in str(caught.value)


def two_pages(run: Path) -> bytes:
    page = certificate_html(read_run(run), [statement_of(run)])
    return pdf_bytes(page.replace("</body>", '<p style="break-before: page">and all that was not measured</p></body>'))


@pytest.mark.parametrize(
    "forged",
    [
        lambda run: other(run, name="C. Customer", company="Example Bank").pdf[1],
        lambda run: other(run, key="SHA256:AAAA (ED25519)").pdf[1],
        lambda run: other(run, sign_off="ACCEPTED", headline="ACCEPTED: all pass").pdf[1],
        lambda run: other(run, run="2026-01-01T00-00-00Z-tcp10").pdf[1],
        two_pages,
        lambda run: (run / FIRST).read_bytes() + b"\n",
        lambda run: b"%PDF-1.7\n% stand-in\n%%EOF\n",
    ],
    ids=["names", "key", "accepted", "run", "extra-page", "bytes", "no-page"],
)
def test_another_certificate_is_found_though_its_hash_is_signed(
    run: Path, made: tuple[Path, Path, Path], forged: Callable[[Path], bytes]
) -> None:
    signed_with(run, made[1], forged(run))
    found = verify(run, made[2])
    assert found.answer == "not-intact", (found.answer, found.unchecked)
    assert any(fault.startswith((FIRST, RECORD)) for fault in found.faults), found.faults


def test_the_certificate_of_another_run_does_not_fit(run: Path, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    lost = reported_run(tmp_path / "lost", slow="gpu2")
    sign(lost, made[1])
    pdf, record = (lost / FIRST).read_bytes(), (lost / RECORD).read_bytes()
    (run / FIRST).write_bytes(pdf)
    assert verify(run).answer == "not-intact"
    signed_with(run, made[1], pdf, record)
    found = verify(run, made[2])
    assert any(fault.startswith(FIRST) and "it was edited" in fault for fault in found.faults), found.faults


def test_a_statement_that_names_another_signatures_certificate_is_bad(run: Path, made: tuple[Path, Path, Path]) -> None:
    names = certificate_names("02-b.txt")
    said = replace(statement_of(run), certificate=tuple((n, "0" * 64) for n in names))
    path = run / "signatures/01-a-example.txt"
    path.write_text(said.text())
    path.with_name(f"{path.name}.sig").write_bytes(ssh.sign(ssh.read_key(made[1]), said.namespace, path.read_bytes()))
    found = verify(run, made[2])
    assert "names the certificate of another signature" in found.signatures[0].why
    assert any(f"{FIRST}: its statement names no certificate" in fault for fault in found.faults)


def test_with_other_fonts_its_words_are_compared(run: Path, made: tuple[Path, Path, Path]) -> None:
    """Bytes of another machine: made of the same text they are not checked, of other text they are found."""
    page = certificate_html(read_run(run), [statement_of(run)])
    for text, answer in (
        (page, "not-checked"),
        (page.replace("A. Example, Example AG", "B. Other, Else"), "not-intact"),
    ):
        pdf = pdf_bytes(text.replace("font: 9.2pt/1.35", "font: 9pt/1.3"))
        record = json.loads((run / RECORD).read_text())
        record["pdf_sha256"] = hashlib.sha256(pdf).hexdigest()
        record["libraries"]["weasyprint"] = "1.0"
        signed_with(run, made[1], pdf, (json.dumps(record, indent=2) + "\n").encode())
        found = verify(run, made[2])
        assert found.answer == answer, (found.faults, found.unchecked)


@pytest.mark.parametrize(
    ("added", "named"),
    [
        ("/Type /Annot /Subtype /Text /Contents (ACCEPTED)", "Text"),
        ("/Type /Annot /Subtype /S#71uare /Contents (ACCEPTED)", "Square"),
        ("/Type /Annot /Subtype /FreeText /Contents (ACCEPTED)", "FreeText"),
        ("/Type /Annot /Subtype /Link /A << /S /URI /URI (https://example.com) >>", "URI"),
        ("/Type /Page /Annots [998 0 R]", "Annots"),
        ("/Type /Font /Subtype /Type1 /BaseFont /Helvetica", "Type1"),
        ("/Type /Catalog /OpenAction << /S /JavaScript /JS (app.alert) >>", "JavaScript"),
        ("/Type /Filespec /EF << /F 998 0 R >> /Names << /EmbeddedFiles 998 0 R >>", "EmbeddedFiles"),
    ],
)
def test_what_was_put_onto_it_is_found_with_other_fonts_too(run: Path, added: str, named: str) -> None:
    made = (run / FIRST).read_bytes()
    assert differences(made, made) == ()
    (odd,) = differences(made + f"\n999 0 obj\n<< {added} >>\nendobj\n".encode(), made)
    assert odd.startswith("does or carries what no report does: ")
    assert named in odd


def test_who_signs_beside_a_signature_that_is_not_good_is_refused(run: Path, tmp_path: Path) -> None:
    path = run / "signatures/01-a-example.txt"
    key = ssh.read_key(make_key(tmp_path / "stranger"))
    path.with_name(f"{path.name}.sig").write_bytes(ssh.sign(key, "elastic-ai-rehearsal", path.read_bytes()))
    with pytest.raises(ConfigError, match="its signature is not good"):
        sign(run, make_key(tmp_path / "other"), "B")


def test_the_bundle_has_it_and_without_the_library_there_is_none(
    made: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(made[0], tmp_path / "run"))
    found = verify(bundle_run(run, tmp_path / "run.zip").path, made[2])
    assert found.answer == "verified"
    assert FIRST in found.made_again
    shutil.rmtree(run / "signatures")
    (run / "MANIFEST.sha256").unlink()
    (tmp_path / "no-pdf").mkdir()
    (tmp_path / "no-pdf/weasyprint.py").write_text("raise ImportError\n")
    monkeypatch.syspath_prepend(tmp_path / "no-pdf")
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    signed = sign(run, made[1])
    assert signed.certificate is None
    assert signed.notes == ("no certificate of this signature: PDF left out: the library WeasyPrint is not installed; "
                            "pip install weasyprint",)  # fmt: skip
    found = verify(run, made[2])
    assert found.answer == "verified"
    assert any("01-a-example.txt: has no certificate" in note for note in found.notes)
    found = verify(made[0], made[2])
    assert found.answer == "not-checked"
    assert any(f"{FIRST}: was not made again to compare" in words for words in found.unchecked)
