"""What people read in a signed run and the toolkit does not: comments, spellings, words and files beside the rules."""
# ruff: noqa: F401, F811 - fixtures of forged_case

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.forged_case import GOOD, looked_at, made, quick_pdf, run
from tests.support.forging import forged, rehashed, signed_anew
from tests.support.signing_case import NEEDS_SSH
from toolkit.commands.verify import verify as verify_command
from validation.model import RunInfo
from validation.model.load import ConfigError
from validation.run.kept import as_kept
from validation.run.rules_hashes import own
from validation.signing.signatures import MOST
from validation.signing.statement import signer
from validation.signing.verify import Verification, verify

pytestmark = [NEEDS_SSH, pytest.mark.computes]
Made = tuple[Path, Path, Path]


def told(found: Verification, words: str) -> bool:
    return found.answer not in GOOD and any(words in said for said in (*found.faults, *found.unchecked))


RULES = ("criteria/20-transport.yml", "fabric.yml", "profile.yml", "waivers.yml", "reference/whitepaper.yml")
SPELT: dict[str, Callable[[str], str]] = {
    "a comment more": lambda text: f"{text}# ACCEPTED by the customer\n",
    "a comment less": lambda text: "".join(t for t in text.splitlines(True) if not t.startswith("#")),
    "an empty line": lambda text: f"\n{text}",
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "a mark of bytes": lambda text: f"\ufeff{text}",
    "a second document mark": lambda text: f"---\n{text}",
    "underlines in a number": lambda text: text.replace("mtu: 9000\n", "mtu: 9_000\n"),
    "another base": lambda text: text.replace("mtu: 9000\n", "mtu: 0x2328\n"),
    "an octal number": lambda text: text.replace("line_rate_gbps: 10\n", "line_rate_gbps: 012\n"),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("spelt", SPELT)
def test_rules_that_are_written_otherwise_are_named(run: Path, made: Made, name: str, spelt: str) -> None:
    """Signed by the toolkit itself, by a signer with a listed key; what is read of them is the same."""
    text = (run / name).read_text()
    other = SPELT[spelt](text)
    if other in (text, as_kept(other)):
        assert verify(run, made[2]).answer == "verified"  # nothing was changed, or it is as the toolkit writes it
        return
    (run / name).write_text(other, newline="")
    forged(run, made[1])
    assert told(verify(run, made[2]), name)


@pytest.mark.parametrize("spelt", SPELT)
def test_each_way_of_writing_changes_one_of_the_rules(run: Path, spelt: str) -> None:
    texts = [(run / name).read_text() for name in RULES]
    assert any(SPELT[spelt](text) not in (text, as_kept(SPELT[spelt](text))) for text in texts)


JSON: dict[str, Callable[[str], str]] = {
    "blank lines": lambda text: text.replace("{\n", "{\n\n\n", 1),
    "an end": lambda text: f"{text}\n \n",
    "one line": lambda text: json.dumps(json.loads(text)),
    "an escaped letter": lambda text: text.replace('"run"', '"\\u0072un"', 1),
    "digits that no number has": lambda text: text.replace(".0,", ".00000000000000000000001,", 1),
}


@pytest.mark.parametrize("name", ["topology.json", "plan.json", "run.json", "verdict.json", "report-pdf.json"])
@pytest.mark.parametrize("spelt", JSON)
def test_documents_that_are_written_otherwise_are_named(run: Path, made: Made, name: str, spelt: str) -> None:
    if name in ("topology.json", "plan.json"):
        (run / name).write_text(JSON[spelt]((run / name).read_text()))
        forged(run, made[1])
    text = (run / name).read_text()
    if name in ("run.json", "verdict.json", "report-pdf.json"):
        (run / name).write_text(JSON[spelt](text))
        if (run / name).read_text() == text:
            assert verify(run, made[2]).answer == "verified"  # it has no place for that
            return
        signed_anew(run, made[1])
    elif text == (made[0] / name).read_text():
        assert verify(run, made[2]).answer == "verified"  # it has no place for that
        return
    assert told(verify(run, made[2]), name)


@pytest.mark.parametrize("spelt", ["spaces", "escaped", "digits"])
def test_lines_of_results_that_are_written_otherwise_are_named(run: Path, made: Made, spelt: str) -> None:
    path = run / "results.jsonl"
    first, rest = path.read_text().split("\n", 1)
    other = {
        "spaces": json.dumps(json.loads(first)),
        "escaped": first.replace('"run"', '"\\u0072un"', 1),
        "digits": re.sub(
            r'("duration_s":)(\d+)(\.\d+)?', lambda m: f"{m[1]}{m[2]}{m[3] or '.'}{'0' * 20}1", first, count=1
        ),
    }[spelt]
    assert other != first
    path.write_text(f"{other}\n{rest}")
    forged(run, made[1])
    assert told(verify(run, made[2]), "results.jsonl: line 1: is not as the toolkit writes it")


def test_a_file_that_poses_as_a_raw_log_is_named(run: Path, made: Made) -> None:
    path = run / "results.jsonl"
    first, rest = path.read_text().split("\n", 1)
    line = json.loads(first)
    name = f"raw/{line['measurement']}/ACCEPTED.pdf"
    (run / name).write_text("ACCEPTED")
    line["provenance"]["raw"].append({"path": name, "sha256": hashlib.sha256(b"ACCEPTED").hexdigest()})
    path.write_text(f"{json.dumps(line, separators=(',', ':'))}\n{rest}")
    forged(run, made[1])
    assert told(verify(run, made[2]), f"{name}: nothing in the run names it")


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"replaced": "ACCEPTED by all"}, "run.json: replaced"), ({"origins": {"ACCEPTED": "site"}}, "run.json: origins")],
)
def test_words_of_ones_own_in_run_json_are_named(run: Path, made: Made, changes: dict[str, Any], words: str) -> None:
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text("".join(RunInfo.model_validate({**info, **changes}).written()))
    forged(run, made[1])
    assert told(verify(run, made[2]), words)


