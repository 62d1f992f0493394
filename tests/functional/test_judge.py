"""`toolkit judge`: a finished run by other rules; what changes is said, and the run keeps its own verdict."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from toolkit.cli import cli
from toolkit.exits import Exit
from validation.model import VerdictDoc
from validation.run.other_rules import Rejudged, judge_otherwise, rules_of
from validation.run.rejudge import judge_files

pytestmark = pytest.mark.computes


def state(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture
def run_dir(site_runs, tmp_path) -> Path:
    return shutil.copytree(site_runs["real"], tmp_path / "runs" / "2026-11-21T10-15-00Z-tcp10")


@pytest.fixture
def rules(run_dir, tmp_path) -> Callable[..., Path]:
    """A file with one of the run's criteria, changed."""

    def write(id_: str, **changes: Any) -> Path:
        entries = [
            entry
            for path in (run_dir / "criteria").glob("*.yml")
            for entry in yaml.safe_load(path.read_text())["criteria"]
        ]
        (found,) = [entry for entry in entries if entry["id"] == id_]
        path = tmp_path / "ours.yml"
        path.write_text(yaml.safe_dump({"criteria": [found | changes]}))
        return path

    return write


def command(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["judge", *map(str, arguments)])


def written(made: Result) -> Path:
    """The folder that the end of its answer names."""
    (found,) = re.findall(r"^judged\s+(\S+)$", made.stdout, re.MULTILINE)
    return Path(found)


STRICT = {"kind": "minimum", "value": 9.9, "words": ">= {value} Gbit/s, as ordered"}


def test_a_stricter_bound_fails_whom_it_should_and_the_run_stays_as_it_was(run_dir, rules):
    before = state(run_dir)
    made = command(run_dir, "--criteria", rules("tr.tcpbw", bound=STRICT))
    assert made.exit_code == Exit.FAILED, made.output
    assert state(run_dir) == before
    folder = run_dir.with_name(f"{run_dir.name}-judged")
    assert made.stdout.splitlines()[-1] == f"exit code {Exit.FAILED:d}"
    assert written(made) == folder
    assert "REJECTED (by other rules)" in made.stdout
    told = Rejudged.model_validate_json((folder / "judged.json").read_text())
    assert [c.id for c in told.changes] == ["tr.tcpbw"]
    (change,) = told.changes
    assert (change.old, change.new) == ("pass", "fail")
    assert change.new_bound == ">= 9.9 Gbit/s, as ordered" != change.old_bound
    assert len(change.subjects) == 12
    assert {(s.old, s.new) for s in change.subjects} == {("pass", "fail")}
    verdict = VerdictDoc.model_validate_json((folder / "verdict.json").read_text())
    assert verdict.outcome == "failed" == told.outcome
    assert verdict.notes[0].startswith("judged by other rules than the run's own, after it: ")
    assert "tr.tcpbw  pass -> fail" in made.stdout
    assert (folder / "criteria" / "ours.yml").is_file()
    text = (folder / "criteria" / "ours.yml").read_bytes()
    assert any(hashlib.sha256(text).hexdigest() in words for words in told.rules)


def test_all_other_criteria_stay_and_a_new_one_is_judged_beside_them(run_dir, rules):
    path = rules("tr.tcpbw", id="tr.ours", bound={"kind": "minimum", "value": 5.0, "words": ">= {value} Gbit/s"})
    verdict, told = judge_otherwise(run_dir, rules_of(run_dir, path, None))
    own = judge_files(run_dir)
    assert {c.id for c in verdict.criteria} == {c.id for c in own.criteria} | {"tr.ours"}
    (change,) = told.changes
    assert (change.id, change.old, change.new, change.old_bound) == ("tr.ours", None, "pass", None)
    assert told.same == len(own.criteria)


def test_a_folder_takes_the_place_of_all_criteria(run_dir, rules):
    folder = rules("tr.tcpbw").parent / "folder"
    folder.mkdir()
    shutil.copy(folder.parent / "ours.yml", folder)
    verdict, told = judge_otherwise(run_dir, rules_of(run_dir, folder, None))
    assert [c.id for c in verdict.criteria] == ["tr.tcpbw"]
    assert any("owes what these rules do not have: pf.bom" in note for note in told.notes)
    assert {c.new for c in told.changes} == {None}
    assert len(told.changes) == len(judge_files(run_dir).criteria) - 1


