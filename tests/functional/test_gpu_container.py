"""The probe gpu-container with a program in place of Docker's, which keeps its containers as files.

No Docker with GPUs was at hand: what happens to devices at a reload is planted, as NVIDIA/nvidia-container-toolkit's
issue 48 tells it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.gpu_container_case import read
from tests.support.site import BOM, criterion, hardware, plan_of, results_of, verdict_of
from validation.measures.gpu.container import ABSENT, GpuContainerFacts
from validation.model import Judgement, Measurement, Result
from validation.probes import smi

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[2]
DOCKER = """#!/bin/sh
cd "$STATE" || exit 1
echo "docker $*" >> log
case "$1" in
version) echo 29.8.1 ;;
info) echo "systemd v2" ;;
inspect) [ ! -e no-training ] && echo sha256:4f2d ;;
run)
    [ ! -e no-start ] || { echo "unresolvable CDI devices nvidia.com/gpu=all" >&2; exit 125; }
    while [ "$1" != --name ]; do shift; done
    : > "container.$2"; echo 8a1f ;;
exec)
    [ -e "container.$2" ] || exit 1
    [ ! -e slow ] || exec sleep 30
    if [ -e reloaded ] && [ -e loses ]; then echo "Failed to initialize NVML: Unknown Error"; exit 255; fi
    cat gpus ;;
rm) [ -e stays ] || rm -f "container.$3" ;;
ps) ls | grep "^container" || true ;;
esac
"""
OTHERS = {
    "nvidia-ctk": 'echo "NVIDIA Container Toolkit CLI version 1.19.1"; echo commit: 1',
    "nvidia-smi": 'cat "$STATE/gpus"',
    "systemctl": 'echo "systemctl $*" >> "$STATE/log"; [ ! -e "$STATE/denied" ] && : > "$STATE/reloaded"',
}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node with two GPUs: programs in bin/, state beside."""
    (tmp_path / "bin").mkdir()
    for name, text in {"docker": DOCKER, **{n: f"#!/bin/sh\n{text}\n" for n, text in OTHERS.items()}}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "gpus").write_text("GPU 0: NVIDIA H100\nGPU 1: NVIDIA H100\n")
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi/nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    return tmp_path


def started(node: Path) -> subprocess.Popen[str]:
    params = json.dumps({"cdi": str(node / "cdi")})
    command = [sys.executable, "-m", "validation.probes", "gpu-container", params]
    env = {"PATH": f"{node}/bin:/usr/bin:/bin", "STATE": str(node), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def printed(node: Path, *planted: str) -> dict[str, Any]:
    """The facts that the probe prints, where these things are planted."""
    for name in planted:
        (node / name).touch()
    with started(node) as process:
        found: dict[str, Any] = json.loads(process.stdout.read() if process.stdout else "")["facts"]
    GpuContainerFacts.model_validate(found)
    return found


MIG = """GPU 0: NVIDIA A30 (UUID: GPU-00000000-0000-0000-0000-000000000001)
  MIG 2g.12gb     Device  0: (UUID: MIG-00000000-0000-0000-0000-000000000011)
  MIG 1g.6gb      Device  1: (UUID: MIG-00000000-0000-0000-0000-000000000012)
GPU 1: NVIDIA A30 (UUID: GPU-00000000-0000-0000-0000-000000000002)
"""


def test_instances_of_gpus_and_remarks_are_no_gpus(node: Path) -> None:
    (node / "gpus").write_text(MIG + "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n")
    found = printed(node)
    assert (found["host"], found["before"]["gpus"], found["after"]["gpus"]) == (2, 2, 2)
    said = "0, NVIDIA A30\n1, NVIDIA A30\n\nWARNING: infoROM is corrupted at gpu 0000:3B:00.0\n"
    assert smi.names(said) == ["NVIDIA A30", "NVIDIA A30"]
    assert smi.names("No devices were found\n") == []


def judged(found: dict[str, Any]) -> Judgement:
    """What is judged of gpu2, where the other node is as it should be."""
    nodes = [node.model_copy(update={"bom": BOM.model_copy(update={"gpu_count": 2})}) for node in hardware().nodes]
    topology = hardware().model_copy(update={"nodes": tuple(nodes)})
    plan = plan_of(topology, ["preflight"])

    def spoil(m: Measurement) -> Result | None:
        return read(m, found) if m.id == "gpu-container.gpu2" else None

    verdict = verdict_of(topology, plan, results_of(plan, spoil))
    (mine,) = (j for j in criterion(verdict, "pf.container").judgements if j.subject == "gpu2")
    assert isinstance(mine, Judgement)
    return mine


def containers(node: Path) -> list[Path]:
    return list(node.glob("container.*"))


def test_gpus_that_stay_are_counted_before_and_after_one_reload(node: Path) -> None:
    found = printed(node)
    assert (found["host"], found["before"], found["after"]) == (2, *[{"gpus": 2, "said": ""}] * 2)
    log = (node / "log").read_text().splitlines()
    assert log.count("systemctl daemon-reload") == 1
    (run,) = (line for line in log if line.startswith("docker run"))
    for part in ("--rm", "--network none", "--pull never", "--device nvidia.com/gpu=all", "sleep sha256:4f2d 60"):
        assert part in run
    assert containers(node) == []
    assert (judged(found).verdict, judged(found).reason) == (
        "pass",
        "2 GPUs before and after; Docker 29.8.1, systemd v2",
    )


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        (
            "loses",
            "0 of 2 GPUs after systemctl daemon-reload (Failed to initialize NVML: Unknown Error); Docker 29.8.1",
        ),
        (
            "no-start",
            "0 of 2 GPUs in a container by CDI (it did not start: unresolvable CDI devices nvidia.com/gpu=all)",
        ),
        ("stays", "the container could not be taken away"),
    ],
)
def test_what_is_planted_is_named(node: Path, planted: str, words: str) -> None:
    found = judged(printed(node, planted))
    assert found.verdict == "fail"
    assert found.reason.startswith(words)
    assert planted == "stays" or containers(node) == []


