"""Folders of runs that somebody else filled: names that a shell would run, files that never end, times that are none.

`toolkit runs` lists the good ones and says what is wrong with each other one; completion offers no word that does
something; every --json answer is text that a strict reader takes.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.report_fixture import make_run
from toolkit import answers
from toolkit.cli import cli
from toolkit.tables import lines

pytestmark = pytest.mark.computes

ROOT = Path(__file__).parents[2]
ODD = (
    "a b",
    "x$(touch ran)",
    "q'u",
    'd"q',
    "`id`",
    "nl\nplain,evil",
    "esc\x1b[31m",
    "*",
    "-rf",
    "bad\udcff",
    "a;id",
    "a,b",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("hostile") / "run")


def listed(folder: Path) -> dict[str, dict[str, Any]]:
    done = CliRunner().invoke(cli, ["runs", "--runs-dir", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    return {row["run"]: row for row in json.loads(done.stdout)["runs"]}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_no_name_that_a_shell_would_run_or_expand(tmp_path: Path, shell: str) -> None:
    for name in (*ODD, "2026-11-26T04-00-00Z-tcp10", "ünï"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    asked = {"COMP_WORDS": f"toolkit report --runs-dir {tmp_path} ", "COMP_CWORD": "4" if shell != "fish" else ""}
    env = {**os.environ, **asked, "_TOOLKIT_COMPLETE": f"{shell}_complete", "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "toolkit"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = done.stdout.replace("plain", "").replace(",", "").replace("_", "").split()
    assert found == ["ünï", "2026-11-26T04-00-00Z-tcp10"]


def test_completion_ends_where_a_plan_is_a_pipe_or_nested_deeply(tmp_path: Path) -> None:
    for number, put in enumerate((os.mkfifo, lambda p: p.write_text("[" * 100_000), lambda p: p.write_text("[]"))):
        folder = tmp_path / str(number)
        (folder / "one").mkdir(parents=True)
        (folder / "one/run.json").touch()
        put(folder / "one/plan.json")
        words = {"COMP_WORDS": f"toolkit report --runs-dir {folder} --trace ", "COMP_CWORD": "5"}
        env = {**os.environ, **words, "_TOOLKIT_COMPLETE": "bash_complete"}
        asked = [sys.executable, "-m", "toolkit"]
        done = subprocess.run(asked, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_a_name_makes_no_row_of_its_own(run: Path, tmp_path: Path) -> None:
    for name in ODD:
        shutil.copytree(run, tmp_path / name)
    done = CliRunner().invoke(cli, ["runs", "--runs-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 1 + len(ODD)
    assert "nl\\u000aplain,evil" in done.stdout
    assert "esc\\u001b[31m" in done.stdout
    assert lines(("a", "b"), [("x\ny", "\u202ez")], None)[1:] == ["x\\u000ay  \\u202ez"]
    assert set(listed(tmp_path)) == {name.replace("\udcff", "\\xff") for name in ODD}


@pytest.mark.parametrize(
    ("file", "put", "words"),
    [
        ("verdict.json", os.mkfifo, "verdict.json: is no file"),
        ("verdict.json", Path.mkdir, "verdict.json: is no file"),
        ("verdict.json", lambda p: p.write_text("[" * 100_000), "nested too deeply"),
        ("verdict.json", lambda p: p.write_text(f'{{"criteria": {"9" * 6000}}}'), "verdict.json: is no verdict"),
        ("run.json", lambda p: p.write_text("{"), "run.json:1"),
    ],
)
def test_a_damaged_run_is_a_row_that_says_so(
    run: Path, tmp_path: Path, file: str, put: Callable[[Path], object], words: str
) -> None:
    bad, _ = shutil.copytree(run, tmp_path / "bad"), shutil.copytree(run, tmp_path / "good")
    (bad / file).unlink()
    put(bad / file)
    found = listed(tmp_path)
    assert words in found["bad"]["fault"]
    assert (found["good"]["fault"], found["good"]["outcome"]) == (None, "passed")


@pytest.mark.parametrize(
    ("created", "shown"),
    [("2026-11-21T10:15:00+05:00", "2026-11-21T05:15:00Z"), ("2026-11-21T10:15:00", "2026-11-21T10:15:00Z"),
     ("yesterday", None), ("\x1b[31m", None)],
)  # fmt: skip
def test_a_time_is_one_in_utc_or_a_fault(run: Path, tmp_path: Path, created: str, shown: str | None) -> None:
    bad = shutil.copytree(run, tmp_path / "bad")
    info = json.loads((bad / "run.json").read_text())
    (bad / "run.json").write_text(json.dumps({**info, "created": created}, indent=2))
    row = listed(tmp_path)["bad"]
    assert row["created"] == shown
    assert (row["fault"] is None) == (shown is not None)


def test_an_answer_has_no_number_that_is_none_and_no_half_of_a_character() -> None:
    text = answers.text("x", {"a": math.nan, "b": [math.inf, 1.5], "bad\udcff": Path("p\udcff"), "c": "\ud800"})
    said = json.loads(text, parse_constant=lambda word: pytest.fail(word))
    assert said == {"schema": "elastic-ai/x/1", "a": None, "b": [None, 1.5], "bad\\xff": "p\\xff", "c": "\\ud800"}
