"""The probe gpu-health on emulated devices: what is planted there is found and named, and nothing else.

No GPU was at hand: that NVIDIA's own library answers so is read in nvml.h and not measured.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import ROOT, built
from tests.support.gpu_health_case import read
from tests.support.site import criterion, lab, plan_of, results_of, verdict_of
from toolkit.engine import build
from toolkit.lab.devices import GPU_HEALTH, GPU_PCI
from toolkit.lab.gpufaults import GPU_FAULTS, described
from validation.kinds import parse
from validation.measures.gpu import gpu_health_probe
from validation.model import Judgement, Measurement, Result

pytestmark = [
    pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}"),
    pytest.mark.engines,
]
LAST = "GPU 3 (0000:1e:00.0): "
REASONS = ("driver, heat", "hardware, heat", "hardware, power supply")
FOUND = {
    "gpu-missing": ["NVML shows 3 of 4 GPUs"],
    "ecc": [
        f"{LAST}2 uncorrectable memory errors since its driver was loaded",
        f"{LAST}a memory repair waits for a reset of the GPU",
    ],
    "throttled": [f"{LAST}the hardware lowers its clock because it is too hot at 88 C, 765 of 1530 MHz"],
    "pcie-x8": [f"{LAST}its PCIe link has 8 of 16 lanes"],
    "ecc-off": [f"{LAST}ECC is off"],
    "no-persistence": [f"{LAST}persistence mode is off"],
    "gpu-exclusive": [f"{LAST}its compute mode is exclusive-process, default wanted"],
}


def node(folder: Path, fault: str | None = None, silent: bool = False, **health: int | str) -> dict[str, str]:
    """The environment of a node with four emulated GPUs, the last of which has that fault."""
    folder.mkdir(exist_ok=True)
    gpus = [
        {"uuid": f"GPU-11111111-2222-3333-4444-55555555550{number}", "name": "Emulated V100", "sm_count": 80,
         "memory_bytes": 256 << 20, "pci_bus_id": f"00000000:{bus}:00.0", **({} if silent else GPU_HEALTH), **health}
        for number, bus in enumerate(GPU_PCI)
    ]  # fmt: skip
    (folder / "gpus.json").write_text(json.dumps({"gpus": described(gpus, fault)}))
    return {
        "LD_LIBRARY_PATH": str(built() / "devices"),
        "ELASTIC_AI_EMULATED_GPUS": str(folder / "gpus.json"),
        "ELASTIC_AI_EMULATED_STATE": str(folder / "state"),
    }


def printed(folder: Path, fault: str | None = None, silent: bool = False, **health: int | str) -> Any:
    """What the probe prints on such a node."""
    command = [sys.executable, "-m", "validation.probes", "gpu-health", "{}"]
    environment = node(folder, fault, silent, **health)
    done = subprocess.run(command, env={**os.environ, **environment}, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def judged(said: Any, other: Any) -> dict[str, Judgement]:
    """The judgement of each node of a rehearsal: gpu1 says `other`, gpu2 `said`."""
    topology = lab(("gpu1", "gpu2"), emulated_gpus=4)
    plan = plan_of(topology, ("preflight", "transport"))

    def spoil(m: Measurement) -> Result | None:
        facts = (said if m.nodes == ("gpu2",) else other)["facts"]
        return read(m, facts, 5 if m.id.startswith("gpu-health-after") else 0) if m.kind == "gpu-health" else None

    found = criterion(verdict_of(topology, plan, results_of(plan, spoil)), "pf.gpuhealth")
    return {one.subject: one for one in found.judgements}


@pytest.mark.parametrize("fault", [name for name in GPU_FAULTS if name in FOUND])
def test_a_planted_fault_is_found_and_named_on_its_node_alone(tmp_path: Path, fault: str) -> None:
    healthy, spoilt = printed(tmp_path / "healthy"), printed(tmp_path / "spoilt", fault)
    assert (healthy["error"], spoilt["error"]) == (None, None)
    found = judged(spoilt, healthy)
    assert (found["gpu1"].verdict, found["gpu2"].verdict) == ("pass", "fail")
    assert found["gpu2"].reason == "; ".join(FOUND[fault])


def test_every_fault_of_health_that_the_lab_can_plant_is_looked_for() -> None:
    """Whatever lowers what NVML says of a GPU is one that this criterion has to find."""
    said = {name for name, fault in GPU_FAULTS.items() if fault.missing or set(fault.says) <= set(GPU_HEALTH)}
    assert said <= set(FOUND)


def test_healthy_devices_pass_and_are_labelled(tmp_path: Path) -> None:
    said = printed(tmp_path)
    driver = f"{build.emulated_driver()[0]}-emulated"
    assert (said["tool"], said["tool_version"], said["facts"]["emulated"]) == ("NVML", driver, True)
    _, facts = parse("gpu-health", said)
    assert [gpu.index for gpu in facts.gpus] == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert judged(said, said)["gpu2"].reason.startswith("4 emulated GPUs, whose counters and states are described: ")


def test_ecc_that_is_off_and_persistence_that_is_missing(tmp_path: Path) -> None:
    said = printed(tmp_path, ecc_enabled=0, persistence=0)
    reason = judged(said, said)["gpu2"].reason
    assert (reason.count("ECC is off"), reason.count("persistence mode is off")) == (4, 4)


def test_devices_that_say_nothing_pass_nothing(tmp_path: Path) -> None:
    said = printed(tmp_path, silent=True)
    found = judged(said, said)["gpu2"]
    assert found.verdict == "not-measured"
    assert "GPU 3 (0000:1e:00.0) does not say whether ECC is on" in found.reason


def test_a_node_without_a_driver_says_so(tmp_path: Path) -> None:
    facts = gpu_health_probe.collect(str(tmp_path / "none.so"))
    assert (facts["gpus"], facts["unread"]) == ([], f"no {tmp_path}/none.so: the GPU driver is not installed")


def test_facts_that_are_not_those_of_the_report_are_refused(tmp_path: Path) -> None:
    said = printed(tmp_path)
    said["facts"]["gpus"][3]["pcie_width"] = 8
    with pytest.raises(Exception, match="not those of the report"):
        parse("gpu-health", said)


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        (None, {}),
        ("ecc", {"elastic_ai_gpu_uncorrectable_errors": 2.0, "elastic_ai_gpu_repair_pending": 1.0}),
        ("throttled", {"elastic_ai_gpu_throttled hardware, heat": 1.0}),
        ("pcie-x8", {"elastic_ai_gpu_pcie_lanes_ratio": 0.5}),
    ],
)
def test_monitoring_shows_what_is_planted(tmp_path: Path, fault: str | None, shown: dict[str, float]) -> None:
    """The figures that alerts look at (role monitoring) of each GPU: as planted of the last one, in order elsewhere."""
    environment = node(tmp_path, fault)
    program = [sys.executable, str(ROOT / "roles/monitoring/files/gpu_metrics.py"), "--once", "--output"]
    subprocess.run([*program, str(tmp_path / "gpu.prom")], env={**os.environ, **environment}, check=True)
    found: dict[str, dict[str, float]] = {}
    for name, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", (tmp_path / "gpu.prom").read_text(), re.MULTILINE):
        said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found.setdefault(said["gpu"], {})[f"{name} {said.get('reason', '')}".strip()] = float(value)
    order = {
        "elastic_ai_gpu_uncorrectable_errors": 0.0, "elastic_ai_gpu_repair_pending": 0.0,
        "elastic_ai_gpu_pcie_lanes_ratio": 1.0, "elastic_ai_gpu_pcie_replays": 0.0,
        **{f"elastic_ai_gpu_throttled {why}": 0.0 for why in REASONS},
    }  # fmt: skip
    for gpu, values in found.items():
        wanted = {**order, **shown} if gpu == "3" else order
        assert {name: values.get(name) for name in wanted} == wanted, f"GPU {gpu}"
    assert sorted(found) == ["0", "1", "2", "3"]
    assert all("elastic_ai_gpu_repair_failed" not in values for values in found.values())  # rows: from Ampere on
