"""Programs of the package index by the reference engine, on emulated GPUs: what they can do, and how the rest fails.

Numba and tinygrad, in an environment of their own, which pip makes from pinned versions (0.9 GB). An emulated device
runs the toolkit's kernels alone, so that what these compile is refused by it, in their own words.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_kernels import CHECKS
from tests.support.engine_run import MIB, Client, Server, client_of, describe, server
from toolkit.engine import build, host_modules

LACKS = build.missing_tools() or host_modules.lacks_compiler()
pytestmark = [pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}"), pytest.mark.rest]
PINNED = ("numba==0.68.1", "numba-cuda[cu12]==0.30.4", "cuda-core==1.2.2", "numpy==2.4.6", "tinygrad==0.14.0")
LIMIT_S = 300  # Numba's import and first compilation take half a minute of a busy machine
NUMBA = """
import json, os, signal, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from numba import cuda
numbers = np.arange(1 << 16, dtype=np.float32)
def said(value):
    print(json.dumps(value))
def failing(call):
    try:
        call()
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"
    return ""
context = cuda.current_context()
"""


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    """An interpreter that has them."""
    if sys.version_info < (3, 11):
        pytest.skip("this machine's Python is older than what they are made for")
    with tempfile.TemporaryDirectory(prefix="eai-others-", dir="/var/tmp") as folder:  # not in memory
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        words = [f"{folder}/bin/pip", "install", "--quiet", "--only-binary", ":all:", *PINNED]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        yield f"{folder}/bin/python"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path, devices=describe(tmp_path, 64 * MIB, compute_capability="7.5")) as s:
        yield s


def run(python: str, client: Client, script: str, **more: str) -> tuple[Any, str]:
    """What the script says (its last line, as JSON), and its stderr."""
    environment = {**client.environment(), "HOME": str(client.folder), "PTX": str(CHECKS.with_suffix(".ptx")), **more}
    del environment["PYTHONPATH"]  # nothing of the toolkit: only its library
    done = subprocess.run(
        [python, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_numba_finds_the_devices_copies_and_has_streams_and_events_in_order(python: str, serving: Server) -> None:
    script = """
block = cuda.to_device(numbers)
part = block[100:200]
stream, begin, end = cuda.stream(), cuda.event(), cuda.event()
begin.record(stream)
other = cuda.to_device(numbers + 1, stream=stream)
end.record(stream)
end.synchronize()
said({
    "devices": [gpu.name if isinstance(gpu.name, str) else gpu.name.decode() for gpu in cuda.gpus],
    "capability": list(cuda.get_current_device().compute_capability),
    "back": bool((block.copy_to_host() == numbers).all()),
    "part": bool((part.copy_to_host() == numbers[100:200]).all()),
    "streamed": bool((other.copy_to_host(stream=stream) == numbers + 1).all()),
    "ms": begin.elapsed_time(end),
    "memory": context.get_memory_info().total,
})
"""
    found, _ = run(python, client_of(serving), NUMBA + script)
    assert found.pop("ms") >= 0
    assert found == {
        "devices": ["Emulated V100", "Emulated V100"], "capability": [7, 5], "back": True, "part": True,
        "streamed": True, "memory": 64 * MIB,
    }  # fmt: skip


def test_numba_loads_a_kernel_of_the_toolkits_and_launches_it(python: str, serving: Server) -> None:
    script = """
import ctypes
from cuda.core import Device, LaunchConfig, launch
block = cuda.to_device(numbers)
scale = context.create_module_ptx(open(os.environ["PTX"]).read()).get_function("scale")
config = LaunchConfig(grid=numbers.size // 256, block=256)
arguments = ctypes.c_uint64(block.device_ctypes_pointer.value), ctypes.c_float(3), ctypes.c_uint32(numbers.size)
launch(Device().default_stream, config, scale.kernel, *arguments)
said({"right": bool((block.copy_to_host() == 3 * numbers).all()), "threads": scale.attrs.maxthreads})
"""
    found, _ = run(python, client_of(serving), NUMBA + script)
    assert found["right"]
    assert found["threads"] > 0


def test_what_numba_compiles_is_refused_in_its_words_and_it_goes_on(python: str, serving: Server) -> None:
    script = """
block = cuda.to_device(numbers)
@cuda.jit
def add(to):
    at = cuda.grid(1)
    if at < to.size:
        to[at] += 1
own = failing(lambda: add[256, 256](block))
damaged = failing(lambda: context.create_module_ptx("no kernel").get_function("none"))
large = failing(lambda: cuda.device_array(100 << 20, dtype=np.uint8))
said({"own": own, "damaged": damaged, "large": large, "after": bool((block.copy_to_host() == numbers).all())})
"""
    found, err = run(python, client_of(serving), NUMBA + script)
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in found["own"]
    assert "takes PTX alone" in err or "cubin" in err, "the driver's own words"
    assert "CUDA_ERROR_" in found["damaged"]
    assert "OUT_OF_MEMORY" in found["large"]
    assert found["after"], "no error of these ends the context"


def test_a_server_that_ends_is_an_error_of_numbas_next_call(python: str, serving: Server) -> None:
    script = f"""
block = cuda.to_device(numbers)
os.kill({serving.process.pid}, signal.SIGKILL)
said([failing(block.copy_to_host), failing(lambda: cuda.to_device(numbers))])
"""
    found, err = run(python, client_of(serving), NUMBA + script)
    assert all("DEVICE_UNAVAILABLE" in one or "[46]" in one for one in found), found
    assert "127.0.0.1" in err


def test_tinygrad_copies_and_its_own_kernel_is_refused_in_its_words(python: str, serving: Server) -> None:
    script = """
import json
import numpy as np
from tinygrad import Device, Tensor
numbers = np.arange(1 << 16, dtype=np.float32)
tensor = Tensor(numbers, device="CUDA").realize()
back = bool((tensor.numpy() == numbers).all())
try:
    (tensor + 1).numpy()
    own = ""
except RuntimeError as fault:
    own = str(fault)
print(json.dumps({"back": back, "own": own, "after": bool((tensor.numpy() == numbers).all())}))
"""
    found, err = run(python, client_of(serving), script, DEV="CUDA")
    assert found["back"]
    assert found["after"]
    assert "209: CUDA_ERROR_NO_BINARY_FOR_GPU" in found["own"]
    assert "there is none for this PTX" in err