@pytest.mark.parametrize("content", ["ACCEPTED", "{}", '{\n  "hosts": []\n}\n'])
def test_an_inventory_that_is_none_is_named(run: Path, made: Made, content: str) -> None:
    (run / "inventory.json").write_text(content)
    forged(run, made[1])
    assert told(verify(run, made[2]), "inventory.json: is ")


def test_an_earlier_verdict_by_rules_that_nobody_agreed_on_is_named(run: Path, made: Made, tmp_path: Path) -> None:
    """Its report is well made: it says ACCEPTED by rules that were loosened."""
    other = Path(shutil.copytree(run, tmp_path / "other" / run.name))
    path = other / "profile.yml"
    path.write_text(path.read_text().replace("are not part of this delivery", "are of no interest"))
    forged(other, made[1])
    kept = run / "superseded/2026-11-21T12-00-00Z"
    kept.mkdir(parents=True)
    for name in ("run.json", "verdict.json", "report.html", "profile.yml"):
        shutil.copy(other / name, kept / name)
    forged(run, made[1])
    assert told(verify(run, made[2]), "verdict.json: judged by rules OTHER than those of a release")


def test_an_earlier_verdict_has_a_time_for_a_name(run: Path, made: Made) -> None:
    kept = run / "superseded/ACCEPTED"
    kept.mkdir(parents=True)
    for name in ("run.json", "verdict.json", "report.html"):
        shutil.copy(run / name, kept / name)
    forged(run, made[1])
    assert told(verify(run, made[2]), "superseded/ACCEPTED/: is not named by a time")


@pytest.mark.parametrize("content", ["ACCEPTED", None, "1" * 30])
def test_what_poses_as_the_lock_of_a_run_is_named(run: Path, made: Made, content: str | None) -> None:
    (run / ".lock").unlink(missing_ok=True)
    if content is None:
        (run / ".lock").mkdir()
        (run / ".lock/ACCEPTED.pdf").write_text("ACCEPTED")
    else:
        (run / ".lock").write_text(content)
    assert told(verify(run, made[2]), ".lock: is in no manifest")
    shutil.rmtree(run / ".lock") if content is None else (run / ".lock").write_text("4711")
    if content is None:
        return
    assert verify(run, made[2]).answer == "verified"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"allowed": ("nothing: ACCEPTED",)}, "allows nothing: ACCEPTED: no file of the run"),
        ({"rules": ""}, "signs other rules than the run's: it names none"),
        ({"rules": "agreed on by all (sha256 {})"}, "signs other rules than the run's: agreed on by all"),
        ({"rules": "agreed on by all (sha256 {})", "toolkit": "0.0.9"}, ""),
    ],
)
def test_what_a_statement_says_beside_the_outcome_is_so(
    run: Path, made: Made, changes: dict[str, Any], words: str
) -> None:
    sha256 = verify(run, made[2]).rules_sha256
    signed_anew(run, made[1], **{k: v.format(sha256) if isinstance(v, str) else v for k, v in changes.items()})
    found = verify(run, made[2])
    assert told(found, words) if words else found.answer == "verified", found.faults


@pytest.mark.parametrize("name", ["A.\u3164Example", "A.\u034fExample"])
def test_a_signers_name_can_be_seen(run: Path, made: Made, name: str) -> None:
    signed_anew(run, made[1], name=name)
    assert verify(run, made[2]).answer == "not-verified"


def test_a_statement_is_called_by_its_signer(run: Path, made: Made) -> None:
    for path in sorted((run / "signatures").iterdir()):
        path.rename(path.with_name(path.name.replace("a-example", "accepted-by-the-bank")))
    found = verify(run, made[2])
    assert found.answer == "not-intact", "its certificate is not where the statement says either"
    assert "its file is not named as one of A. Example is" in found.signatures[0].why


