"""The probe gpu-tools: programs are found, run and their words kept, a busy or emulated GPU is left alone.

NVML is a compiled stand-in and the tools are programs that print what tests/data/gpu-tools has: no GPU was at hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import ROOT, built, describe
from tests.support.gpu_tools_documents import DATA
from toolkit.engine import build
from validation.kinds import parse
from validation.measures.gpu import gpu_tools_probe
from validation.measures.gpu.tools import GpuToolsFacts

pytestmark = [
    pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}"),
    pytest.mark.engines,
]
#: A driver with one GPU, which nobody uses, or one process does.
NVML = r"""
typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } info;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **to) { *to = (void *)1; return 0; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { to[0] = '4'; to[1] = 0; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *room, info *to) {
    *room = BUSY; to[0] = (info){4194304, 1ull << 30, 0, 0}; return 0;
}
"""


def driver(folder: Path, busy: int = 0) -> dict[str, str]:
    """Where the stand-in is found."""
    (folder / "nvml.c").write_text(NVML)
    command = ["cc", "-shared", "-fPIC", f"-DBUSY={busy}", "-o", str(folder / "libnvidia-ml.so.1"), "nvml.c"]
    subprocess.run(command, check=True, cwd=folder)
    return {"LD_LIBRARY_PATH": str(folder)}


def program(folder: Path, name: str, script: str) -> None:
    """A program in the place of a tool."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def probed(environment: dict[str, str], **asked: Any) -> dict[str, Any]:
    """What the probe says in a process of its own."""
    command = [sys.executable, "-m", "validation.probes", "gpu-tools", json.dumps(asked)]
    path = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env={**os.environ, **path, **environment}, capture_output=True, text=True, check=False
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def read(document: dict[str, Any]) -> GpuToolsFacts:
    found = parse("gpu-tools", document)[1]  # type: ignore[arg-type]
    assert isinstance(found, GpuToolsFacts)
    return found


def test_programs_are_found_by_a_given_path_and_their_words_are_read(tmp_path: Path) -> None:
    there = driver(tmp_path)
    asked = f"[ \"$*\" = '-j -t {' '.join(gpu_tools_probe.TESTS)}' ] || exit 9"
    program(tmp_path / "a", gpu_tools_probe.NVBANDWIDTH, f"{asked}\ncat {DATA}/constructed-nvbandwidth-0.8.json")
    program(tmp_path / "b", gpu_tools_probe.P2P, f"cat {DATA}/constructed-p2pBandwidthLatencyTest.txt")
    found = read(probed(there, paths=[str(tmp_path / "a"), str(tmp_path / "b" / gpu_tools_probe.P2P)]))
    assert [(tool.trouble, len(tool.cells)) for tool in found.tools] == [("", 8), ("", 6)]
    assert [tool.path for tool in found.tools] == [
        str(tmp_path / "a/nvbandwidth"),
        str(tmp_path / "b" / gpu_tools_probe.P2P),
    ]
    assert not found.emulated


def test_an_old_nvbandwidth_is_asked_for_text_and_one_that_hangs_is_killed(tmp_path: Path) -> None:
    there = driver(tmp_path)
    old = f'[ "$1" = -t ] || {{ echo "ERROR: Invalid Arguments"; exit 1; }}\ncat {DATA}/constructed-nvbandwidth-0.8.txt'
    program(tmp_path / "a", gpu_tools_probe.NVBANDWIDTH, old)
    program(tmp_path / "a", gpu_tools_probe.P2P, "exec sleep 60")
    found = read(probed(there, paths=[str(tmp_path / "a")], time_limit_s=0.5))
    assert [len(tool.cells) for tool in found.tools] == [8, 0]
    assert "ended with signal 9" in found.tools[1].trouble


def test_a_node_without_them_says_so_and_one_that_is_busy_is_left_alone(tmp_path: Path) -> None:
    found = read(probed(driver(tmp_path)))
    assert [tool.path for tool in found.tools] == ["", ""]
    program(
        tmp_path / "a",
        gpu_tools_probe.NVBANDWIDTH,
        f"touch {tmp_path}/ran; cat {DATA}/constructed-nvbandwidth-0.8.json",
    )
    busy = driver(tmp_path, busy=1)
    refused = probed(busy, paths=[str(tmp_path / "a")])
    assert "in use by process 4194304" in refused["error"]
    assert not (tmp_path / "ran").exists()
    assert read(probed(busy, paths=[str(tmp_path / "a")], anyway=True)).tools[0].cells


def test_emulated_gpus_and_a_node_without_a_driver_run_nothing(tmp_path: Path) -> None:
    devices = describe(tmp_path)
    emulated = read(probed({**devices, "LD_LIBRARY_PATH": str(built() / "devices")}))
    assert (emulated.emulated, emulated.tools) == (True, ())
    assert "emulated" in emulated.why
    (tmp_path / "libnvidia-ml.so.1").write_text("")
    none = read(probed({"LD_LIBRARY_PATH": str(tmp_path)}))
    assert (none.tools, "the GPU driver is not installed" in none.why) == ((), True)
