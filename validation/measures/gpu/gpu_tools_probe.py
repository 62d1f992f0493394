"""NVIDIA's own bandwidth tools, where a node has them: nvbandwidth and p2pBandwidthLatencyTest of the CUDA samples.

Each is looked for in `paths` (its folder, or the program itself), in PATH and in the folders that builds of it end in,
and run as it is: what it printed is kept untouched. A tool that is not there, ends badly or has to be killed costs
nothing but its own figures. GPUs that somebody works on are left alone, unless `anyway`; emulated ones always.

`stdout`: JSON, `tools`: of each name, path ("": not found), returncode, stdout, stderr; `why`: why none was run.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validation.nvml import Nvml, NvmlError
from validation.probes import ProbeDoc
from validation.probes.gpu_host import refusal
from validation.probes.tool import Ran, document, run_tool

NVBANDWIDTH, P2P = "nvbandwidth", "p2pBandwidthLatencyTest"
TESTS = (
    "host_to_device_memcpy_ce",
    "device_to_host_memcpy_ce",
    "device_to_device_memcpy_write_ce",
    "device_local_copy",
)
FOLDERS = (
    "/usr/local/bin",
    "/usr/local/nvbandwidth",
    "/opt/nvbandwidth",
    "/opt/nvidia/nvbandwidth",
    "/usr/local/cuda/bin",
    "/usr/local/cuda/extras/demo_suite",
    "/usr/local/cuda/samples/bin/x86_64/linux/release",
    "/opt/cuda-samples/bin/x86_64/linux/release",
    "/opt/cuda-samples/build/Samples/5_Domain_Specific/p2pBandwidthLatencyTest",
)


@dataclass
class Asked:
    """What is asked of this probe."""

    paths: list[str] = field(default_factory=list)  # folders or programs to look at first
    time_limit_s: float = 300.0  # of each tool, which is killed then
    anyway: bool = False  # run on a GPU that somebody works on


def find(name: str, paths: list[str]) -> str:
    """The program of that name, "" where there is none."""
    places: list[str] = []
    for path in paths:
        places += [str(Path(path).parent)] if Path(path).name == name else [path]
    return shutil.which(name, path=os.pathsep.join([*places, os.environ.get("PATH", ""), *FOLDERS])) or ""


def commands(name: str, path: str) -> list[list[str]]:
    """What to run, and what to run where that is refused: nvbandwidth before 0.5 has no JSON."""
    if name == NVBANDWIDTH:
        return [[path, "-j", "-t", *TESTS], [path, "-t", *TESTS]]
    return [[path]]


def run(name: str, args: Asked) -> dict[str, Any]:
    """What a tool said."""
    path = find(name, args.paths)
    ran = Ran([name], 127, "", "")
    for command in commands(name, path) if path else ():
        ran = run_tool(command, args.time_limit_s)
        if ran.returncode <= 0 or "{" in ran.stdout:  # it ran, or was killed
            break
    said = {"name": name, "path": path, "returncode": ran.returncode}
    return {**said, "stdout": ran.stdout, "stderr": ran.stderr}


def probe(args: Asked) -> ProbeDoc:
    """Both tools, one after the other."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        said: dict[str, Any] = {"tools": [], "why": ""}
        facts: dict[str, Any] = {"driver": "", "emulated": False}
        try:
            with Nvml() as nvml:
                facts = {"driver": nvml.driver(), "emulated": nvml.emulated}
                taken = [refusal(g) for g in nvml.gpus()]
        except NvmlError as fault:
            taken = []
            said["why"] = str(fault)
        refused = "" if args.anyway else "; ".join(filter(None, taken))
        if facts["emulated"]:
            said["why"] = "the GPUs are emulated: no tool of NVIDIA's knows them"
        elif not said["why"] and not refused:
            said["tools"] = [run(name, args) for name in (NVBANDWIDTH, P2P)]
        return Ran(["gpu-tools"], 0, json.dumps(said), ""), facts, refused or None

    return document("gpu-tools", "NVIDIA's tools", measure, lambda _: "")
