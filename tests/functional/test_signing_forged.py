"""A run that a signer with a listed key changed before signing: nothing that a customer reads changes unnoticed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.forging import judged_anew, rehashed, signed_anew
from tests.support.report_fixture import make_run
from tests.support.signing_case import NEEDS_SSH, allow, make_key, sign
from toolkit import acceptance
from toolkit.agreement import Agreement
from validation import load
from validation.load import ConfigError, read_bytes
from validation.profile import Profile
from validation.report.formats import write_formats
from validation.report.pdf_record import PdfRecord, remember
from validation.rules import rules_of
from validation.runfiles import RunFiles
from validation.signing import again, bundle, pack, ssh
from validation.signing.pdf_words import differences
from validation.signing.signatures import Span
from validation.signing.statement import read_statement
from validation.signing.verify import Verification, verify

pytestmark = NEEDS_SSH
QUICK = Path(__file__).parents[1] / "support/quick_pdf"
GOOD = ("verified", "intact")


@pytest.fixture(autouse=True)
def quick_pdf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in lays out the PDF."""
    stand_in(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(QUICK)
    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A signed run of real machines with profile, waivers and PDF, its key, and a file of allowed signers."""
    folder = tmp_path_factory.mktemp("forged")
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        run = make_run(folder / "run", virtual=False, waive=True)
        write_formats(run)
        key = make_key(folder / "key")
        sign(run, key)
    return run, key, allow(folder / "allowed", key)


@pytest.fixture
def run(made: tuple[Path, Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "run"))


def looked_at(run: Path, made: tuple[Path, Path, Path], **more: Any) -> Verification:
    signed_anew(run, made[1])
    return verify(run, made[2], **more)


def test_an_untouched_run_signed_in_this_way_is_verified(run: Path, made: tuple[Path, Path, Path]) -> None:
    found = looked_at(run, made)
    assert (found.answer, found.unchecked, found.other_rules) == ("verified", [], ())
    assert found.rules == "those of toolkit 0.1.0"
    assert "report.pdf" in found.made_again


EVERY = (
    "README.txt", "report.html", "report.pdf", "report.json", "junit.xml", "metrics.prom", "report-pdf.json",
    "verdict.json", "plan.json", "run.json", "topology.json", "fabric.yml", "profile.yml", "waivers.yml",
    "results.jsonl", "raw/facts.gpu1/gpu1.out", "criteria/20-transport.yml", "reference/whitepaper.yml",
)  # fmt: skip
"""One of each kind of file that the run holds."""


def test_the_list_holds_every_kind_of_file_of_a_run(made: tuple[Path, Path, Path]) -> None:
    listed = [line[66:] for line in (made[0] / "MANIFEST.sha256").read_text().splitlines()]
    kinds = {name.partition("/")[0] for name in listed}
    assert kinds == {name.partition("/")[0] for name in EVERY}


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def digit(data: bytes) -> bytes:
    """The last number of the file is another."""
    found = list(re.finditer(rb"(?<![#\w.])[1-9]", data))[-1]
    other = b"1" if found[0] == b"7" else b"7"
    return data[: found.start()] + other + data[found.end() :]


def word(data: bytes) -> bytes:
    """A word is another, in the middle of a text of any form."""
    found = list(re.finditer(rb"[a-z]{5,}", data))
    one = found[len(found) // 2]
    return data[: one.start()] + b"accepted" + data[one.end() :]


TAMPER: dict[str, Callable[[bytes], bytes]] = {
    "cut": cut,
    "digit": digit,
    "word": word,
    "empty": lambda data: b"",
    "more": lambda data: data + b"ACCEPTED\n",
    "deep": lambda data: b"[" * 2000 + b"]" * 2000,
    "nan": lambda data: b'{"run": NaN}\n',
    "huge": lambda data: b'{"run": ' + b"9" * 5000 + b"}\n",
    "twice": lambda data: b'{"run": "a", "run": "b"}\n',
    "surrogate": lambda data: b'{"run": "\\ud800"}\n',
    "bytes": lambda data: b"\xff\xfe" + data,
    "line": lambda data: b"x" * (2 << 20),
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("kind", TAMPER)
def test_a_changed_file_is_never_verified(run: Path, made: tuple[Path, Path, Path], name: str, kind: str) -> None:
    """Not of raw logs whose hash was mended too: who measures can invent what the machines said."""
    data = (run / name).read_bytes()
    changed = TAMPER[kind](data)
    if changed == data:
        pytest.skip("nothing of that kind in it")
    (run / name).write_bytes(changed)
    if name not in ("run.json", "verdict.json", "results.jsonl") and not name.startswith("raw/"):
        rehashed(run)
    with contextlib.suppress(ConfigError):  # a verdict that cannot be read: the old statement stays
        signed_anew(run, made[1])
    found = verify(run, made[2])
    assert found.answer not in GOOD, (found.notes, found.faults)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("criteria/20-transport.yml", "value: 0.01", "value: 0.05"), "criteria tr."),
        (("fabric.yml", "fraction: 0.9", "fraction: 0.5"), "fabric profile tcp10"),
        (("profile.yml", "are not part of this delivery", "are of no interest"), "acceptance profile training"),
    ],
)
def test_loosened_rules_are_named_on_page_one_in_the_statement_and_by_verify(
    run: Path, made: tuple[Path, Path, Path], change: tuple[str, str, str], words: str
) -> None:
    name, old, new = change
    text = (run / name).read_text()
    assert old in text, name
    (run / name).write_text(text.replace(old, new))
    rehashed(run)
    shutil.rmtree(run / "signatures")
    (run / "MANIFEST.sha256").unlink()
    judged_anew(run)
    said = sign(run, made[1]).statement
    assert words in said.rules
    assert said.rules.startswith("OTHER than those of a release: ")
    front = (run / "report.html").read_text().partition("</header>")[0]
    assert "BY OTHER RULES than those of a release: " in front
    assert words in front
    found = verify(run, made[2])
    assert (found.answer, found.faults, found.unchecked) == ("other-rules", [], [])
    assert words in found.other_rules[0]
    assert found.rules_sha256 in said.rules
    assert found.rules_sha256 in front
    assert verify(run, made[2], found.rules_sha256).answer == "verified"
    assert verify(run, made[2], "0" * 64).answer == "not-intact"


def test_a_plan_that_asked_for_less_is_named(run: Path, made: tuple[Path, Path, Path]) -> None:
    """By an option in run.json, by another release that made it, or by rules that are said to be replaced."""
    plan = json.loads((run / "plan.json").read_text())
    longest = max(plan["measurements"], key=lambda m: m["params"].get("seconds", 0))
    for changes, answer in (
        ({"options": {"seconds": 1}}, "not-intact"),
        ({"toolkit_version": "0.0.9"}, None),
        ({"replaced": "rules of toolkit 0.1.0"}, None),
    ):
        copy = Path(shutil.copytree(run, run.with_name("copy")))
        short = json.loads((copy / "plan.json").read_text())
        next(m for m in short["measurements"] if m["id"] == longest["id"])["params"]["seconds"] = 1
        (copy / "plan.json").write_text(json.dumps(short))
        rehashed(copy, **changes)
        with contextlib.suppress(ConfigError):
            judged_anew(copy)
        found = looked_at(copy, made)
        assert found.answer in ("not-intact", "not-checked", "other-rules")
        if answer is None:
            assert found.answer == "not-intact" or any("plan.json: is not what" in words for words in found.unchecked)
        shutil.rmtree(copy)


def test_options_that_plan_otherwise_are_rules_of_their_own(tmp_path: Path, made: tuple[Path, Path, Path]) -> None:
    files = RunFiles(made[0])
    for options, other in (({}, False), ({"minutes": 600}, False), ({"minutes": 1}, True), ({"without": "pf.x"}, True)):
        info = files.info.model_copy(update={"options": options})
        rules = rules_of(info, files.criteria, files.reference, files.fabric, None, {})
        assert bool(rules.other) is other, options


@pytest.mark.parametrize(
    "name",
    [
        "NOTES.txt", "ACCEPTED.pdf", "raw/facts.gpu1/more.out", "raw/more/x.out", "criteria/note.txt",
        "report-files/x.html", "superseded/x.pdf", "superseded/2026-11-21T12-00-00Z/report.pdf", "reference/more.md",
    ],
)  # fmt: skip
def test_a_file_that_was_added_before_signing_is_named(run: Path, made: tuple[Path, Path, Path], name: str) -> None:
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).write_text("ACCEPTED")
    found = looked_at(run, made)
    assert found.answer not in GOOD
    assert any(name.rpartition("/")[0] in words for words in (*found.unchecked, *found.faults))


@pytest.mark.parametrize("name", ["criteria/note.txt", "reference/more.md", "NOTES.txt"])
def test_a_file_that_run_json_lists_and_nobody_reads_is_named(
    run: Path, made: tuple[Path, Path, Path], name: str
) -> None:
    (run / name).write_text("ACCEPTED")
    rehashed(run)
    if name == "NOTES.txt":
        info = json.loads((run / "run.json").read_text())
        info["documents"][name] = hashlib.sha256(b"ACCEPTED").hexdigest()
        (run / "run.json").write_text(json.dumps(info))
    with contextlib.suppress(ConfigError):
        judged_anew(run)
    found = looked_at(run, made)
    assert found.answer not in GOOD
    assert any(name in words for words in (*found.unchecked, *found.faults))


@pytest.mark.parametrize("more", ["torn", "unplanned"])
def test_lines_of_results_that_count_nowhere_are_named(run: Path, made: tuple[Path, Path, Path], more: str) -> None:
    path = run / "results.jsonl"
    last = path.read_text().splitlines()[-1]
    name = json.loads(last)["measurement"]
    path.write_text(path.read_text() + ("ACCEPTED" if more == "torn" else last.replace(name, "ACCEPTED") + "\n"))
    judged_anew(run)
    found = looked_at(run, made)
    assert found.answer not in GOOD
    assert any(words.startswith("results.jsonl") for words in found.unchecked), (found.unchecked, found.faults)


@pytest.mark.parametrize(
    "name", [".note", ".hidden/report.pdf", "raw/.x", "empty/", "raw/empty/inside/", "signatures/.x"]
)
def test_what_no_manifest_names_is_told(run: Path, made: tuple[Path, Path, Path], name: str) -> None:
    path = run / name
    if name.endswith("/"):
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    found = verify(run, made[2])
    assert found.answer == "not-intact"
    assert any(words.endswith(": is in no manifest; take it out") for words in found.faults)


@pytest.mark.parametrize("name", ["MANIFEST.sha256", "signatures", "run.json", "results.jsonl"])
def test_links_and_pipes_are_not_followed(run: Path, made: tuple[Path, Path, Path], tmp_path: Path, name: str) -> None:
    (run / name).rename(tmp_path / "away")
    (run / name).symlink_to(tmp_path / "away")
    assert verify(run, made[2]).answer not in GOOD


@pytest.mark.parametrize("released", ["0.0.1", "9.9.9"])
def test_the_release_that_a_statement_names_loosens_nothing(
    run: Path, made: tuple[Path, Path, Path], released: str
) -> None:
    page = run / "report.html"
    page.write_text(page.read_text().replace("ACCEPTED", "ACCEPTED, all of it"))
    signed_anew(run, made[1], toolkit=released)
    found = verify(run, made[2])
    assert found.answer == "not-checked"
    assert any("report.html: is not what the data of the run give" in words for words in found.unchecked)


@pytest.mark.parametrize("released", ["0.0.1", "9.9.9"])
def test_a_release_that_is_not_known_is_said(run: Path, made: tuple[Path, Path, Path], released: str) -> None:
    rehashed(run, toolkit_version=released)
    shutil.rmtree(run / "signatures")
    (run / "MANIFEST.sha256").unlink()
    judged_anew(run)
    sign(run, made[1])
    found = verify(run, made[2])
    assert (found.answer, found.faults) == ("other-rules", [])
    assert found.other_rules == (f"toolkit {released}, which the run names, is not known to toolkit 0.1.0",)


FORGED = b"%PDF-1.7\n% ACCEPTED\n%%EOF\n"


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


def test_a_bundle_of_a_forged_run_is_looked_at_in_the_same_way(
    run: Path, made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    (run / "report.pdf").write_bytes(FORGED)
    signed_anew(run, made[1])
    packed = pack.bundle_run(run, tmp_path / "b.zip").path
    assert verify(packed, made[2]).answer == "not-intact"


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ("2024-05-01T12:00:00Z", "signed at 2024-05-01T12:00:00Z, before the run ended at "),
        ("2026-11-21T10:15:01Z", "before the run ended at "),
        ("2199-01-01T00:00:00Z", "in the future by the clock here"),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
def test_a_signature_is_made_after_the_run_and_before_now(
    run: Path, made: tuple[Path, Path, Path], time: str, words: str, listed: bool
) -> None:
    signed_anew(run, made[1], time=time)
    found = verify(run, made[2] if listed else None)
    assert found.answer == "not-verified"
    assert words in found.signatures[0].why


def test_an_expired_key_is_not_saved_by_an_early_date(run: Path, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Its statement says a time at which the key held, and that was before the run."""
    expired = allow(tmp_path / "expired", made[1], options='valid-before="20250101"')
    for time in ("2024-05-01T12:00:00Z", "2026-11-21T12:00:00Z"):
        signed_anew(run, made[1], time=time)
        assert verify(run, expired).answer == "not-verified", time


def test_a_key_that_ran_out_since_is_said(run: Path, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    since = allow(tmp_path / "since", made[1], options='valid-before="20261122"')
    found = verify(run, since)
    assert found.answer == "verified"
    assert "it is not valid today" in found.signatures[0].why


def test_a_run_that_ended_in_the_future_is_told(run: Path, made: tuple[Path, Path, Path]) -> None:
    ran = Span(datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2026, 1, 2, tzinfo=timezone.utc))
    assert list(ran.faults(datetime(2026, 1, 3, tzinfo=timezone.utc))) == []
    (words,) = ran.faults(datetime(2026, 1, 1, 12, tzinfo=timezone.utc))
    assert "in the future" in words
    (words,) = Span(ran.ended, ran.began).faults(datetime(2026, 1, 3, tzinfo=timezone.utc))
    assert "before the run began" in words


@pytest.mark.parametrize("principal", ["a@example.com", "A@Example.com"])
def test_one_person_with_two_keys_is_one_signer(
    run: Path, made: tuple[Path, Path, Path], tmp_path: Path, principal: str
) -> None:
    other = make_key(tmp_path / "other")
    sign(run, other, "B. Example")
    allowed = allow(allow(tmp_path / "both", made[1]), other, principal)
    found = verify(run, allowed)
    assert [s.state for s in found.signatures] == ["trusted", "bad"]
    assert "of the same person as signatures/01-a-example.txt: one signer, not two" in found.signatures[1].why
    assert verify(run, allow(allow(tmp_path / "two", made[1]), other, "b@example.com")).answer == "verified"


def test_one_key_under_two_names_is_one_signer(run: Path, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    (path,) = (run / "signatures").glob("01-*.txt")
    said = read_statement(path.read_text(), path.name)
    other = replace(said, name="B. Other", company="Bank")
    second = path.with_name("02-b-other.txt")
    second.write_text(other.text())
    key = ssh.read_key(made[1])
    second.with_name(f"{second.name}.sig").write_bytes(ssh.sign(key, other.namespace, other.text().encode()))
    both = allow(allow(tmp_path / "names", made[1]), made[1], "b@example.com")
    for allowed in (None, made[2], both):
        found = verify(run, allowed)
        assert found.answer == "not-verified"
        assert "made with the same key as signatures/01-a-example.txt: one signer, not two" in found.signatures[1].why


def test_what_a_statement_says_of_the_outcome_and_the_rules_is_the_runs(
    run: Path, made: tuple[Path, Path, Path]
) -> None:
    for change in ({"outcome": "failed"}, {"rules": f"those of toolkit 0.1.0 (sha256 {'0' * 64})"}):
        copy = Path(shutil.copytree(run, run.with_name("copy")))
        signed_anew(copy, made[1], **change)
        assert verify(copy, made[2]).answer != "verified", change
        shutil.rmtree(copy)


def test_superseded_verdicts_and_reports_are_made_again(
    run: Path, made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    shutil.rmtree(run / "signatures")
    (run / "MANIFEST.sha256").unlink()
    acceptance.rejudge(run, Agreement(None, "", (), {}))
    write_formats(run)
    sign(run, made[1])
    found = verify(run, made[2])
    assert (found.answer, found.unchecked) == ("verified", [])
    (earlier,) = (run / "superseded").iterdir()
    for name in ("report.pdf", "report.html", "verdict.json", "criteria/20-transport.yml", "fabric.yml"):
        copy = Path(shutil.copytree(run, tmp_path / f"copy-{name.replace('/', '-')}"))
        path = copy / earlier.relative_to(run) / name
        path.write_bytes(path.read_bytes().replace(b"required: true", b"required: false") + b"\n# ACCEPTED\n")
        assert looked_at(copy, made).answer == "not-checked", name


def deep(name: str) -> str:
    return f"{'a/' * 2000}{name}"


@pytest.mark.parametrize("name", [deep("x"), "x" * 300, "raw/" + "é" * 200, "a/" * 20 + "b"])
def test_a_bundle_with_absurd_names_is_refused(made: tuple[Path, Path, Path], tmp_path: Path, name: str) -> None:
    files = {"run.json": b"{}", name: b"x"}
    entries = []
    data = b""
    for one in sorted(files):
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        packed = packer.compress(files[one]) + packer.flush()
        entry = bundle.Entry(f"run/{one}", zlib.crc32(files[one]), len(packed), len(files[one]), len(data))
        data += entry.local() + packed
        entries.append(entry)
    data += bundle._ending(entries)
    path = tmp_path / "b.zip"
    path.write_bytes(data + hashlib.sha256(data).hexdigest().encode())
    found = verify(path, made[2])
    assert found.answer == "not-intact"
    assert "too long a name, or too many folders within each other" in found.faults[0]
    assert len(found.faults[0]) < 300


def test_a_run_with_absurd_folders_is_refused(run: Path, made: tuple[Path, Path, Path]) -> None:
    before = Path.cwd()
    try:
        os.chdir(run)
        for _ in range(300):
            Path("deep").mkdir()
            os.chdir("deep")
    finally:
        os.chdir(before)
    found = verify(run, made[2])
    assert found.answer == "not-intact"
    assert "folders within each other; no run has them" in found.faults[0]
    shutil.rmtree(run / "deep")


@pytest.mark.parametrize("name", ["MANIFEST.sha256", "signatures/01-a-example.txt", "signatures/01-a-example.txt.sig"])
@pytest.mark.parametrize("kind", ["deep", "huge", "bytes", "line", "empty", "more"])
def test_odd_manifests_and_signatures_are_told(run: Path, made: tuple[Path, Path, Path], name: str, kind: str) -> None:
    (run / name).write_bytes(TAMPER[kind]((run / name).read_bytes()))
    assert verify(run, made[2]).answer not in GOOD


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * (1 << 20))
    assert len(read_bytes(path)) == 1 << 20
    with pytest.raises(ConfigError, match="has more than 0 MiB"):
        read_bytes(path, 1000)
    monkeypatch.setattr(load, "MAX_BYTES", 1000)
    for read in (lambda: load.read_source(path), lambda: load.results_text(path)):
        with pytest.raises(ConfigError, match="which no such file has"):
            read()
    monkeypatch.undo()
    monkeypatch.setattr(load, "MAX_YAML_BYTES", 1000)
    with pytest.raises(ConfigError, match="which no such file has"):
        load.load_yaml(path, Profile)


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
        (forged.replace(b"%%EOF", b"%%EOF\n"), record, "speaks of another report.pdf than the one that is there", ""),
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


def test_a_bundle_whose_directory_claims_gigabytes_is_not_read(
    made: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = pack.bundle_run(made[0], tmp_path / "b.zip").path
    monkeypatch.setattr(bundle, "MAX_DIRECTORY_BYTES", 1000)
    found = verify(packed, made[2])
    assert found.answer == "not-intact"
    assert "its directory is too large for a run" in found.faults[0]
