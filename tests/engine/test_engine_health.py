"""Emulated devices' link and health in NVML: what the description says and nothing else; planted faults show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import describe, local
from toolkit.engine import build
from toolkit.lab.devices import GPU_HEALTH
from toolkit.lab.gpufaults import GPU_FAULTS

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
#: By the names and numbers of nvml.h: the figures of GPU 0, each with its return value where that is not 0.
READ = """
from ctypes import c_uint, c_ulonglong
nvml = ctypes.CDLL("libnvidia-ml.so.1"); assert nvml.nvmlInit_v2() == 0
h = c_void_p(); assert nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(h)) == 0
def get(name, *before, of=c_uint, count=1):
    values = [of(99) for _ in range(count)]
    status = getattr(nvml, name)(h, *before, *(byref(v) for v in values))
    return {"error": status} if status else [v.value for v in values] if count > 1 else values[0].value
d = "nvmlDeviceGet"
found = {
    "link": [get(d + n) for n in ("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration",
                                  "MaxPcieLinkWidth", "PcieReplayCounter")],
    "ecc": [get(d + "EccMode", of=c_int, count=2),
            *(get(d + "TotalEccErrors", kind, counter, of=c_ulonglong) for kind in (0, 1) for counter in (0, 1))],
    "pending": get(d + "RetiredPagesPendingStatus", of=c_int),
    "rows": get(d + "RemappedRows", count=4),
    "degrees": [get(d + "Temperature", 0), *(get(d + "TemperatureThreshold", kind) for kind in (0, 1))],
    "reasons": [get(d + n, of=c_ulonglong) for n in ("CurrentClocksThrottleReasons", "CurrentClocksEventReasons")],
    "clocks": [get(d + name, kind) for name in ("ClockInfo", "MaxClockInfo") for kind in (1, 2)],
    "power": [get(d + n) for n in ("PowerUsage", "EnforcedPowerLimit")],
    "persistence": get(d + "PersistenceMode", of=c_int),
    "wrong": [get(d + "Temperature", 1), get(d + "TotalEccErrors", 2, 0, of=c_ulonglong), get(d + "ClockInfo", 3)],
}
room, addresses = c_uint(8), (c_ulonglong * 8)()
status = nvml.nvmlDeviceGetRetiredPages(h, 1, byref(room), addresses)
found["pages"] = {"error": status} if status else room.value
said(found)
"""
UNSAID = {"error": 3}  # NVML_ERROR_NOT_SUPPORTED


def read(folder: Path, **described: int | str) -> dict[str, Any]:
    found, _ = local(folder, describe(folder, **described)).run(READ)
    return dict(found)


def test_nvml_says_what_is_described(tmp_path: Path):
    healthy = read(tmp_path, **GPU_HEALTH)
    assert healthy == {
        "link": [3, 16, 3, 16, 0],
        "ecc": [[1, 1], 0, 0, 0, 0],
        "pending": 0,
        "rows": UNSAID,
        "degrees": [40, 90, 85],
        "reasons": [1, 1],
        "clocks": [1530, 877, 1530, 877],
        "power": [UNSAID, 300_000],
        "persistence": 1,
        "wrong": [{"error": 2}, {"error": 2}, UNSAID],
        "pages": 0,
    }


def test_what_is_not_described_is_not_supported(tmp_path: Path):
    found = read(tmp_path)
    wrong = found.pop("wrong")
    assert wrong == [{"error": 2}, {"error": 2}, UNSAID]
    values = [v for value in found.values() for v in (value if isinstance(value, list) else [value])]
    assert values == [UNSAID] * len(values)


def test_ecc_that_is_off_counts_nothing(tmp_path: Path):
    assert read(tmp_path, **GPU_HEALTH | {"ecc_enabled": 0})["ecc"] == [[0, 0], *[UNSAID] * 4]


def test_newer_generations_remap_rows_and_retire_no_pages(tmp_path: Path):
    newer = GPU_HEALTH | {"rows_remapped": 3, "repair_pending": 1, "compute_capability": "9.0"}
    found = read(tmp_path, **newer)
    assert (found["rows"], found["pages"], found["pending"]) == ([0, 3, 1, 0], UNSAID, UNSAID)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("ecc", {"ecc": [[1, 1], 0, 0, 2, 2], "pages": 1, "pending": 1}),
        ("throttled", {"degrees": [88, 90, 85], "reasons": [0x48, 0x48], "clocks": [765, 877, 1530, 877]}),
        ("pcie-x8", {"link": [3, 8, 3, 16, 0]}),
    ],
)
def test_a_planted_fault_shows_and_nothing_else_changes(tmp_path: Path, kind: str, shown: dict[str, Any]):
    healthy = read(tmp_path, **GPU_HEALTH)
    assert read(tmp_path, **GPU_HEALTH | GPU_FAULTS[kind].says) == healthy | shown


@pytest.mark.parametrize("value", [-1, "x", "8x", "", 1 << 64])
def test_a_figure_that_is_no_number_is_refused(tmp_path: Path, value: int | str):
    devices = describe(tmp_path, pcie_width=value)
    assert local(tmp_path, devices).run("said([code(cuda.cuInit, 0)])")[0] == [100]


@pytest.mark.parametrize(("percent", "code"), [(0, 0), (99, 0), (100, 100)])
def test_a_gpu_that_never_ends_a_copy_is_refused(tmp_path: Path, percent: int, code: int):
    devices = describe(tmp_path, slow_percent=percent)
    assert local(tmp_path, devices).run("said([code(cuda.cuInit, 0)])")[0] == [code]


COPIES = """
start(); block = alloc(1 << 20); out = (ctypes.c_ubyte * (1 << 20))(); back = (ctypes.c_ubyte * (1 << 20))()
def wrong(size):
    cuda.cuMemcpyHtoD_v2(block, out, c_size_t(size)); cuda.cuMemcpyDtoH_v2(back, block, c_size_t(size))
    return sum(back[:size])
took = []
for _ in range(20):
    began = time.perf_counter(); cuda.cuMemcpyHtoD_v2(block, out, c_size_t(1 << 20))
    took.append(time.perf_counter() - began)
said([wrong(4095), wrong(4096), sorted(took)[10]])
"""


def test_bits_are_turned_round_and_copies_are_slow_as_described(tmp_path: Path):
    small, large, took = local(tmp_path, describe(tmp_path)).run(COPIES)[0]
    assert (small, large) == (0, 0)
    slow = local(tmp_path, describe(tmp_path, wrong_bits=2, slow_percent=95)).run(COPIES)[0]
    assert slow[:2] == [0, 2]
    assert slow[2] > 5 * took  # 20 times, on a machine that does nothing else


def test_an_instance_of_a_gpu_says_nothing_of_its_health(tmp_path: Path):
    devices = describe(tmp_path, mig="1,1", **GPU_HEALTH)
    script = """
nvml = ctypes.CDLL("libnvidia-ml.so.1"); assert nvml.nvmlInit_v2() == 0
h, one, n = c_void_p(), c_void_p(), ctypes.c_uint()
nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(h)); nvml.nvmlDeviceGetMigDeviceHandleByIndex(h, 0, byref(one))
said([nvml.nvmlDeviceGetTemperature(device, 0, byref(n)) for device in (h, one)])
"""
    assert local(tmp_path, devices).run(script)[0] == [0, 3]