@pytest.mark.parametrize(
    ("gone", "verdict", "words"),
    [
        ("bin/docker", "not-applicable", "no Docker"),
        ("bin/nvidia-ctk", "not-applicable", "no NVIDIA container toolkit that answers"),
        ("cdi/nvidia.yaml", "not-measured", "no CDI specification of GPUs"),
    ],
)
def test_where_there_is_nothing_to_be_asked_no_container_is_run(
    node: Path, gone: str, verdict: str, words: str
) -> None:
    (node / gone).unlink()
    found = printed(node)
    assert found["before"] is found["after"] is None
    assert "docker run" not in ((node / "log").read_text() if (node / "log").exists() else "")
    assert not (node / "reloaded").exists()
    # of two nodes, of which the other one passes, a node without Docker is no subject
    if verdict == "not-measured":
        assert (judged(found).verdict, judged(found).reason) == (verdict, words)
    else:
        with pytest.raises(ValueError, match="not enough values"):
            judged(found)


def test_what_was_not_asked_again_is_no_pass(node: Path) -> None:
    found = judged(printed(node, "denied"))
    assert found.verdict == "not-measured"
    assert found.reason.startswith("systemctl daemon-reload: status 1")
    assert containers(node) == []


def test_without_the_training_container_there_is_no_image(node: Path) -> None:
    found = printed(node, "no-training")
    assert found["unmade"] in ABSENT
    assert "training container" in found["unmade"]
    assert not (node / "reloaded").exists()


def test_a_probe_that_is_stopped_takes_its_container_along(node: Path) -> None:
    (node / "slow").touch()
    with started(node) as process:
        limit = time.monotonic() + 20
        while not containers(node) and time.monotonic() < limit:
            time.sleep(0.05)
        assert containers(node)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert containers(node) == []
    assert not (node / "reloaded").exists()


LOST = "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error"


@pytest.mark.parametrize(
    ("said", "code", "found"),
    [
        ("0, NVIDIA A30\n1, [GPU is lost]\n", 0, ["NVIDIA A30"]),
        ("0, NVIDIA A30\n1, [Unknown Error]\n2, NVIDIA A30\n3, ERR!\n", 0, ["NVIDIA A30", "NVIDIA A30"]),
        (f"0, NVIDIA A30\n{LOST}\n2, NVIDIA A30\n", 15, ["NVIDIA A30", "NVIDIA A30"]),
        (f"{LOST}\n1, NVIDIA A30\nReboot the system to recover this GPU.\n", 15, ["NVIDIA A30"]),
        # of Debian's program without a driver
        ("Unable to find nvml\nAre you sure you are using nvidia-smi provided with the driver?\n", 12, []),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.133\n", 18, []),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that.\n", 9, []),
        ("No devices were found\n", 6, []),
        ("", 127, []),
    ],
)
def test_a_gpu_that_is_lost_costs_no_other_and_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int, found: list[str]
) -> None:
    (tmp_path / "said").write_text(said)
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat {tmp_path}/said\nexit {code}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert smi.answering() == found
