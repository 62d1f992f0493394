"""The program that remoting is measured by, with a real TensorFlow: its networks, and that it computes the same by text
as from its file."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from tests.support.tensorflow_engine import real_python
from validation.probes import PROGRAM_FOLDER, remoting_program
from validation.probes.train_networks import NETWORKS

pytestmark = pytest.mark.rest  # TensorFlow is imported four times
COUNT = """
import json, math, sys
sys.path.insert(0, sys.argv[1])
from validation.probes import tf_networks as networks
made = {name: networks.build(name, one.side, 1) for name, one in networks.NETWORKS.items()}
least = {name: networks.build(name, one.least, 16).output_shape[-1] for name, one in networks.NETWORKS.items()}
counted = {name: sum(math.prod(one.shape) for one in net.trainable_variables) for name, net in made.items()}
print(json.dumps([counted, least]))
"""
SMALL = ["--framework", "tensorflow", "--network", "alexnet", "--side", "63", "--thin", "16", "--every", "2"]
STEPS = ["--batch", "2,4", "--steps", "8"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(
        [str(real_python()), *words], capture_output=True, text=True, check=False, timeout=240, env=environment
    )


def documents(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in remoting_program.documents(done.stdout)]


def test_networks_have_as_many_parameters_as_published() -> None:
    done = run("-c", COUNT, str(PROGRAM_FOLDER.parents[1]))
    assert done.returncode == 0, done.stderr
    counted, least = json.loads(done.stdout)
    assert counted == {name: NETWORKS[name].parameters for name in counted}
    assert least == {"alexnet": 1000, "resnet50": 1000}, "they can be made for the smallest images"


def test_by_text_as_on_a_server_it_computes_the_same_and_its_steps_are_all_timed() -> None:
    whole = documents(run(str(PROGRAM_FOLDER / "tf_load.py"), *SMALL, *STEPS, "--processor", "GPU-1"))
    words = remoting_program.there(SMALL, ["GPU-1"], emulated=True)
    there = documents(run("-I", "-c", *words[words.index("-c") + 2 :], *STEPS))
    same = ("losses", "weights_sha256", "code_sha256", "devices", "network", "batch")
    assert [[one[key] for key in same] for one in there] == [[one[key] for key in same] for one in whole]
    for one in whole:
        assert len(one["step_s"]) == len(one["losses"]) == 8
        assert one["losses"][-1] != one["losses"][0]
        assert one["synchronisations"] == 5, "the first, then every second, and the last"
        assert (one["tool"], one["emulated"], one["servers"]) == ("tf_load", True, [])


def test_without_a_gpu_it_says_so() -> None:
    done = run(str(PROGRAM_FOLDER / "tf_load.py"), *SMALL)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "tf_load: no GPU is visible here"
