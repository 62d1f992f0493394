"""`toolkit runs` and `toolkit criteria` as a user meets them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.report_fixture import make_run
from tests.support.signing_case import NEEDS_SSH, make_key, sign
from toolkit.cli import cli
from validation.run.catalogue import load_criteria

pytestmark = pytest.mark.computes


def toolkit(*words: str) -> Result:
    return CliRunner().invoke(cli, words, env={"COLUMNS": "120"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A failed run that somebody signed, one that was interrupted, and one whose verdict is damaged."""
    runs = tmp_path_factory.mktemp("listed") / "runs"
    failed = make_run(runs / "2026-11-21T10-15-00Z-tcp10", slow="gpu2", suites=("preflight", "transport"))
    make_run(runs / "2026-11-22T10-15-00Z-tcp10", judged=False, cut_after=3, suites=("preflight",))
    damaged = make_run(runs / "2026-11-23T10-15-00Z-tcp10", suites=("preflight",))
    (damaged / "verdict.json").write_text('{"outcome": "passed"}')
    if shutil.which("ssh-keygen"):
        sign(failed, make_key(runs.parent / "key"))
    return runs


@NEEDS_SSH
def test_runs_are_listed_newest_first_with_fabric_outcome_and_signers(folder: Path) -> None:
    done = toolkit("runs", "--runs-dir", str(folder))
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0][:10] for line in lines[1:4]] == ["2026-11-23", "2026-11-22", "2026-11-21"]
    assert "damaged" in lines[1]
    assert "not judged" in lines[2]
    assert all(word in lines[3] for word in ("tcp10", "FAILED (rehearsal)", "A. Example"))
    assert "is no verdict" in done.stderr


@NEEDS_SSH
def test_runs_as_one_document(folder: Path) -> None:
    told = json.loads(toolkit("runs", "--runs-dir", str(folder), "--json").stdout)
    assert next(iter(told)) == "schema"
    rows = {row["run"][:10]: row for row in told["runs"]}
    assert rows["2026-11-21"]["signed_by"] == ["A. Example"]
    assert (rows["2026-11-21"]["sign_off"], rows["2026-11-21"]["outcome"]) == ("REHEARSAL", "failed")
    assert "tr.tcpbw" in rows["2026-11-21"]["failed"]
    assert rows["2026-11-22"]["outcome"] is None
    assert rows["2026-11-23"]["fault"]


def test_a_folder_without_runs_says_so_and_is_no_failure(tmp_path: Path) -> None:
    done = toolkit("runs", "--runs-dir", str(tmp_path))
    assert (done.exit_code, "no run yet" in done.output) == (0, True)
    assert json.loads(toolkit("runs", "--runs-dir", str(tmp_path), "--json").stdout)["runs"] == []


def test_all_criteria_are_listed_and_one_is_explained() -> None:
    listed = toolkit("criteria").output
    assert [c.id for c in load_criteria() if c.id not in listed] == []
    one = toolkit("criteria", "show", "tr.tcpbw").output
    assert all(word in one for word in ("transport", "tcp-bandwidth", "when it fails", "the fabric's tcp_bandwidth"))
    assert "{" not in listed + one


def test_criteria_of_a_suite_and_what_is_unknown_is_told_with_the_nearest() -> None:
    told = json.loads(toolkit("criteria", "list", "--suite", "training", "--json").stdout)
    assert {c["suite"] for c in told["criteria"]} == {"training"}
    for words, near in (
        (("show", "tr.tcpwb"), "did you mean tr.tcpbw?"),
        (("--suite", "transprot"), "did you mean transport?"),
    ):
        wrong = toolkit("criteria", *words)
        assert (wrong.exit_code, near in wrong.output) == (2, True)
