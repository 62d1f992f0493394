"""elastic-ai-train on emulated devices that run its kernels: what it computes, what it counts, what it says."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.engine_run import ROOT, built, describe, local
from tests.support.train_reference import logarithm, power, trained
from toolkit.engine import build, host_modules
from toolkit.lease.programs import train
from toolkit.lease.programs.train_net import Shape

LACKS = build.missing_tools() or host_modules.lacks_compiler()
pytestmark = [pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}"), pytest.mark.engines]
SMALL = ["--inputs", "7", "--hidden", "5", "--classes", "3", "--batch", "6"]
PTX = train.CODE


def started(folder: Path, *options: str, **more: Any) -> subprocess.CompletedProcess[str]:
    library = more.pop("LD_LIBRARY_PATH", None)
    client = local(folder, describe(folder, **more), **({"LD_LIBRARY_PATH": library} if library else {}))
    command = [sys.executable, "-m", "toolkit.lease.programs.train", *options]
    return subprocess.run(command, env=client.environment(), capture_output=True, text=True, check=False, timeout=300)


def document(folder: Path, *options: str, **more: Any) -> dict[str, Any]:
    done = started(folder, *options, "--json", **more)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("gpus", [1, 2])
def test_losses_and_weights_are_right_to_the_bit(tmp_path: Path, gpus: int):
    """For eleven steps, so that batches come again, against Python."""
    found = document(tmp_path, *SMALL, "--steps", "11", "--gpus", str(gpus), "--seed", "3")
    losses, weights = trained(Shape(7, 5, 3), 6, 11, 3, gpus)
    assert found["losses"] == losses
    assert found["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    other = document(tmp_path, *SMALL, "--steps", "11", "--gpus", str(gpus), "--seed", "4")
    assert other["losses"] != losses


def test_the_reference_knows_exponentials_and_logarithms():
    for x in (0.0, -1e-6, -0.1, -0.7, -5.0, -20.25, -80.0):
        assert power(x) == pytest.approx(math.exp(x), rel=5e-7)
    assert power(-100.0) == 0
    for x in (1.0, 1.0001, 1.5, 2.0, 9.75, 1000.0):
        assert logarithm(x) == pytest.approx(math.log(x), rel=5e-7, abs=5e-8)


def test_it_learns_and_counts_what_it_asked_for(tmp_path: Path):
    found = document(tmp_path, "--inputs", "64", "--hidden", "32", "--steps", "60")
    assert found["gpus"] == len(found["devices"]) == 2
    assert found["losses"][0] == pytest.approx(math.log(10), rel=0.2), "ten classes, nothing known"
    assert found["losses"][-1] < 0.7 * found["losses"][0]
    weights = (64 + 1) * 32 + (32 + 1) * 10
    assert found["weights"] == weights
    assert found["launches"] == 60 * (2 * 13 + 1)
    assert found["bytes_to_devices"] == 60 * (64 * (64 + 1) * 4 + 2 * weights * 4)
    assert found["bytes_from_devices"] == 60 * (2 * 4 + 2 * weights * 4)
    assert found["synchronisations"] == 60 * 4
    assert len(found["step_s"]) == 60
    assert found["images_per_s"] == pytest.approx(64 * 59 / sum(found["step_s"][1:]))
    assert (found["emulated"], found["servers"], found["tool"]) == (True, [], "elastic-ai-train")


def test_answers_alone(tmp_path: Path):
    found = document(tmp_path, *SMALL, "--infer", "--gpus", "1", "--steps", "3")
    assert (found["launches"], found["bytes_from_devices"], found["losses"]) == (12, 3 * 6 * 3 * 4, [])
    again = document(tmp_path, *SMALL, "--infer", "--steps", "3")
    assert again["answers_sha256"] == found["answers_sha256"], "each image is answered by itself, on whatever GPU"


def test_what_a_person_reads(tmp_path: Path):
    done = started(tmp_path, *SMALL, "--gpus", "1", "--steps", "20")
    assert done.returncode == 0
    assert "training with 6 images a step, 6 on each GPU; 58 weights" in done.stdout
    assert "launches          13 a step" in done.stdout
    assert "Emulated devices: not a GPU's figures." in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if line[:6].strip().isdecimal()] == [
        *(str(n) for n in range(0, 20, 2)),
        "19",
    ]
    text = started(tmp_path, "--help").stdout
    for word in ("--steps", "--batch", "--gpus", "toolkit run -n 2 -p 1/3 -- elastic-ai-train", "exit: 0"):
        assert word in text


def test_what_is_wrong_is_one_sentence(tmp_path: Path):
    def fails(*options: str, **more: Any) -> str:
        done = started(tmp_path, *SMALL, "--steps", "4", *options, **more)
        assert done.returncode == 2, done.stdout
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    assert "--gpus 3: 2 are visible here" in fails("--gpus", "3")
    assert "--batch 5 is not a multiple of 2, the number of GPUs" in fails("--batch", "5")
    assert "no code for the GPUs: /nothing: No such file" in fails("--code", "/nothing")
    bad = tmp_path / "bad.ptx"
    bad.write_text(PTX.read_text()[:-200].rstrip("}\n \t"))
    said = fails("--code", str(bad))
    assert "CUDA_ERROR_INVALID_PTX: ptxas fatal: line " in said
    assert "the driver's compiler does not take the code" in said
    assert "for sm_60, and this device is sm_52 (209); the code is for another" in fails(compute_capability="5.2")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (700); a kernel met an illegal address" in fails(illegal_after=20)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in fails(memory_bytes=4096)
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(built() / "devices/libcuda.so.1", bare)
    assert "there is none for this PTX" in fails(LD_LIBRARY_PATH=str(bare))
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "libcuda.so.1").touch()
    assert "no CUDA driver library" in fails(LD_LIBRARY_PATH=str(empty))
    subprocess.run(["gcc", "-shared", "-x", "c", "-", "-o", empty / "libcuda.so.1"], input=b"", check=True)
    assert "lacks a function that kernels need" in fails(LD_LIBRARY_PATH=str(empty))


def test_it_runs_where_it_is_installed(tmp_path: Path):
    """The command of role remoting_client finds what the role puts beside it."""
    text = (ROOT / "roles/remoting_client/files/train").read_text()
    home = tmp_path / "lib"
    shipped = yaml.safe_load((ROOT / "roles/remoting_client/vars/main.yml").read_text())["__remoting_client_modules"]
    for name in (*shipped, *ROOT.glob("toolkit/lease/**/*.py")):
        path = ROOT / name
        target = home / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    command = tmp_path / "elastic-ai-train"
    assert '"/usr/lib/elastic-ai/lease"' in text
    command.write_text(text.replace("/usr/lib/elastic-ai/lease", str(home)))
    environment = local(tmp_path, describe(tmp_path)).environment()
    del environment["PYTHONPATH"]
    run = [sys.executable, "-I", "-S", str(command), *SMALL, "--steps", "2"]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
