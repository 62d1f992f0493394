"""The program that remoting is measured by, with a real PyTorch: its networks, and that its checkpoint goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import torch_env
from validation.probes import PROGRAM_FOLDER, remoting_program
from validation.probes.train_networks import NETWORKS

pytestmark = pytest.mark.engines
COUNT = """
import json, sys
import torch
sys.path.insert(0, sys.argv[1])
from validation.probes import torch_networks as networks
with torch.device("meta"):
    made = {name: networks._MAKE[name](networks.Thin(1)) for name in networks.NETWORKS}
print(json.dumps({name: sum(p.numel() for p in one.parameters()) for name, one in made.items()}))
"""
SMALL = ["--network", "alexnet", "--batch", "2", "--side", "63", "--thin", "16", "--every", "2"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**torch_env.plain_environment(), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [str(torch_env.python()), *words], capture_output=True, text=True, check=False, timeout=120, env=environment
    )


def trained(*words: str) -> dict[str, Any]:
    done = run(str(PROGRAM_FOLDER / "torch_load.py"), *SMALL, "--processor", "GPU-1", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    """Eight steps that nobody disturbs."""
    return trained("--steps", "8")


def test_networks_have_as_many_parameters_as_published() -> None:
    done = run("-c", COUNT, str(PROGRAM_FOLDER.parents[1]))
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout)
    known = {name: one.parameters for name, one in NETWORKS.items() if name in counted}
    assert len(known) == 7
    assert {name: counted[name] for name in known} == known


def test_by_text_as_on_a_server_it_computes_the_same_and_its_steps_are_all_timed(whole: dict[str, Any]) -> None:
    words = remoting_program.there(SMALL, ["GPU-1"], emulated=True)
    boot = words[words.index("-c") + 2 :]
    done = run("-I", "-c", *boot, "--steps", "8")
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout.splitlines()[-1])
    same = ("losses", "weights_sha256", "code_sha256", "devices", "network")
    assert {key: there[key] for key in same} == {key: whole[key] for key in same}
    assert len(whole["step_s"]) == len(whole["losses"]) == 8
    assert whole["synchronisations"] == 5, "the first, then every second, and the last"


def test_a_checkpoint_goes_on_to_the_losses_of_an_undisturbed_training(whole: dict[str, Any], tmp_path: Path) -> None:
    kept = tmp_path / "work.pt"
    command = [str(torch_env.python()), str(PROGRAM_FOLDER / "torch_load.py"), *SMALL, "--processor", "GPU-1"]
    command += ["--steps", "8", "--keep", str(kept), "--pace", "1000", "--wait"]
    environment = {**torch_env.plain_environment(), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert json.loads(first.stdout.readline()) == {"ready": True}
        first.stdin.write("\n")
        first.stdin.flush()
        time.sleep(1.0)
        first.send_signal(signal.SIGUSR1)
        told = json.loads(first.stdout.readline())
        assert first.wait(60) == 3
    assert told["told_by"] == "SIGUSR1"
    assert told["kept"]["steps"] == len(told["losses"]) < 8
    again = trained("--steps", "8", "--keep", str(kept))
    assert again["resumed_from"] == told["kept"]["steps"]
    assert (again["losses"], again["weights_sha256"]) == (whole["losses"], whole["weights_sha256"])
