"""`toolkit report --campaign`: what it writes and prints, what it refuses, and that it changes no run."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.support.report_fixture import make_run
from toolkit.cli import cli
from toolkit.exits import Exit
from validation.campaign import Campaign, campaign_of

pytestmark = pytest.mark.computes

SLOW_LINK, FAST_LINK = "2026-11-21T10-15-00Z-tcp10", "2026-11-21T10-15-00Z-tcp10-2"
REAL = "2026-11-21T10-15-00Z-tcp10-3"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rehearsals that fit together, and a run on hardware, in a folder of runs; not to be changed."""
    base = tmp_path_factory.mktemp("runs")
    make_run(base / SLOW_LINK, run=SLOW_LINK)
    make_run(base / FAST_LINK, run=FAST_LINK, lab_gbps=10.0, slow="gpu2")
    make_run(base / REAL, run=REAL, virtual=False, waive=True)
    return base


@pytest.fixture
def runs_dir(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "runs")


def report(runs_dir: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["report", "--campaign", *arguments, "--runs-dir", str(runs_dir)])


def state(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_the_command_writes_page_and_json_beside_the_runs_and_nothing_into_them(runs_dir):
    before = state(runs_dir)
    done = report(runs_dir, SLOW_LINK, FAST_LINK, "--format", "html,json")
    assert done.exit_code == 0, done.output
    folder = runs_dir / f"{FAST_LINK}-campaign"
    assert done.stdout.splitlines() == [str(folder / "campaign.html"), str(folder / "campaign.json")]
    assert "REHEARSAL on virtual parts" in done.stderr
    after = state(runs_dir)
    assert {name: after[name] for name in before} == before
    document = json.loads((folder / "campaign.json").read_text())
    assert document["schema"] == "elastic-ai-campaign/1"
    assert Campaign.model_validate(document) == campaign_of([runs_dir / SLOW_LINK, runs_dir / FAST_LINK])
    assert report(runs_dir, SLOW_LINK, FAST_LINK, "--format", "html,json").exit_code == 0
    assert state(runs_dir) == after, "the same runs give another page"
    told = json.loads(report(runs_dir, SLOW_LINK, FAST_LINK, "--format", "html", "--json").stdout)
    assert told["report"] == str(folder / "campaign.html")
    assert [r["run"] for r in told["runs"]] == [SLOW_LINK, FAST_LINK]
    assert CliRunner().invoke(cli, ["report", "--format", "json", "--runs-dir", str(runs_dir)]).exit_code == 0, (
        "the folder of a campaign is taken for a run"
    )


def test_out_is_where_it_goes(runs_dir, tmp_path):
    done = report(runs_dir, SLOW_LINK, FAST_LINK, "--format", "json", "--out", str(tmp_path / "there"))
    assert [p.name for p in (tmp_path / "there").iterdir()] == ["campaign.json"]
    assert done.stdout.split() == [str(tmp_path / "there" / "campaign.json")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "a campaign is made of two runs or more"),
        ((SLOW_LINK,), "a campaign is made of two runs or more"),
        ((SLOW_LINK, SLOW_LINK), "is named twice"),
        ((SLOW_LINK, "none"), "none: no such run"),
        ((SLOW_LINK, REAL), "do not fit into one campaign"),
        ((SLOW_LINK, FAST_LINK, "--format", "junit"), "junit: is of one run"),
        ((SLOW_LINK, FAST_LINK, "--branding", "report.yml"), "--branding is of one run"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(runs_dir, arguments, words):
    before = state(runs_dir)
    done = report(runs_dir, *arguments)
    assert (done.exit_code, done.stdout) == (Exit.USAGE, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert state(runs_dir) == before


def test_several_runs_without_the_word_campaign_are_refused(runs_dir):
    done = CliRunner().invoke(cli, ["report", SLOW_LINK, FAST_LINK, "--runs-dir", str(runs_dir)])
    assert done.exit_code == Exit.USAGE
    assert "toolkit report --campaign" in done.stderr


def test_a_verdict_that_does_not_follow_from_the_run_is_refused(runs_dir):
    path = runs_dir / SLOW_LINK / "verdict.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"headline": "all is well"}))
    done = report(runs_dir, SLOW_LINK, FAST_LINK)
    assert done.exit_code == Exit.USAGE
    assert f"{path}: is not what judging the results gives: headline" in done.stderr
    assert not (runs_dir / f"{FAST_LINK}-campaign").exists()
