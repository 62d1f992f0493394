"""Both of our libcuda against what CUDA's own headers say: versions of functions, names of errors, whose UUID."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.engine_run import ROOT, Client, built, client_of, describe, local, server
from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
RECORDED = ROOT / "tests/data/cuda/errors-13.5.txt"
#: Asks by name, as cudart and cuda-bindings do, and calls as the prototype of that version is.
BY_NAME = """
def by_name(name, version):
    function = c_void_p(); status = c_int(-1)
    assert code(cuda.cuGetProcAddress_v2, name, byref(function), version, c_uint64(0), byref(status)) == 0
    return ctypes.CFUNCTYPE(c_int)(function.value)
"""


@pytest.fixture(params=["the engine's", "the emulated driver's"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    """Programs of that library, on two devices."""
    if request.param == "the emulated driver's":
        yield local(tmp_path, describe(tmp_path))
        return
    with server(tmp_path) as s:
        yield client_of(s)


@pytest.mark.parametrize(
    ("version", "arguments"),
    [
        (11000, "byref(context), 0, 1"),  # flags, device
        (11040, "byref(context), None, 0, 0, 1"),  # affinities, how many, flags, device
        (12040, "byref(context), None, 0, 0, 1"),
        (12050, "byref(context), None, 0, 1"),  # parameters, flags, device
        (13000, "byref(context), None, 0, 1"),
    ],
)
def test_a_context_by_name_is_on_the_device_that_was_asked_for(program: Client, version: int, arguments: str) -> None:
    script = (
        BY_NAME
        + f"""
cuda.cuInit(0); context, device = c_void_p(), c_int(-1)
made = by_name(b"cuCtxCreate", {version})({arguments})
said([made, code(cuda.cuCtxGetDevice, byref(device)), device.value])
"""
    )
    assert program.run(script)[0] == [0, 0, 1]


def test_functions_of_cuda_13_take_the_context_that_is_named(program: Client) -> None:
    script = (
        BY_NAME
        + """
cuda.cuInit(0); first, second, device, other = c_void_p(), c_void_p(), c_int(-1), c_int(-1)
cuda.cuCtxCreate_v2(byref(first), 0, 0); cuda.cuCtxCreate_v2(byref(second), 0, 1)
get, sync = by_name(b"cuCtxGetDevice", 13000), by_name(b"cuCtxSynchronize", 13000)
codes = [get(byref(device), first), get(byref(other), None), sync(first), sync(None)]
cuda.cuCtxDestroy_v2(first)
said([codes, device.value, other.value, bool(sync(first)), sync(second)])
"""
    )
    assert program.run(script)[0] == [[0, 0, 0, 0], 0, 1, True, 0]


def test_parameters_that_a_library_cannot_heed_are_refused(program: Client) -> None:
    script = """
cuda.cuInit(0); context = c_void_p(); some = (ctypes.c_ulonglong * 8)()
said([code(cuda.cuCtxCreate_v3, byref(context), some, 1, 0, 0), code(cuda.cuCtxCreate_v4, byref(context), some, 0, 0)])
"""
    assert program.run(script)[0] == [801, 801]


@pytest.mark.parametrize("library", ["lib", "devices"])
def test_every_error_of_cuda_has_its_name_and_its_text(library: str) -> None:
    recorded = [line.split(" ", 2) for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
    assert len(recorded) > 100
    script = """
import ctypes, json, sys
cuda, out = ctypes.CDLL("libcuda.so.1"), {}
for number in range(1100):
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    codes = cuda.cuGetErrorName(number, ctypes.byref(name)), cuda.cuGetErrorString(number, ctypes.byref(text))
    if codes == (0, 0): out[number] = [name.value.decode(), text.value.decode()]
    else: assert codes == (1, 1) and name.value is None and text.value is None
print(json.dumps(out))
"""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(built() / library)}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    found = yaml.safe_load(ran.stdout)
    assert {int(number): name for number, (name, _) in found.items()} == {int(n): name for n, name, _ in recorded}
    texts = {int(number): text for number, (_, text) in found.items()}
    assert all(texts.values())
    assert [n for n, _, text in recorded if text not in ("-", texts[int(n)])] == []


REAL = json.loads((ROOT / "tests/data/h200/libcuda.json").read_text())


@pytest.mark.parametrize("library", ["lib", "devices"])
def test_a_name_and_a_version_give_the_function_that_a_real_driver_gives(library: str) -> None:
    """And every error has the real driver's name and text."""
    script = """
import ctypes, json, sys
class Info(ctypes.Structure): _fields_ = [(n, ctypes.c_char_p if n in "an" else ctypes.c_void_p) for n in "abnd"]
cuda, libc, asked = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None), json.loads(sys.stdin.read())
out = {"symbols": {}, "errors": {}}
for name, versions in asked["symbols"].items():
    for version in versions:
        at, status, info = ctypes.c_void_p(), ctypes.c_int(-1), Info()
        where = ctypes.byref(at), int(version), ctypes.c_uint64(0), ctypes.byref(status)
        rc = cuda.cuGetProcAddress_v2(name.encode(), *where)
        found = at.value and libc.dladdr(at, ctypes.byref(info)) and info.n.decode()
        out["symbols"].setdefault(name, {})[version] = [rc, status.value, found]
for number in asked["errors"]:
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    cuda.cuGetErrorName(int(number), ctypes.byref(name)); cuda.cuGetErrorString(int(number), ctypes.byref(text))
    out["errors"][number] = [(name.value or b"").decode(), (text.value or b"").decode()]
print(json.dumps(out))
"""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(built() / library)}
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env=environment, input=json.dumps(REAL), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(ran.stdout)
    assert found["errors"] == REAL["errors"]
    pairs = [
        (name, version, found["symbols"][name][version], real)
        for name, versions in REAL["symbols"].items()
        for version, real in versions.items()
    ]
    given = [pair for pair in pairs if pair[2][2]]
    assert len(given) > 500
    assert [pair for pair in given if pair[2] != pair[3]] == []
    lacking = {(name, int(version)) for name, version, ours, real in pairs if real[2] and not ours[2]}
    assert {name for name, version in lacking if version > 7000} == {"cuGetExportTable"}  # the first ABI's, and this