def test_a_pdf_record_names_each_font_once_and_as_it_is(run: Path, made: Made) -> None:
    path = run / "report-pdf.json"
    said = json.loads(path.read_text())
    said["libraries"] = {"": "ACCEPTED", **said["libraries"]}
    path.write_text(json.dumps(said, indent=2) + "\n")
    assert told(looked_at(run, made), "report-pdf.json")


def test_every_text_of_a_release_is_in_its_register(made: Made) -> None:
    texts = set(own().texts.values())
    for path in (*(made[0] / "criteria").iterdir(), *(made[0] / "reference").iterdir(), made[0] / "fabric.yml"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in texts, path.name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"ACCEPTED": None}}, "run.json: options: no option of the toolkit: ACCEPTED"),
        ({"command": []}, "run.json: command"),
        ({"command": ["ACCEPTED"]}, "run.json: command"),
    ],
)
def test_options_and_commands_are_the_toolkits(run: Path, made: Made, changes: dict[str, Any], words: str) -> None:
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text("".join(RunInfo.model_validate({**info, **changes}).written()))
    forged(run, made[1])
    assert told(verify(run, made[2]), words)


SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9">{}</svg>'


@pytest.mark.parametrize(
    ("name", "words", "logo", "said"),
    [
        ("logo.svg", "customer: ACCEPTED by all\n", "", "says what a verdict says"),
        ("logo.svg", "project: \uff21ccepted\n", "", "says what a verdict says"),
        ("logo.svg", "contact: a\u3164b\n", "", "characters that cannot be seen"),
        ("logo.svg", "", "<text>ACCEP<tspan>TED</tspan></text>", "says what a verdict says"),
        ("ACCEPTED.svg", "", "<path d='M0 0'/>", "report.yml: logo: is no file that the toolkit has taken over"),
        ("../logo.svg", "", "<path d='M0 0'/>", "leads out of the run"),
        ("/logo.svg", "", "<path d='M0 0'/>", "leads out of the run"),
    ],
)
def test_a_sites_own_words_and_logo_state_no_verdict(
    run: Path, made: Made, name: str, words: str, logo: str, said: str
) -> None:
    (run / "report-files").mkdir()
    if not name.startswith(("/", "..")):
        (run / "report-files" / name).write_text(SVG.format(logo))
    place = name if name.startswith("/") else f"report-files/{name}"
    (run / "report.yml").write_text(words or f"logo: {place}\n")
    with contextlib.suppress(ConfigError):
        forged(run, made[1])
    if not (run / "signatures").is_dir():
        shutil.copytree(made[0] / "signatures", run / "signatures")
        signed_anew(run, made[1])
    assert told(verify(run, made[2]), said)


def test_a_sites_own_words_and_logo_are_told(run: Path, made: Made) -> None:
    (run / "report-files").mkdir()
    (run / "report-files/logo.svg").write_text(SVG.format("<path d='M0 0'/>"))
    (run / "report.yml").write_text("customer: Example Bank\nlogo: report-files/logo.svg\n")
    forged(run, made[1])
    found = verify(run, made[2])
    assert found.answer == "verified", (found.faults, found.unchecked)
    assert any("customer 'Example Bank', logo 'report-files/logo.svg'" in note for note in found.notes)


def test_hundreds_of_signatures_are_not_looked_at_one_by_one(run: Path, made: Made) -> None:
    for number in range(2, 300):
        for end in ("txt", "txt.sig"):
            shutil.copy(run / f"signatures/01-a-example.{end}", run / f"signatures/{number:02d}-a-example.{end}")
    found = verify(run, made[2])
    assert found.answer == "not-intact"
    assert len(found.signatures) == MOST
    assert max(map(len, found.faults)) < 300


def test_a_line_is_no_longer_than_a_screen(run: Path, made: Made) -> None:
    info = json.loads((run / "run.json").read_text())
    changed = RunInfo.model_validate({**info, "toolkit_version": "9\x1b[2J" * 5000})
    (run / "run.json").write_text("".join(changed.written()))
    forged(run, made[1])
    found = verify(run, made[2])
    assert found.answer == "other-rules"
    assert max(map(len, found.other_rules)) < 200
    ended = CliRunner().invoke(verify_command, [str(run), "--allowed-signers", str(made[2])])
    assert ended.exit_code == 3
    assert max(map(len, ended.output.splitlines())) < 2200


@pytest.mark.parametrize("changes", [{"name": "A" * 300}, {"company": "A" * 300}, {"toolkit": "A" * 300}])
def test_names_in_statements_are_bounded(run: Path, made: Made, changes: dict[str, Any]) -> None:
    signed_anew(run, made[1], **changes)
    assert verify(run, made[2]).answer == "not-verified"
    with pytest.raises(ConfigError, match="more than 200 characters"):
        signer(f"{'A' * 300}, Bank")
