"""A run that a signer with a listed key changed before signing: nothing that a customer reads changes unnoticed."""
# ruff: noqa: F401, F811 - fixtures of forged_case

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import zlib
from pathlib import Path

import pytest

from tests.support.forged_case import FORGED, GOOD, TAMPER, looked_at, made, quick_pdf, run
from tests.support.forging import judged_anew, rehashed, signed_anew
from tests.support.signing_case import NEEDS_SSH, sign
from toolkit import acceptance
from toolkit.agreement import Agreement
from validation.model import load
from validation.model.load import ConfigError, read_bytes
from validation.report.formats import write_formats
from validation.rules.profile import Profile
from validation.run.kept import as_kept
from validation.run.read import read
from validation.run.rules_hashes import rules_of
from validation.signing import bundle, pack
from validation.signing.verify import verify

pytestmark = [NEEDS_SSH, pytest.mark.computes]


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


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("kind", TAMPER)
def test_a_changed_file_is_never_verified(run: Path, made: tuple[Path, Path, Path], name: str, kind: str) -> None:
    """Not of raw logs whose hash was mended too: who measures can invent what the machines said."""
    data = (run / name).read_bytes()
    changed = TAMPER[kind](data)
    if changed == data:
        assert looked_at(run, made).answer == "verified"  # it has no place for that
        return
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
    (run / name).write_text(as_kept(text.replace(old, new)))
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
    files = read(made[0])
    more = ({}, {"minutes": 600}, {"reboots": 3})
    for options, other in (*((one, False) for one in more), ({"minutes": 1}, True), ({"without": "pf.x"}, True)):
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


def test_a_bundle_of_a_forged_run_is_looked_at_in_the_same_way(
    run: Path, made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    (run / "report.pdf").write_bytes(FORGED)
    signed_anew(run, made[1])
    packed = pack.bundle_run(run, tmp_path / "b.zip").path
    assert verify(packed, made[2]).answer == "not-intact"


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
    for reading in (lambda: load.read_source(path), lambda: load.results_text(path)):
        with pytest.raises(ConfigError, match="which no such file has"):
            reading()
    monkeypatch.undo()
    monkeypatch.setattr(load, "MAX_YAML_BYTES", 1000)
    with pytest.raises(ConfigError, match="which no such file has"):
        load.load_yaml(path, Profile)


def test_a_bundle_whose_directory_claims_gigabytes_is_not_read(
    made: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = pack.bundle_run(made[0], tmp_path / "b.zip").path
    monkeypatch.setattr(bundle, "MAX_DIRECTORY_BYTES", 1000)
    found = verify(packed, made[2])
    assert found.answer == "not-intact"
    assert "its directory is too large for a run" in found.faults[0]