def test_limits_answer_as_a_real_drivers(tmp_path: Path) -> None:
    """A number that there is no limit of is an invalid value; one that may not be set can still be asked."""
    ask = "said([code(cuda.cuCtxGetLimit, byref(c_uint64()), n) for n in range(-1, 14)])"
    start = "cuda.cuInit(0); x = c_void_p(); cuda.cuCtxCreate_v2(byref(x), 0, 0); "
    devices = describe(tmp_path)
    alone = local(tmp_path, devices).run(start + ask)[0]
    with server(tmp_path) as s:
        assert client_of(s).run(start + ask)[0][1:] == alone[1:]
    real = [REAL["limits"][str(n)][0] for n in range(14)]
    assert [n for n in range(10) if alone[1:][n] not in (real[n], 215)] == []
    assert alone[11:] == real[10:]


def test_a_lease_of_a_mig_instance_shows_the_instance(tmp_path: Path) -> None:
    """The first version of the call says the GPU's own, as NVIDIA's driver does."""
    devices = describe(tmp_path, mig="1,2")
    script = """
cuda.cuInit(0); out = []
for call in (cuda.cuDeviceGetUuid, cuda.cuDeviceGetUuid_v2):
    uuid = (ctypes.c_ubyte * 16)(); call(uuid, 0); out.append(bytes(uuid).hex())
said(out)
"""
    listed = "from toolkit.lease.machine import nvml\nsaid([[g.uuid, *(i.uuid for i in g.mig)] for g in nvml.gpus()])"
    (gpu, _, second), _ = local(tmp_path, devices, PYTHONPATH=str(ROOT)).run(listed)[0]
    bare = [uuid.partition("-")[2].replace("-", "") for uuid in (gpu, second)]
    assert local(tmp_path, devices, CUDA_VISIBLE_DEVICES=second).run(script)[0] == bare
    with server(tmp_path / "s", devices=devices, CUDA_VISIBLE_DEVICES=second) as s:
        assert client_of(s).run(script)[0] == [bare[1]] * 2  # what a program is given has one name


def test_the_emulated_driver_is_that_of_the_release(tmp_path: Path) -> None:
    """The stack's own programs find it new enough: its CUDA is of the major release of the stack's torch, as NVIDIA's
    minor-version compatibility has it."""
    release = yaml.safe_load((ROOT / "stacks/current.yml").read_text())["stack_data"]["sets"]["debian12"]
    driver, cuda = build.emulated_driver()
    assert driver == release["nvidia_driver"]["version"]
    assert cuda // 1000 >= int(release["horovod"]["cuda"].split(".")[0])
    script = """
version, nvml, text, by_nvml = c_int(), ctypes.CDLL("libnvidia-ml.so.1"), ctypes.create_string_buffer(80), c_int()
cuda.cuInit(0); cuda.cuDriverGetVersion(byref(version)); nvml.nvmlInit_v2(); nvml.nvmlSystemGetDriverVersion(text, 80)
nvml.nvmlSystemGetCudaDriverVersion_v2(byref(by_nvml)); said([version.value, by_nvml.value, text.value.decode()])
"""
    assert local(tmp_path, describe(tmp_path)).run(script)[0] == [cuda, cuda, f"{driver}-emulated"]


def test_attributes_of_the_newest_cuda_are_answered(program: Client) -> None:
    script = """
cuda.cuInit(0); value = c_int(-1)
said([[code(cuda.cuDeviceGetAttribute, byref(value), n, 0) for n in (1, 148, 149, 160, 161)],
      code(cuda.cuDeviceGetAttribute, byref(value), 500, 0)])
"""
    assert program.run(script)[0] == [[0] * 5, 1]


def test_structures_are_as_long_as_the_publishers() -> None:
    """CUuuid, CUlaunchAttribute, CUlaunchConfig, CUDA_MEMCPY2D; test_engine_headers.py looks at the headers."""
    words = ["gcc", "-x", "c", "-", "-fsyntax-only", "-I", str(build.SOURCES)]
    asserted = {"CUuuid": 16, "CUlaunchAttribute": 72, "CUlaunchConfig": 56, "CUcopy2D": 128}
    source = '#include "shared/cu.h"\n' + "".join(
        f'_Static_assert(sizeof({name}) == {size}, "{name}");\n' for name, size in asserted.items()
    )
    done = subprocess.run(words, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
