"""A controller that loses power in every stage of a deployment: the same command goes on, nothing is left behind."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BIN, NAME, ROOT, Lab, toolkit

from tests.support.recap import recap

pytestmark = [pytest.mark.rest, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab")]
LAB = f"{NAME}-killed"
NODES = ("head", "gpu1")
SEED = 41
STAGE = re.compile(r"\[(\d+)/(\d+)\]")
INTO_A_STAGE_S = 6.0  # at most
LIMIT_S = 1200.0


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two nodes on which nothing is provisioned."""
    inventory = tmp_path_factory.mktemp("killed") / "site"
    toolkit("lab", "down", "--name", LAB)  # of a run that was cut off
    up = toolkit("lab", "up", "--name", LAB, "--nodes", str(len(NODES)), "--inventory", inventory)
    assert up.returncode == 0, up.stderr
    yield Lab(LAB, inventory)
    assert toolkit("lab", "down", "--name", LAB).returncode == 0


def killed_in(lab: Lab, number: int, after_s: float, log: Path) -> int | None:
    """Kill a deployment and all that it started here, so long after a stage began. The number of stages, None where
    the deployment ended first."""
    words = [str(BIN / "toolkit"), "deploy", "-i", str(lab.inventory)]
    with log.open("w") as err:
        process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=err, stderr=err, start_new_session=True
        )
    until, stages = time.monotonic() + LIMIT_S, 0
    try:
        while process.poll() is None:
            assert time.monotonic() < until, log.read_text()[-4000:]
            found = [(int(at), int(of)) for at, of in STAGE.findall(log.read_text())]
            if found and found[-1][0] >= number:
                stages = found[-1][1]
                time.sleep(after_s)
                break
            time.sleep(0.1)
        else:
            assert process.returncode == 0, log.read_text()[-6000:]
            return None
    finally:
        for pid in of_session(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    return stages


def of_session(session: int) -> list[int]:
    """Processes of a session; those of a node are in another."""
    done = subprocess.run(["ps", "-s", str(session), "-o", "pid="], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


def test_a_controller_killed_in_every_stage_costs_nothing(bare: Lab, tmp_path: Path) -> None:
    """Every stage once, at a moment of its own; then a whole run that ends in order, and one that changes nothing."""
    rng, number, stages, killed = random.Random(SEED), 1, 1, 0
    while number <= stages:
        seen = killed_in(bare, number, rng.uniform(0.2, INTO_A_STAGE_S), tmp_path / f"killed-{number}")
        killed += seen is not None
        stages = max(stages, seen or 0)
        number += 1
    assert killed > 8, "most stages were reached"
    done = toolkit("deploy", "-i", bare.inventory, timeout_s=1800)
    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
    again = bare.playbook()
    assert {node: counts["changed"] for node, counts in recap(again.stdout).items()} == dict.fromkeys(NODES, 0), (
        again.stdout[-6000:]
    )
    for node in NODES:
        assert bare.ssh(node, "systemctl list-units --failed --no-legend --plain") == ""
        assert bare.ssh(node, "dpkg --audit") == ""
        assert bare.ssh(node, "ls -A /root/.ansible/tmp 2>/dev/null || true") == "", "modules that were cut off"
    checked = toolkit("check", "-i", bare.inventory, timeout_s=600)
    assert checked.returncode == 0, checked.stdout[-4000:] + checked.stderr[-2000:]