def test_another_profile_says_what_would_be_owed(run_dir):
    made = command(run_dir, "--profile", "network", "--json")
    document = json.loads(made.stdout)
    assert document["schema"] == "elastic-ai/judged/1"
    verdict = VerdictDoc.model_validate_json((Path(document["folder"]) / "verdict.json").read_text())
    assert verdict.profile is not None
    assert verdict.profile.name == "network"
    assert made.exit_code == verdict.exit_code
    changed = {c["id"] for c in document["changes"] if c["old_owed"] and not c["new_owed"]}
    own = judge_files(run_dir)
    assert changed == {c.id for c in own.criteria if c.owed} - {c.id for c in verdict.criteria if c.owed}
    assert changed


def test_by_its_own_rules_nothing_changes(run_dir):
    made = command(run_dir, "--json")
    document = json.loads(made.stdout)
    assert (document["changes"], document["rules"]) == ([], ["the run's own rules"])
    assert (document["old_headline"], document["notes"]) == (document["headline"], [])
    assert made.exit_code == judge_files(run_dir).exit_code
    told = command(run_dir).stdout
    assert "\nACCEPTED   " in told
    assert "by other rules" not in told
    assert "--rejudge" not in told, "these rules are the run's already"


def test_each_verdict_has_a_folder_of_its_own_and_none_passes_for_a_run(run_dir):
    folders = [written(command(run_dir)) for _ in range(3)]
    assert [folder.name for folder in folders] == [f"{run_dir.name}-judged{n}" for n in ("", "-2", "-3")]
    found = CliRunner().invoke(cli, ["judge", "--runs-dir", str(run_dir.parent)])
    assert written(found).name == f"{run_dir.name}-judged-4"


def test_nothing_goes_into_a_run(run_dir):
    before = state(run_dir)
    for out in (run_dir, run_dir / "deep" / "er", run_dir.parent):
        made = command(run_dir, "--out", out)
        assert made.exit_code == Exit.USAGE, out
        assert str(out) in made.output
    assert state(run_dir) == before
    assert sorted(p.name for p in run_dir.parent.iterdir()) == [run_dir.name]


def test_a_verdict_that_does_not_follow_is_told(run_dir):
    document = json.loads((run_dir / "verdict.json").read_text())
    (run_dir / "verdict.json").write_text(json.dumps(document | {"sign_off": "REJECTED", "outcome": "failed"}))
    assert "verdict.json of the run says REJECTED" in command(run_dir).stdout
    (run_dir / "verdict.json").write_text("{")
    assert "the run's own verdict cannot be read" in command(run_dir).stdout
    (run_dir / "verdict.json").unlink()
    assert "was never judged" in command(run_dir).stdout


def test_a_run_of_an_older_release_and_a_torn_line_are_told(run_dir):
    document = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps(document | {"toolkit_version": "0.0.9"}))
    said = command(run_dir).stdout
    assert "note: planned by toolkit 0.0.9, this is" in said
    assert "torn" not in said
    results = run_dir / "results.jsonl"
    results.write_bytes(results.read_bytes()[:-9])
    assert re.search(r"^note: results\.jsonl:\d+: torn last line", command(run_dir).stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("criteria: []\n", "ours.yml:1"),
        ("criteria:\n  - {id: tr.tcpbw}\n", "ours.yml:2"),
        ("", "ours.yml"),
        (None, "no such file"),
    ],
)
def test_rules_that_cannot_be_used_are_one_line_and_nothing_is_written(run_dir, tmp_path, text, said):
    path = tmp_path / "ours.yml"
    if text is not None:
        path.write_text(text)
    made = command(run_dir, "--criteria", path)
    assert made.exit_code == Exit.USAGE
    assert said in made.output
    assert len(made.output.strip().splitlines()) == 1
    assert sorted(p.name for p in run_dir.parent.iterdir()) == [run_dir.name]


def test_an_empty_folder_and_an_unknown_profile_are_refused(run_dir, tmp_path):
    (tmp_path / "none").mkdir()
    made = command(run_dir, "--criteria", tmp_path / "none")
    assert made.exit_code == Exit.USAGE
    assert "no criteria files" in made.output
    made = command(run_dir, "--profile", "netwrk")
    assert made.exit_code == Exit.USAGE
    assert "did you mean network?" in made.output


def test_an_error_of_ours_is_no_verdict(run_dir, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("validation.run.other_rules.judge", broken)
    made = command(run_dir)
    assert made.exit_code == Exit.USAGE
    assert "this is an error of the toolkit" in made.output
