"""What a program of a lease's client is told of its GPUs, and programs that ask it by NVML and nvidia-smi."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.engine_run import MIB, ROOT, UUIDS, built

HALF: dict[str, Any] = {
    "uuid": UUIDS[0],
    "emulated": False,
    "memory_bytes": 40_000 * MIB,
    "context_bytes": 500 * MIB,
    "name": "NVIDIA H100 80GB HBM3",
    "server": "gpu1",
    "server_index": 3,
    "total_bytes": 81_559 * MIB,
    "part": "1/2",
    "capability": "9.0",
    "driver": "580.126.20",
    "cuda": 13000,
}
WHOLE = {
    **HALF,
    "uuid": UUIDS[1],
    "memory_bytes": 16_384 * MIB,
    "total_bytes": 16_384 * MIB,
    "name": "Tesla V100-SXM2-16GB",
    "server": "gpu2",
    "server_index": 0,
    "part": "1",
    "capability": "7.0",
    "driver": "570.9.1",
    "cuda": 12080,
}


def environment(gpus: object = (HALF, WHOLE), **more: str) -> dict[str, str]:
    """Of a program of lease 42 with these GPUs; a text is taken as it is."""
    told = gpus if isinstance(gpus, str) else json.dumps(gpus)
    client = built() / "client"
    found = {"PATH": f"{client}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": f"{client}/lib", "PYTHONPATH": str(ROOT)}
    return {**found, "TZ": "UTC", "ELASTIC_AI_LEASE": "42", "ELASTIC_AI_GPUS": told, **more}


def use_file(folder: Path, *lines: str) -> dict[str, str]:
    """What their servers last said of their use; a line for each GPU."""
    path = folder / "use"
    path.write_text("".join(f"{line}\n" for line in lines))
    return {"ELASTIC_AI_GPUS_USE": str(path)}


def asked(script: str, told: dict[str, str]) -> Any:
    """What a program of Python, to which pynvml is initialised, says as its last line."""
    prelude = """
import json, os, sys, pynvml
def said(value): print(json.dumps(value), flush=True)
def code(call, *given):
    try: call(*given)
    except pynvml.NVMLError as fault: return fault.value
    return 0
pynvml.nvmlInit()
gpus = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
"""
    done = subprocess.run(
        [sys.executable, "-c", prelude + script], env=told, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def smi(*options: str, told: dict[str, str] | None = None, program: str = "nvidia-smi") -> tuple[int, str, str]:
    """Exit code, output and errors of a run of nvidia-smi."""
    env = environment() if told is None else told
    path = next((f"{p}/{program}" for p in env["PATH"].split(":") if os.access(f"{p}/{program}", os.X_OK)), program)
    done = subprocess.run([path, *options], env=env, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout, done.stderr
