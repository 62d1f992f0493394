"""pf.gpuhealth: each fault is named with its GPU, growth is told from what stood before, silence is never fine."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tests.support.gpu_health_case import facts, gpu, read
from tests.support.nvml_driver import Driver, drive
from tests.support.site import BOM, REAL_FACTS, criterion, hardware, lab, plan_of, results_of, verdict_of
from validation import nvml
from validation.measures.gpu import gpu_health_probe
from validation.model import Judgement, Measurement, Result, Topology

FOUR = BOM.model_copy(update={"gpu_count": 4, "gpu_model": "Tesla V100-SXM2-16GB"})
REAL = hardware(("gpu1", "gpu2"), bom=FOUR)
REHEARSED = lab(("gpu1", "gpu2"), emulated_gpus=4)
THIRD = "GPU 3 (0000:1d:00.0): "


def judged(before: Any = None, after: Any = None, topology: Topology = REAL, minutes: int = 30) -> Judgement:
    """Of gpu2, whose readings are these (None: healthy); gpu1 is healthy. `after` False: there is no result of it."""
    plan = plan_of(topology, ("preflight", "transport"))
    healthy = facts(emulated=topology.lab_link is not None)
    said = {"gpu-health.gpu2": before, "gpu-health-after.gpu2": after if after is not None else before}

    def spoil(m: Measurement) -> Result | None:
        if m.kind != "gpu-health":
            return None
        return read(m, said.get(m.id) or healthy, minutes if m.id.startswith("gpu-health-after") else 0)

    own = REAL_FACTS if topology.lab_link is None else {}
    found = results_of(plan, spoil, facts=own)
    kept = [one for one in found if after is not False or one.measurement != "gpu-health-after.gpu2"]
    [mine] = [j for j in criterion(verdict_of(topology, plan, kept), "pf.gpuhealth").judgements if j.subject == "gpu2"]
    return mine


def test_healthy_gpus_pass_and_say_how_long_nothing_grew() -> None:
    found = judged()
    assert (found.verdict, found.reason) == ("pass", "4 GPUs: none with a fault; in 30 minutes nothing grew")
    assert "GPU 0 (0000:1a:00.0): 34 C, 135 MHz, 42 W, PCIe x16, 0 uncorrectable errors" in (found.text or "")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ecc": False, "ecc_uncorrected": None, "ecc_pending": False}, "ECC is off"),
        ({"ecc_pending": False}, "ECC will be off after the next reset"),
        ({"ecc_uncorrected": 2}, "2 uncorrectable memory errors since its driver was loaded"),
        ({"pages_pending": True}, "a memory repair waits for a reset of the GPU"),
        ({"pages_pending": None, "rows_pending": True}, "a memory repair waits for a reset of the GPU"),
        ({"channel_repair_pending": True}, "the repair of a memory channel waits for a reset of the GPU"),
        ({"tpc_repair_pending": True}, "the repair of a TPC waits for a reset of the GPU"),
        ({"memory_unrepairable": True}, "it has memory that cannot be repaired: replace it"),
        ({"rows_failed": True}, "its memory could not be repaired (row remapping failed): replace it"),
        ({"pages_retired": 60}, "60 pages of its memory are retired: replace it"),
        ({"rows_uncorrected": 513}, "513 rows of its memory are remapped for uncorrectable errors: replace it"),
        (
            {"state": {"throttle_reasons": ["hw_slowdown", "hw_thermal_slowdown"], "temperature_c": 88}},
            "the hardware lowers its clock because it is too hot at 88 C, 135 of 1530 MHz",
        ),
        ({"state": {"throttle_reasons": ["hw_power_brake_slowdown"]}}, "the power supply asked the hardware"),
        ({"state": {"throttle_reasons": ["sw_thermal_slowdown"]}}, "the driver lowers its clock because it is too hot"),
        ({"state": {"temperature_c": 87}}, "it is at 87 C, and lowers its clock from 87 C on"),
        ({"pcie_width": 8}, "its PCIe link has 8 of 16 lanes"),
        ({"pcie_width": 8, "pcie_max_width": 8}, "PCIe lanes at most 8, others of its model have 16 (7)"),
        ({"persistence": False}, "persistence mode is off"),
        ({"compute_mode": "exclusive-process"}, "its compute mode is exclusive-process, default wanted"),
        ({"mig": True, "mig_pending": True}, "MIG is on, and the inventory does not declare it (gpu_mig)"),
        ({"mig": False, "mig_pending": True}, "MIG will be on after the next reset"),
        ({"set_mhz": 945}, "its clock is set to 945 MHz, 1312 is its default"),
        ({"vbios": "88.00.18.00.01"}, "VBIOS 88.00.18.00.01, others of its model have 88.00.43.00.01 (7)"),
    ],
)
def test_a_fault_is_named_with_its_gpu_and_no_other_is_suspected(changes: dict[str, Any], said: str) -> None:
    found = judged(facts(**changes))
    assert found.verdict == "fail"
    assert f"{THIRD}{said}" in found.reason
    assert found.reason.count("GPU ") == 1, found.reason


def test_gpus_that_are_not_there() -> None:
    assert judged(facts(3)).reason == "NVML shows 3 of 4 GPUs"
    lost = {**facts(3), "lost": ["GPU 3: NVML error 15"]}
    assert (
        judged(lost).reason
        == "NVML shows 3 of 4 GPUs; GPU 3: NVML error 15; GPU 3: NVML error 15 at the end of the run"
    )
    assert judged(facts(), facts(3)).reason == f"{THIRD[:-2]} is gone at the end of the run"
    assert judged(facts(5)).reason.startswith("NVML shows 5 GPUs, 4 declared")


@pytest.mark.parametrize(
    ("before", "after", "verdict", "said"),
    [
        ({"ecc_uncorrected_ever": 3}, {"ecc_uncorrected_ever": 4}, "fail", "1 uncorrectable memory errors more"),
        ({"pages_retired": 2}, {"pages_retired": 3}, "fail", "1 retired pages more during the run"),
        ({"rows_uncorrected": 0}, {"rows_uncorrected": 1}, "fail", "1 rows remapped for uncorrectable errors more"),
        ({"pages_retired": 2}, {"pages_retired": 2}, "pass", "Reported, not judged: GPU 3 (0000:1d:00.0): 2 pages"),
        ({"ecc_corrected": 1}, {"ecc_corrected": 9}, "pass", "9 corrected memory errors"),
        ({"pcie_replays": 5}, {"pcie_replays": 245}, "pass", "nothing grew"),  # 8 in a minute, in 30 minutes
        ({"pcie_replays": 5}, {"pcie_replays": 246}, "fail", "241 PCIe replays in 30.0 minutes of the run"),
        ({"pcie_replays": 5}, {"pcie_replays": 4}, "not-measured", "PCIe replays fell from 5 to 4: it was reset"),
        ({"pcie_replays": 5}, {"pcie_replays": None}, "not-measured", "PCIe replays are in one of the two readings"),
        ({}, {"state": {"throttle_reasons": ["hw_thermal_slowdown"]}}, "fail", "at the end of the run"),
        ({}, {"state": {"throttle_reasons": ["sw_power_cap"]}}, "pass", "none with a fault"),
        ({}, {"state": {"throttle_reasons": ["0x8000"]}}, "pass", "reasons for its clock without a name here: 0x8000"),
    ],
)  # fmt: skip
def test_what_counts_is_judged_by_its_growth(before: Any, after: Any, verdict: str, said: str) -> None:
    found = judged(facts(**before), facts(**after))
    assert (found.verdict, said in found.reason) == (verdict, True), found.reason


@pytest.mark.parametrize(
    "key", ["ecc", "persistence", "compute_mode", "pcie_width", "pcie_max_width", "ecc_uncorrected", "pages_pending"]
)
def test_what_a_gpu_does_not_say_is_not_known(key: str) -> None:
    found = judged(facts(**{key: None}))
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert found.reason.startswith(f"{THIRD[:-2]} does not say ")


def test_a_gpu_that_does_not_say_why_it_throttles_is_not_known() -> None:
    found = judged(facts(state={"throttle_reasons": None}))
    assert (found.verdict, found.reason) == (
        "not-measured",
        f"{THIRD[:-2]} does not say why its clocks are where they are",
    )


@pytest.mark.parametrize(
    "changes", [{"state": {"throttle_reasons": None}}, {"ecc": None}, {"pcie_width": None}, {"pages_pending": None}]
)
def test_what_a_gpu_no_longer_says_after_the_load_is_not_known(changes: dict[str, Any]) -> None:
    found = judged(facts(), facts(**changes))
    assert (found.verdict, found.reason_code) == ("not-measured", "missing-metric")
    assert found.reason.startswith(f"{THIRD[:-2]} does not say ")
    assert found.reason.endswith(" at the end of the run")


def test_without_nvml_or_a_second_reading_nothing_is_passed() -> None:
    none = {**facts(0), "unread": "no libnvidia-ml.so.1: the GPU driver is not installed"}
    assert judged(none).reason == "its GPUs cannot be read: no libnvidia-ml.so.1: the GPU driver is not installed"
    assert judged(None, False).verdict == "not-measured"
    assert judged(facts(ecc_uncorrected=1), False).verdict == "fail"
    gone = {**facts(0), "unread": "nvmlInit_v2: NVML error 9; does nvidia-smi work?"}
    assert judged(facts(), gone).verdict == "fail"


def test_mig_is_as_declared() -> None:
    divided = hardware(("gpu1", "gpu2"), bom=FOUR, mig=True)
    on = {**facts(), "gpus": [gpu(index, mig=True, mig_pending=True) for index in range(4)]}
    assert judged(on, topology=divided).verdict == "pass"
    assert f"{THIRD}MIG is off, on declared" in judged(facts(), topology=divided).reason


def test_emulated_devices_are_judged_in_a_rehearsal_alone() -> None:
    assert judged(topology=REHEARSED).reason.startswith("4 emulated GPUs, whose counters and states are described: ")
    assert judged(facts(3, emulated=True), topology=REHEARSED).reason == "NVML shows 3 of 4 GPUs"
    found = judged(facts(emulated=True))
    assert (found.verdict, found.reason) == ("not-measured", "the GPUs are emulated")


def test_nodes_without_gpus_are_not_asked() -> None:
    for topology in (hardware(), lab()):
        plan = plan_of(topology, ("preflight", "transport"))
        assert not [m for m in plan.measurements if m.kind == "gpu-health"]
    ids = [m.id for m in plan_of(REAL, ("preflight", "transport")).measurements if m.kind == "gpu-health"]
    assert ids == ["gpu-health.gpu1", "gpu-health.gpu2", "gpu-health-after.gpu1", "gpu-health-after.gpu2"]


class Repairing(Driver):
    """A driver as far as those from 580 and 590 on tell of repairs; versions and sizes as in nvml.h."""

    def __init__(self, *repairs: int) -> None:
        self.repairs = repairs

    def nvmlDeviceGetRepairStatus(self, _: Any, status: Any) -> int:
        assert status._obj.version == 0x100000C
        status._obj.bChannelRepairPending, status._obj.bTpcRepairPending = self.repairs[:2]
        return 0

    def nvmlDeviceGetUnrepairableMemoryFlag_v1(self, _: Any, status: Any) -> int:
        ctypes.memmove(status, ctypes.byref(ctypes.c_uint(self.repairs[2])), 4)
        return 0


@pytest.mark.parametrize("repairs", [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), None])
def test_repairs_are_read_of_drivers_that_tell_them(
    monkeypatch: pytest.MonkeyPatch, repairs: tuple[int, int, int] | None
) -> None:
    drive(monkeypatch, Repairing(*repairs) if repairs else Driver())
    with nvml.Nvml() as opened:
        said = gpu_health_probe.one(opened.gpu(0))
    told = tuple(said[key] for key in ("channel_repair_pending", "tpc_repair_pending", "memory_unrepairable"))
    assert told == (tuple(map(bool, repairs)) if repairs else (None, None, None))
