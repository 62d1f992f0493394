"""The probes' reader of NVML on emulated devices, and on a compiled stand-in for what those never say.

No GPU was at hand: that NVIDIA's own library answers so is read in nvml.h and not measured.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import ROOT, UUIDS, built, describe
from toolkit.engine import build
from toolkit.lab.devices import GPU_HEALTH
from toolkit.lab.gpufaults import GPU_FAULTS
from validation import nvml

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
READ = """
import json, sys
from validation.nvml import Nvml, NvmlError
try:
    with Nvml(*sys.argv[1:]) as nvml:
        print(json.dumps({"driver": nvml.driver(), "emulated": nvml.emulated, "gpus": [
            {"index": g.index, "uuid": g.uuid, "name": g.name, "address": g.address, "memory": g.memory,
             "processes": g.processes(), "state": g.state().document(), "ecc": g.said("EccMode")}
            for g in nvml.gpus()]}))
except NvmlError as fault:
    print(json.dumps(str(fault)))
"""
#: One GPU of a driver that knows the older names alone, lists more processes than there is room for at first, and keeps
#: power and utilisation to itself; it throttles for a reason that has no name here.
STAND_IN = r"""
typedef void *nvmlDevice_t;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } info;
int nvmlInit_v2(void) { return FAIL_INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *to) { *to = (void *)1; return FAIL_GPU; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { to[0] = '4'; to[1] = 0; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *to) { *to = 0x8048; return 0; }
int nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *to) { *to = 77; return 3; }
int nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *to) { *to = 250500; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t d, unsigned *room, info *to) {
    unsigned had = *room; *room = 65;
    if (had < 65) return 7;
    for (unsigned k = 0; k < 65; k++) to[k] = (info){100 + k, k ? k : ~0ull, 0, 0};
    return 0;
}
"""


def read(environment: dict[str, str], *library: str) -> Any:
    """What the reader says in a process of its own."""
    command = [sys.executable, "-c", READ, *library]
    done = subprocess.run(command, env={**os.environ, **environment}, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def emulated(folder: Path, **described: int | str) -> Any:
    """The same of two emulated GPUs."""
    return read({"LD_LIBRARY_PATH": str(built() / "devices"), **describe(folder, **described)})


def compiled(folder: Path, text: str = STAND_IN, **flags: int) -> Path:
    """The stand-in as a shared library."""
    library, cc = folder / "libnvidia-ml.so.1", shutil.which("cc")
    assert cc is not None
    defined = [f"-D{name}={value}" for name, value in {"FAIL_INIT": 0, "FAIL_GPU": 0, **flags}.items()]
    subprocess.run([cc, "-shared", "-fPIC", "-w", "-xc", *defined, "-o", str(library), "-"], input=text, text=True,
                   check=True)  # fmt: skip
    return library


def test_who_the_gpus_are_and_what_they_are_doing(tmp_path: Path) -> None:
    found = emulated(tmp_path, **GPU_HEALTH)
    assert (found["driver"], found["emulated"]) == (f"{build.emulated_driver()[0]}-emulated", True)
    assert [(gpu["index"], gpu["uuid"], gpu["address"]) for gpu in found["gpus"]] == [
        (0, UUIDS[0], "0000:10:00.0"),
        (1, UUIDS[1], "0000:11:00.0"),
    ]
    first = found["gpus"][0]
    assert (first["processes"], first["memory"], first["ecc"]) == ({}, [256 << 20, 0], [1, 1])
    assert first["state"] == {
        "sm_mhz": 1530, "sm_max_mhz": 1530, "memory_mhz": 877, "memory_max_mhz": 877,
        "power_w": None, "power_limit_w": 300.0, "temperature_c": 40,
        "utilisation_percent": 0, "memory_utilisation_percent": 0, "throttle_reasons": ["gpu_idle"],
    }  # fmt: skip


def test_a_throttled_gpu_says_why(tmp_path: Path) -> None:
    state = emulated(tmp_path, **GPU_HEALTH | GPU_FAULTS["throttled"].says)["gpus"][0]["state"]
    assert state["throttle_reasons"] == ["hw_slowdown", "hw_thermal_slowdown"]
    assert (state["sm_mhz"], state["temperature_c"]) == (765, 88)


def test_what_is_not_said_is_none_and_never_zero(tmp_path: Path) -> None:
    state = emulated(tmp_path)["gpus"][0]["state"]
    measured = {"utilisation_percent", "memory_utilisation_percent"}  # emulated devices count their copies
    assert {key for key, value in state.items() if value is not None} == measured


def test_an_older_driver_and_a_busy_gpu(tmp_path: Path) -> None:
    found = read({}, str(compiled(tmp_path)))
    [gpu] = found["gpus"]
    assert (found["driver"], found["emulated"]) == ("4", False)
    assert (gpu["uuid"], gpu["address"], gpu["memory"], gpu["ecc"]) == ("", "", None, None)
    assert gpu["processes"] == {str(100 + k): k for k in range(65)}
    assert (gpu["state"]["power_w"], gpu["state"]["power_limit_w"]) == (None, 250.5)
    assert gpu["state"]["throttle_reasons"] == ["0x8000", "hw_slowdown", "hw_thermal_slowdown"]


def test_nvml_that_does_not_answer_is_told_in_words(tmp_path: Path) -> None:
    none = tmp_path / "none.so"
    assert read({}, str(none)) == f"no {none}: the GPU driver is not installed"
    said = "nvmlInit_v2: NVML error 9; the kernel module of the driver is not loaded: modprobe nvidia"
    assert read({}, str(compiled(tmp_path, FAIL_INIT=9))) == said
    assert read({}, str(compiled(tmp_path, FAIL_INIT=999))) == "nvmlInit_v2: NVML error 999; does nvidia-smi work?"
    assert read({}, str(compiled(tmp_path, FAIL_GPU=15))) == "GPU 0: NVML error 15, it has fallen off the bus"


def test_a_gpu_that_is_lost_after_its_handle_was_had_is_not_merely_silent(tmp_path: Path) -> None:
    lost = STAND_IN.replace("*to = 77; return 3;", "return 15;")
    assert read({}, str(compiled(tmp_path, lost))) == "GPU 0: NVML error 15, it has fallen off the bus"


#: As drivers since R510 have them; 900 MiB are the driver's own. In the first of R535 _v3 writes 32 bytes for each.
NEWER = (
    STAND_IN
    + r"""
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory2;
int nvmlDeviceGetMemoryInfo(nvmlDevice_t d, unsigned long long *to) {
    to[0] = 16ull << 30; to[2] = 908ull << 20; to[1] = to[0] - to[2]; return 0;
}
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, memory2 *to) {
    if (to->version != 0x02000028 || to->version != (sizeof *to | 2 << 24)) return 25;
    to->total = 16ull << 30; to->reserved = 900ull << 20; to->used = 8ull << 20; return 0;
}
typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; unsigned long long secret; } info3;
int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *room, info3 *to) {
    *room = 65;
    for (unsigned k = 0; k < 3; k++) to[k] = (info3){100 + k, k, 0, 0, 0};
    return 0;
}
"""
)


def test_what_the_driver_keeps_for_itself_is_nobodys_work(tmp_path: Path) -> None:
    [gpu] = read({}, str(compiled(tmp_path, NEWER)))["gpus"]
    assert gpu["memory"] == [16 << 30, 8 << 20]
    [gpu] = read({}, str(compiled(tmp_path, NEWER.replace("MemoryInfo_v2", "None"))))["gpus"]
    assert gpu["memory"] == [16 << 30, 908 << 20]


def test_processes_are_read_where_one_version_of_the_function_has_a_structure_of_its_own(tmp_path: Path) -> None:
    [gpu] = read({}, str(compiled(tmp_path, NEWER)))["gpus"]
    assert gpu["processes"] == {str(100 + k): k for k in range(65)}


def test_every_reason_has_its_name() -> None:
    assert nvml.reason_names(0) == ()
    assert nvml.reason_names(0x7FF) == tuple(sorted(nvml.REASONS.values()))
    assert nvml.reason_names(0x600) == ("board_limit", "reliability")
    assert nvml.reason_names(0x8800 | 0x40) == ("0x800", "0x8000", "hw_thermal_slowdown")  # said, and one by one
