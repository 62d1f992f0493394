"""What torch asks NVML by itself, of a lease's library: its counting without a context, memory in use, utilisation."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pynvml

from tests.support import torch_env
from tests.support.engine_run import MIB, UUIDS
from tests.support.leased_nvml import HALF, WHOLE, environment, use_file

ASK = """
import json, sys
import torch
cuda = torch.cuda
print(json.dumps([cuda._raw_device_count_nvml(), cuda._raw_device_uuid_nvml(), cuda._device_count_nvml()]))
"""
USE = """
import json, sys
import torch
torch._utils._get_current_device_index = lambda: 0  # of the plug-in, which is not here
def told(ask, *given):
    try: return ask(*given)
    except Exception as fault: return f"{type(fault).__name__}: {fault}"
print(json.dumps([[told(ask, 0), told(ask, 1)] for ask in (torch.cuda.device_memory_used, torch.cuda.utilization,
                  torch.cuda.memory_usage, torch.cuda.temperature, torch.cuda.power_draw, torch.cuda.clock_rate)]
                 + [torch.cuda.list_gpu_processes(0)]))
"""


def said(script: str, told: dict[str, str]) -> Any:
    """By a Python that has torch and NVIDIA's binding."""
    folder = Path(pynvml.__file__).parent
    binding = told | {"PYTHONPATH": "", "PYNVML": str(folder / "pynvml.py")}
    first = (
        "import importlib.util as u, os, sys; s = u.spec_from_file_location('pynvml', os.environ['PYNVML']); "
        "sys.modules['pynvml'] = m = u.module_from_spec(s); s.loader.exec_module(m)\n"
    )
    done = subprocess.run(
        [torch_env.python(), "-c", first + script], env=binding, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_torch_counts_the_lease_without_a_context() -> None:
    assert said(ASK, environment()) == [2, UUIDS, 2]
    assert said(ASK, environment(CUDA_VISIBLE_DEVICES="1"))[2] == 1
    assert said(ASK, environment(CUDA_VISIBLE_DEVICES=UUIDS[0]))[2] == 1
    assert said(ASK, environment(CUDA_VISIBLE_DEVICES=""))[2] == 0


def test_torch_tells_the_use_that_the_server_said(tmp_path: Path) -> None:
    told = environment([HALF, WHOLE], **use_file(tmp_path, f"{1000 * MIB} -1 -1", f"{384 * MIB} 93 40"))
    *use, processes = said(USE, told)
    lacks = "NVMLError_NotSupported: Not Supported"
    assert use == [[1000 * MIB, 384 * MIB], [lacks, 93], [lacks, 40], *[[lacks, lacks]] * 3]
    assert processes == "GPU:0\nno processes are running"
