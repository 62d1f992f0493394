"""What a run ends with on a terminal and in a pipe: the verdict in about ten lines, whatever it is."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.report_fixture import make_run
from tests.support.warm import COMMAND_PATH, command
from toolkit.lab.spec import lab_dir

pytestmark = pytest.mark.computes

RUN = "2026-11-2{}T10-15-00Z-tcp10"
SLOW, DEAD, FINE, REJECTED, ACCEPTED, OWED = (RUN.format(n) for n in range(1, 7))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of each sort; judged again by each test, which changes nothing of their results."""
    desk = tmp_path_factory.mktemp("desk")
    made: Mapping[str, dict[str, object]] = {
        SLOW: {"slow": "gpu2"},
        DEAD: {"dead": "gpu2"},
        FINE: {},
        REJECTED: {"virtual": False, "slow": "gpu2"},
        ACCEPTED: {"virtual": False, "waive": True},
        OWED: {"virtual": False},
    }
    for name, how in made.items():
        make_run(desk / "runs" / name, run=name, **how)  # type: ignore[arg-type]
    return desk


def toolkit(desk: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    return command(desk, arguments, {**kept, "PYTHONPATH": COMMAND_PATH, **environment})


def judged(desk: Path, run: str, *more: str, **environment: str) -> list[str]:
    """The lines of `validate --rejudge` without a terminal."""
    done = toolkit(desk, "validate", "--rejudge", run, "--format", "none", *more, **environment)
    assert done.stdout.endswith(f"\nexit code {done.returncode}\n"), done.stderr
    return done.stdout.splitlines()


FAILED = r"""
FAILED \(rehearsal\)   1 failed, \d+ passed, \d+ not measured of \d+      4m29s
  FAIL tr\.tcpbw  TCP bandwidth   0\.09\d Gbit/s, needs 0\.941   6 of 12 pairs
       at fault: port gpu2/fab0 \(88 %\), all 6 of its pairs
       do: check the port's negotiated rate, cable and transceiver, its switch port's error
           counters, and the host's PCIe slot
  not measured: \d+ suite not selected(, \d+ [a-zA-Z ]+)+
                \(--details\)
run     runs/2026-11-21T10-15-00Z-tcp10
next    toolkit validate --fabric tcp10
exit code 1
"""


def test_a_failure_is_told_in_ten_lines(desk: Path) -> None:
    lines = judged(desk, SLOW)
    assert re.fullmatch(FAILED, "\n".join((*lines, ""))), "\n".join(lines)


@pytest.mark.parametrize(
    ("run", "code", "first", "others"),
    [
        (DEAD, 3, r"INCOMPLETE \(rehearsal\)   0 passed, \d+ not measured of \d+", [
            r"       at fault: node gpu2",
            r"  MISSING \d+ of \d+ planned measurements without a usable result: facts\.gpu2, cabling\.gpu2,",
            rf"next    toolkit validate --resume runs/{DEAD}",
        ]),
        (FINE, 0, r"PASSED \(rehearsal\)   \d+ passed, \d+ not measured of \d+", [
            rf"next    toolkit sign runs/{FINE} --key ~/\.ssh/id_ed25519 --as \"NAME, COMPANY\";",
        ]),
        (REJECTED, 1, r"REJECTED   1 failed, \d+ passed, \d+ not measured of \d+", [
            r"  FAIL tr\.tcpbw  TCP bandwidth   0\.98 Gbit/s, needs 9\.00   6 of 12 pairs|"
            r"  FAIL tr\.tcpbw  TCP bandwidth   0\.9\d Gbit/s, needs 9\.00   6 of 12 pairs",
            r"next    toolkit validate --fabric tcp10",
        ]),
        (ACCEPTED, 0, r"ACCEPTED   \d+ passed, \d+ waived of \d+", [
            r"  profile: training, \d+ criteria owed",
            r"  waived: \d+ criteria, by A\. Example on [\d-]{10}, until [\d-]{10}: not part of this delivery",
        ]),
        (OWED, 3, r"INCOMPLETE   \d+ passed, \d+ not measured of \d+", [
            r"  OPEN \d+ owed, suite not selected: pf\.asbuilt, .* and \d+ more   \(--details\)|"
            r"  OPEN \d+ owed, suite not selected: pf\.asbuilt, .*",
            r"next    toolkit validate --fabric tcp10 --suite=preflight --suite=transport .*",
        ]),
    ],
)  # fmt: skip
def test_every_outcome_has_its_words_and_the_next_command(
    desk: Path, run: str, code: int, first: str, others: list[str]
) -> None:
    lines = judged(desk, run)
    assert lines[-1] == f"exit code {code}"
    assert re.fullmatch(rf"{first}      \dm\d\ds", lines[1]), lines[1]
    for pattern in others:
        assert any(re.fullmatch(pattern, line) for line in lines), (pattern, lines)
    assert len(lines) <= 15, "a verdict, and no wall"


@pytest.mark.parametrize("run", [SLOW, DEAD, FINE])
def test_nothing_of_a_rehearsal_can_be_taken_for_a_sign_off(desk: Path, run: str) -> None:
    said = "\n".join(judged(desk, run))
    assert "(rehearsal)" in said
    assert "ACCEPTED" not in said
    assert not re.search(r"\baccepted\b", said), said


@pytest.mark.parametrize("columns", ["40", "80", "100"])
@pytest.mark.parametrize(("run", "more"), [(SLOW, ()), (SLOW, ("--details",)), (DEAD, ()), (OWED, ("--details",))])
def test_lines_are_as_wide_as_columns_says_and_none_is_padded(
    desk: Path, run: str, columns: str, more: tuple[str, ...]
) -> None:
    lines = judged(desk, run, *more, COLUMNS=columns)
    assert [line for line in lines if line != line.rstrip()] == []
    long = [line for line in lines if len(line) > int(columns) and len(line.split()) > 1]
    assert long == [], "only a word that cannot be broken, as a path, is longer"


def test_without_a_terminal_there_are_100_columns(desk: Path) -> None:
    assert judged(desk, SLOW) == judged(desk, SLOW, COLUMNS="100") != judged(desk, SLOW, COLUMNS="60")
    for odd in ("0", "²"):
        assert judged(desk, SLOW, COLUMNS=odd) == judged(desk, SLOW), odd


def on_a_terminal(desk: Path, *arguments: str, **environment: str) -> str:
    """What a command prints on a terminal of 90 columns."""
    ours, theirs = pty.openpty()
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    subprocess.run(["stty", "cols", "90", "rows", "40"], stdin=theirs, check=True)
    child = subprocess.Popen(
        [sys.executable, "-m", "toolkit", *arguments],
        cwd=desk,
        env={**kept, "PYTHONPATH": COMMAND_PATH, "TERM": "xterm", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
    child.wait()
    os.close(ours)
    return said.decode().replace("\r\n", "\n")


def test_a_terminal_has_colours_and_its_own_width_and_no_color_is_heeded(desk: Path) -> None:
    asked = ("validate", "--rejudge", SLOW, "--format", "none")
    plain = on_a_terminal(desk, *asked, NO_COLOR="1")
    assert "\x1b[" not in plain
    assert plain.splitlines() == judged(desk, SLOW, COLUMNS="90")
    coloured = on_a_terminal(desk, *asked)
    assert "\x1b[1;31mFAILED (rehearsal)" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    green = on_a_terminal(desk, "validate", "--rejudge", FINE, "--format", "none")
    assert "\x1b[1;32m" not in green, "of a rehearsal no green pass"


def test_the_whole_table_comes_with_details(desk: Path) -> None:
    known = {c["id"] for c in json.loads((desk / "runs" / SLOW / "verdict.json").read_text())["criteria"]}
    short, whole = (judged(desk, SLOW, *more, COLUMNS="200") for more in ((), ("--details",)))
    assert {line.split()[0] for line in whole if line} >= known
    assert whole[-len(short) + 1 :] == short[1:], "and the verdict follows it"
    told = toolkit(desk, "report", SLOW, "--details", "--format", "json", COLUMNS="200")
    assert {line.split()[0] for line in told.stderr.splitlines() if line} >= known
    assert told.stdout == f"runs/{SLOW}/report.json\n", "what a program reads"


def test_judge_says_the_same_words_of_other_rules(desk: Path, tmp_path: Path) -> None:
    done = toolkit(desk, "judge", SLOW, "--profile", "network", "--out", str(tmp_path / "other"))
    lines = done.stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("FAILED (rehearsal, by other rules)   1 failed"))
    own = [line for line in judged(desk, SLOW) if line.startswith(("  FAIL", "       "))]
    assert [line for line in lines[first:] if line.startswith(("  FAIL", "       "))] == own
    assert f"next    toolkit validate --rejudge runs/{SLOW} --profile network" in lines
    assert f"judged  {tmp_path / 'other'}" in lines
    assert lines[-1] == "exit code 1"
    assert len(lines) < 30
    whole = toolkit(desk, "judge", SLOW, "--profile", "network", "--out", str(tmp_path / "whole"), "--details")
    assert len(whole.stdout.splitlines()) > 100


def test_a_planted_fault_of_the_lab_is_named_with_the_command_that_clears_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path / "state"))
    folder = lab_dir("lab")
    (folder / "inventory").mkdir(parents=True)
    (folder / "faults.json").write_text('{"gpu2": "slow-link", "client9": "slow-link"}')
    make_run(tmp_path / "runs" / SLOW, run=SLOW, slow="gpu2")
    info = json.loads((tmp_path / "runs" / SLOW / "run.json").read_text())
    info["inventory"] = str(folder / "inventory")
    (tmp_path / "runs" / SLOW / "run.json").write_text(json.dumps(info))
    assert "next    toolkit lab fault clear gpu2; toolkit validate --fabric tcp10" in judged(tmp_path, SLOW)
    (folder / "faults.json").unlink()
    assert "next    toolkit validate --fabric tcp10" in judged(tmp_path, SLOW)
