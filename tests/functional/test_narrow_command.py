"""`toolkit narrow` runs a real command for groups of nodes, names those at fault and leaves nothing running."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.processes import command_line
from toolkit.cli import cli

NAMES = ",".join(f"n{i}" for i in range(1, 31))
FAILS_AT = "case ,{nodes}, in *,%s,*) echo it was me; exit 3;; esac"


def narrowed(tmp_path, *words, code=0, nodes=NAMES):
    done = CliRunner().invoke(cli, ["narrow", "--out", str(tmp_path / "out"), "--nodes", nodes, *words])
    assert done.exit_code == code, done.output
    return done


def test_the_node_at_fault_is_named_with_the_good_ones_it_failed_with(tmp_path: Path) -> None:
    found = json.loads(narrowed(tmp_path, "--json", "--", "sh", "-c", FAILS_AT % "n17", code=1).stdout)
    assert list(found["bad"]) == ["n17"]
    assert len(set(found["bad"]["n17"])) == 2
    assert set(found["good"]) == set(NAMES.split(",")) - {"n17"}
    assert "n17 (failed with " in found["words"]
    logs = sorted((tmp_path / "out").glob("job-*.log"))
    assert len(logs) == found["jobs"] < 20
    said = {log.with_suffix(".hosts").read_text().split()[-1]: log.read_text() for log in logs}
    assert any("it was me" in text for text in said.values())
    for log in logs:
        assert ("n17" in log.with_suffix(".hosts").read_text().split()) == ("it was me" in log.read_text())


def test_count_and_hostfile_are_filled_in(tmp_path: Path) -> None:
    said = narrowed(tmp_path, "--", "sh", "-c", 'test "$(wc -l <{hostfile})" -eq {count}').stdout
    assert "no part of the job fails by itself" in said


def test_all_failed_and_what_nobody_can_be_named_for(tmp_path: Path) -> None:
    assert "what all nodes share is at fault" in narrowed(tmp_path, "--", "false", "{nodes}", code=1).stdout
    both = "case ,{nodes}, in *,n1,*n3,* | *,n3,*n1,*) exit 1;; esac"
    assert "not settled: n1, n3" in narrowed(tmp_path, "--", "sh", "-c", both, nodes="n1,n2,n3,n4", code=3).stdout


def test_a_job_that_hangs_failed_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    hangs = f"case ,{{nodes}}, in *,n2,*) sleep 987 & echo $! >>{tmp_path}/pids; wait;; esac"
    done = narrowed(tmp_path, "--time", "1s", "--", "sh", "-c", hangs, nodes="n1,n2,n3,n4,n5,n6", code=1)
    assert "n2 (failed with" in done.stdout
    pids = (tmp_path / "pids").read_text().split()
    assert pids
    assert not [pid for pid in pids if "sleep" in command_line(pid)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_term_end_what_is_running(tmp_path: Path, number: int) -> None:
    sleeps = f"echo $$ >{tmp_path}/{{count}}; exec sleep 988"
    words = ["narrow", "--out", tmp_path / "out", "--nodes", "n1,n2", "--", "sh", "-c", sleeps, "{nodes}"]
    child = subprocess.Popen([sys.executable, "-m", "toolkit", *map(str, words)], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while not (tmp_path / "2").exists() or not (tmp_path / "2").read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    child.send_signal(number)
    _, said = child.communicate(timeout=30)
    assert child.returncode == 130, said
    pid = (tmp_path / "2").read_text().strip()
    assert "988" not in command_line(pid), "it runs on"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes", "n1,n2", "--", "true"), "neither {nodes} nor {hostfile}"),
        (("--nodes", "n1,n2", "--", "/no/such/program", "{nodes}"), "cannot be started"),
        (("--nodes", "n1", "--", "true", "{nodes}"), "1 node: there is nothing"),
        (("--nodes", "n1,n1", "--", "true", "{nodes}"), "named twice"),
        (("--", "true", "{nodes}"), "which nodes"),
    ],
)
def test_a_mistake_blames_nobody(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(cli, ["narrow", "--out", str(tmp_path), *words])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize("time", ["0", "0s", "-1", "soon", "2y"])
def test_a_time_that_is_none_is_refused(tmp_path, time):
    done = CliRunner().invoke(cli, ["narrow", f"--time={time}", "--nodes", "n1,n2", "--", "sh", "-c", "{nodes}"])
    assert (done.exit_code, "--time" in done.output) == (2, True)
