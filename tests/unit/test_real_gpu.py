"""What a real H200 said (tests/data/h200), by the toolkit's own probes, parsers and judges."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import gpu_copies_documents as made
from tests.support.tree_case import judged as judged_on_metal
from tests.support.trees import SERVERS
from tests.unit.test_here import one
from tests.unit.test_here_virtual import judged, verdicts
from toolkit.lease.programs.copybench import Bench
from validation.kinds import parse
from validation.probes import nvlinks
from validation.rules.gpus import nvlinks as wired

DATA = Path(__file__).parents[1] / "data/h200"
ASKED: dict[str, dict[str, Any]] = {
    "gpu-copies": {"largest_bytes": 1 << 30, "repeat": 7, "latency_count": 200, "warm_s": 1.0},
    "gpu-load": {"largest_bytes": 1 << 28, "repeat": 6, "copies": 8, "warm_s": 1.0},
    "burn-in": {"seconds": 20, "gpus": 1, "anyway": True},
}


def recorded(kind: str) -> Any:
    return json.loads((DATA / f"{kind}.json").read_text())


def read(kind: str) -> tuple[dict[str, float], Any]:
    """Of each metric the largest sample, and the facts."""
    doc = recorded(kind)
    params = json.loads(doc["command"][-1]) if kind == "gpu-compute" else ASKED.get(kind, {})
    samples, facts = parse(kind, doc, params)
    most: dict[str, float] = {}
    for sample in samples:
        most[sample.metric] = max(sample.value, most.get(sample.metric, 0.0))
    return most, facts


def test_every_document_of_a_probe_is_read_whole() -> None:
    copies, facts = read("gpu-copies")
    assert (facts.holes, facts.gpus[0].lanes) == ([], 16)
    assert 55 < copies["gpu_h2d_gb_s"] < 56
    assert 4100 < copies["gpu_local_gb_s"] < 4300  # 4,215 by another program of 16 copies in a row
    assert read("gpu-load")[0]["gpu_all_d2h_gb_s"] > 55
    compute, facts = read("gpu-compute")
    assert compute["gemm_fp8_tflops"] > 1100
    assert not [device for device in facts.devices if device.fault]
    assert read("burn-in")[0] == {"burn_wrong": 0.0}
    health, facts = read("gpu-health")
    assert health == {"gpus_seen": 1.0}
    assert (facts.gpus[0].slowdown_c, facts.gpus[0].rows_failed, facts.gpus[0].mig) == (89, False, False)


def test_a_driver_that_was_told_to_leave_nvlink_alone_is_known_by_its_parameters(tmp_path: Path) -> None:
    assert nvlinks.disabled(DATA / "driver-params.txt")
    other = tmp_path / "params"
    other.write_text((DATA / "driver-params.txt").read_text().replace("NvLinkDisable: 1", "NvLinkDisable: 0"))
    assert not nvlinks.disabled(other)
    assert not nvlinks.disabled(tmp_path / "none")


@pytest.mark.parametrize("virt", ["docker", "kvm"])
@pytest.mark.parametrize("disabled", [True, False])
def test_a_gpu_that_was_passed_through_without_its_nvlinks_is_not_at_fault(virt: str, disabled: bool) -> None:
    """All 18 answer `not supported`, for the host gave the GPU without its switches. It was judged: 0 of 18 up."""
    said = recorded("facts")["facts"]
    assert said["nvlink"][0]["links"] == []
    assert wired(said["gpu_model"]) is not None
    facts = {key: said[key] for key in ("gpu_model", "nvlink")}
    found = judged(one(1), 1, virt=virt, nvlink_disabled=disabled, **facts)
    assert verdicts(found, "pf.nvlink") == {"not-measured"}


def test_on_bare_metal_it_is_and_the_parameter_is_named(tmp_path: Path) -> None:
    server = SERVERS["XE9680"]
    mute = [{"address": f"0000:{n:02x}:00.0", "links": [], "fabric": None, "emulated": False} for n in range(8)]
    found = judged_on_metal("pf.nvlink", server, tmp_path / "1", nvlink=mute, nvlink_disabled=True)
    assert (found.verdict, "NVreg_NvLinkDisable=1" in found.reason) == ("fail", True)
    found = judged_on_metal("pf.nvlink", server, tmp_path / "2", nvlink=mute)
    assert (found.verdict, "0 of 18 NVLinks up" in found.reason) == ("fail", True)


def test_a_sound_gpu_passes_the_latency_inside_it() -> None:
    """A copy of 4 bytes inside an H200 took 9.9 to 12.2 us in three runs, and the bound was 10."""
    median = read("gpu-copies")[0]["gpu_local_us"]
    assert 12 < median < 12.5
    found = judged(one(1), 1, virt="docker", wait=lambda of: median if of["what"] == "local" else made.latency(of))
    assert verdicts(found, "tr.local") == {"pass"}
    found = judged(one(1), 1, virt="docker", wait=lambda of: 2 * median if of["what"] == "local" else made.latency(of))
    assert verdicts(found, "tr.local") == {"fail"}


class Driver:
    """A driver that returns from a copy inside its GPUs at once, as a real one does."""

    def __init__(self) -> None:
        self.open = False

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            self.open = self.open or name.startswith(("cuMemcpyDtoD", "cuMemcpyPeer"))
            if name in ("cuCtxSynchronize", "cuStreamSynchronize"):
                self.open = False

        return call


@pytest.mark.parametrize("target", [0, 1])
def test_copies_inside_gpus_are_timed_to_their_end(target: int) -> None:
    """By the time of the call alone 64 MiB went at 10,466 GB/s, more than twice what the memory of an H200 can."""
    bench = Bench.__new__(Bench)
    driver: Any = Driver()
    bench.cuda = driver
    block = ctypes.c_uint64(1)
    device: Any = type("Device", (), {"block": block, "second": block, "context": ctypes.c_void_p(1)})
    bench.devices = [device, device]
    bench.copy(0, target, None, 64)
    assert not driver.open
