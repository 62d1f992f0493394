"""An emulated device runs kernels: their host modules, over whole grids, with the driver API around them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine_kernels import CHECKS, LAUNCHES, archived
from tests.support.engine_run import Client, built, client_of, describe, local, server
from toolkit.engine import build, host_modules

LACKS = build.missing_tools() or host_modules.lacks_compiler()
pytestmark = pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")
PTX = CHECKS.with_suffix(".ptx").read_text()


@pytest.fixture(params=["here", "by the engine"])
def device(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    described = describe(tmp_path, compute_capability="7.0")
    if request.param == "here":
        yield local(tmp_path, described)
        return
    with server(tmp_path, devices=described) as s:
        yield client_of(s)


def said(device: Client, script: str):
    return device.run(LAUNCHES + script)[0]


def test_ptx_is_of_the_sources():
    for source in host_modules.sources():
        head = source.with_suffix(".ptx").read_text().splitlines()[:2]
        assert head[0] == f"// {source.name}, sha256 {hashlib.sha256(source.read_bytes()).hexdigest()}", (
            "run tools/make_ptx.py"
        )
        assert re.search(r"nvcc 13\.\d.* -fmad=false .*compiled by ptxas for .*sm_60 .*sm_120", head[1])


@pytest.mark.skipif(not (shutil.which("nvcc") and shutil.which("ptxas")), reason="no nvcc here")
def test_ptx_is_what_the_compiler_makes():
    """For the architectures that this ptxas knows; all of them are compiled when the files are made."""
    text = subprocess.run(["ptxas", "--help"], capture_output=True, text=True, check=True).stdout
    for ptx in (source.with_suffix(".ptx") for source in host_modules.sources()):
        for architecture in ("75", "80", "86", "89", "90", "100", "120"):
            assert f"'sm_{architecture}'" in text
            command = ["ptxas", f"-arch=sm_{architecture}", "-o", "/dev/null", str(ptx)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr


def test_a_kernel_runs_over_data_of_any_length(device: Client):
    script = """
start(); module = load(); f = function(module, "scale")
data = put("f", range(1000))
launch(f, 4, 256, data, c_float(0.5), ctypes.c_uint(999))
cuda.cuCtxSynchronize()
said(got("f", data, 1000))
"""
    assert said(device, script) == [i / 2 for i in range(999)] + [999.0]


def test_every_thread_of_every_block_is_there_once(device: Client):
    script = """
start(); f = function(load(), "place")
to = alloc(4 * 24 * 60)
launch(f, (2, 3, 4), (5, 4, 3), to)
said(got("I", to, 24 * 60))
"""
    assert said(device, script) == [block * 10000 + thread for block in range(24) for thread in range(60)]


def test_barriers_shared_memory_and_atomics(device: Client):
    script = """
start(); module = load()
total = put("i", [5])
launch(function(module, "sum"), 40, 256, put("i", range(10000)), total, ctypes.c_uint(10000))
data = put("i", range(3 * 1024))
f = function(module, "turn")
for _ in range(3): launch(f, 3, 1024, data, shared=4096)
left = put("i", [-1] * 8)
launch(function(module, "leave"), 1, 16, left)
said([got("i", total, 1), got("i", data, 3 * 1024), got("i", left, 8)])
"""
    total, turned, left = said(device, script)
    assert total == [5 + sum(range(10000))]
    assert turned == [block * 1024 + 1023 - i for block in range(3) for i in range(1024)]
    assert left == list(range(0, 16, 2))


def test_parameters_go_by_their_layout(device: Client):
    values = "ctypes.c_byte(-3), ctypes.c_short(300), ctypes.c_byte(7), c_int(-70000), ctypes.c_byte(9)"
    script = f"""
class Pair(ctypes.Structure): _fields_ = [("first", ctypes.c_short), ("second", ctypes.c_double)]
start(); f = function(load(), "take"); to = alloc(64)
launch(f, 1, 1, {values}, ctypes.c_longlong(1 << 40), Pair(-5, 0.25), to)
first, layout = got("d", to, 8), []
for i in range(9):
    at, size = c_size_t(), c_size_t()
    if code(cuda.cuFuncGetParamInfo, f, c_size_t(i), byref(at), byref(size)): break
    layout.append([at.value, size.value])
buffer = bytearray(56)
for (at, size), form, value in zip(layout, "bhbibq", (1, 2, 3, 4, 5, 6)): struct.pack_into(form, buffer, at, value)
struct.pack_into("h6xd", buffer, layout[6][0], 7, 8.0); struct.pack_into("Q", buffer, layout[7][0], to.value)
raw = (ctypes.c_char * 56).from_buffer(buffer)
def extra(size):
    n = c_size_t(size)
    given = (c_void_p * 5)(1, ctypes.addressof(raw), 2, ctypes.addressof(n), 0)
    return code(cuda.cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, None, None, given)
said([layout, first, extra(48), got("d", to, 8), extra(47),
      code(cuda.cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, None, None, None)])
"""
    layout, first, fine, second, short, none = said(device, script)
    # CUDA C++ Programming Guide: a kernel's parameters are aligned as in a structure
    assert layout == [[0, 1], [2, 2], [4, 1], [8, 4], [12, 1], [16, 8], [24, 16], [40, 8]]
    assert first == [-3, 300, 7, -70000, 9, 1 << 40, -5, 0.25]
    assert (fine, second, short, none) == (0, [1, 2, 3, 4, 5, 6, 7, 8], 1, 1)
    declared = re.findall(r"\.param \.(?:align \d+ \.b8|u\d+|[bsf]\d+|u64)[^,\n]*take_param_\d+(?:\[(\d+)\])?", PTX)
    assert len(declared) == 8, "the PTX has as many"


def test_variables_of_a_module_are_its_own(device: Client):
    script = """
context = start(); one, other = load(), load()
def variable(module, name):
    at, size = c_uint64(), c_size_t()
    cuda.cuModuleGetGlobal_v2(byref(at), byref(size), module, name)
    return at, size.value
def write(module):
    at, size = variable(module, b"table")
    cuda.cuMemcpyHtoD_v2(at, struct.pack("4i", 10, 11, 12, 13), c_size_t(size))
write(one); write(other)
to = put("i", [0] * 6)
launch(function(one, "count"), 1, 6, to)
launch(function(other, "count"), 2, 5, c_uint64(0))
found = [got("I", variable(m, b"launches")[0], 1)[0] for m in (one, other)]
gone = variable(one, b"launches")[0]
cuda.cuModuleUnload(one)
back = ctypes.create_string_buffer(4)
said([got("i", to, 6), found, variable(other, b"table")[1], code(cuda.cuMemcpyDtoH_v2, back, gone, c_size_t(4)),
      code(variable, other, b"nothing"), code(cuda.cuModuleUnload, one), code(function, other, "nothing"),
      code(cuda.cuMemFree_v2, variable(other, b"table")[0])])
"""
    assert said(device, script) == [[10, 11, 12, 13, 10, 11], [6, 10], 16, 1, 500, 400, 500, 1]


def test_libraries_are_of_every_context(device: Client):
    script = """
first = start(0)
library, kernel, f, where = c_void_p(), c_void_p(), c_void_p(), c_void_p()
cuda.cuLibraryLoadData(byref(library), PTX, None, None, 0, None, None, 0)
cuda.cuLibraryGetKernel(byref(kernel), library, b"spin")
at, size = c_size_t(), c_size_t()
cuda.cuKernelGetParamInfo(kernel, c_size_t(1), byref(at), byref(size))
sums = []
for ordinal in (0, 1):
    start(ordinal); to = alloc(64)
    cuda.cuKernelGetFunction(byref(f), kernel)
    launch(f, 1, 16, to, ctypes.c_uint(3)); launch(kernel, 1, 8, to, ctypes.c_uint(3))
    sums.append(sum(got("I", to, 16)))
cuda.cuCtxSetCurrent(first)
other_context = code(launch, f, 1, 16, to, ctypes.c_uint(3))
cuda.cuLibraryUnload(library)
said([at.value, size.value, sums, other_context, code(cuda.cuLibraryUnload, library),
      code(launch, kernel, 1, 8, to, ctypes.c_uint(3))])
"""
    value = list(range(16))
    for _ in range(3):
        value = [(v * 1664525 + 1013904223) % 2**32 for v in value]
    assert said(device, script) == [8, 4, [sum(value)] * 2, 400, 400, 400]


def test_an_archive_is_its_ptx_and_runs_without_the_devices_own_modules(tmp_path: Path):
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(built() / "devices/libcuda.so.1", bare)
    device = local(tmp_path, describe(tmp_path), LD_LIBRARY_PATH=str(bare))
    (tmp_path / "a").write_bytes(archived())
    script = f"""
start(); image = open({str(tmp_path / "a")!r}, "rb").read(); to = alloc(64)
launch(function(load(image), "spin"), 1, 16, to, ctypes.c_uint(0))
m = c_void_p(); cuda.cuModuleLoad(byref(m), {str(tmp_path / "a").encode()!r})
launch(function(m, "spin"), 1, 2, to, ctypes.c_uint(1))
said([got("I", to, 4), code(load)])
"""
    assert said(device, script) == [[1013904223, 1015568748, 2, 3], 209]
    done = subprocess.run(
        ["gcc", "-fpreprocessed", "-dD", "-E", "-P", "-x", "c", "-"], input=archived(), capture_output=True
    )
    assert b"elastic-ai-host" not in done.stdout, "for a compiler it is all comment"


WRONG = {
    "no PTX": (lambda t: "hello", 200, "no .version"),
    "newer": (lambda t: t.replace(".version 6.0", ".version 9.9"), 222, "PTX .version 9.9 is newer than"),
    "for another GPU": (lambda t: t.replace(".target sm_60", ".target sm_90"), 209, "there is none for this PTX"),
    "for no GPU": (lambda t: t.replace(".target sm_60", ".target sm_999"), 218, "Unknown .target 'sm_999'"),
    "cut": (lambda t: t[: t.index("ld.param")], 218, "unbalanced braces"),
    "changed": (lambda t: t.replace("mul.rn", "add.rn"), 209, "there is none for this PTX"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_code_that_does_not_compile_says_why(device: Client, tmp_path: Path, case: str):
    change, code, words = WRONG[case]
    (tmp_path / "bad").write_text(change(PTX))
    script = f"""
start(); m, log = c_void_p(), ctypes.create_string_buffer(400)
names, values = (c_int * 2)(5, 6), (c_void_p * 2)(ctypes.addressof(log), 400)
found = code(cuda.cuModuleLoadDataEx, byref(m), open({str(tmp_path / "bad")!r}, "rb").read(), 2, names, values)
said([found, log.value.decode(), values[1] or 0, code(load)])
"""
    found, log, length, after = said(device, script)
    assert (found, after, length) == (code, 0, len(log))
    assert words in log


def test_code_for_a_newer_gpu_than_this(tmp_path: Path):
    device = local(tmp_path, describe(tmp_path, compute_capability="5.2"))
    script = """
start(); m, log = c_void_p(), ctypes.create_string_buffer(400)
names, values = (c_int * 2)(5, 6), (c_void_p * 2)(ctypes.addressof(log), 400)
said([code(cuda.cuModuleLoadDataEx, byref(m), PTX, 2, names, values), log.value.decode()])
"""
    assert said(device, script) == [209, "ptxas fatal: PTX is for sm_60, and this device is sm_52"]


DAMAGED = {
    "version": lambda t: t.replace(b"host 1 ", b"host 2 "),
    "machine": lambda t: re.sub(rb"(host 1 )\S+", rb"\1vax", t),
    "size": lambda t: re.sub(rb"(host 1 \S+ )\d+", rb"\g<1>99", t),
    "huge": lambda t: re.sub(rb"(host 1 \S+ )\d+", rb"\g<1>99999999999999", t),
    "hash": lambda t: re.sub(rb"(host 1 \S+ \d+ )", rb"\1f", t),
    "a letter": lambda t: t.replace(b"//f0VMR", b"//f0VMS"),
    "no letter": lambda t: t.replace(b"//f0VMR", b"//f0V-R"),
    "cut": lambda t: t[: len(t) // 2],
    "first line alone": lambda t: t[: t.index(b"//f0VMR")],
    "words": lambda t: re.sub(rb"host 1 .*", b"host one", t),
    "of other PTX": lambda t: t.replace(b"mul.rn", b"add.rn"),
}


def test_damaged_archives_are_refused(device: Client, tmp_path: Path):
    for name, change in DAMAGED.items():
        assert change(archived()) != archived(), name
        (tmp_path / name).write_bytes(change(archived()))
    script = f"""
start()
said([code(load, open({str(tmp_path)!r} + "/" + name, "rb").read()) for name in {list(DAMAGED)!r}])
"""
    assert said(device, script) == [200] * len(DAMAGED)


def test_launches_that_cannot_be_are_refused(device: Client):
    script = """
start(); module = load(); f, to = function(module, "spin"), alloc(4096)
steps = ctypes.c_uint(1)
def tried(grid, block, shared=0): return code(lambda: launch(f, grid, block, to, steps, shared=shared))
def blocks(size, shared=0):
    n = c_int(); cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(byref(n), f, size, c_size_t(shared)); return n.value
def attribute(which, g=f):
    n = c_int(); cuda.cuFuncGetAttribute(byref(n), which, g); return n.value
shapes = [tried(0, 1), tried(1, 0), tried(1, 1025), tried(1, (1, 1, 65)), tried((1, 65536), 1),
          tried(1, 1, 49153), tried(1, 1024, 49152)]
many = code(cuda.cuFuncSetAttribute, f, 8, 98304), tried(1, 1, 98304), code(cuda.cuFuncSetAttribute, f, 8, 98305)
fits, most = [blocks(1024), blocks(100), blocks(32), blocks(32, 49152), blocks(2048)], 2 * 80
given = (c_void_p * 2)(ctypes.addressof(to), ctypes.addressof(steps))
def together(grid): return code(cuda.cuLaunchCooperativeKernel, f, grid, 1, 1, 1024, 1, 1, 0, None, given)
size = [c_int(), c_int()]
cuda.cuOccupancyMaxPotentialBlockSize(byref(size[0]), byref(size[1]), f, None, c_size_t(0), 0)
big = alloc(4 * 1024 * 160); given[0] = ctypes.addressof(big)
said([shapes, many, fits, together(most), together(most + 1), attribute(0), attribute(1), attribute(5), attribute(6),
      attribute(1, function(module, "sum")), [s.value for s in size],
      code(cuda.cuLaunchKernel, c_void_p(1), 1, 1, 1, 1, 1, 1, 0, None, given, None),
      code(function, c_void_p(7), "spin")])
"""
    assert said(device, script) == [
        [1, 1, 1, 1, 1, 1, 0],
        [0, 0, 1],
        [2, 16, 32, 2, 0],
        *(0, 720, 1024, 0, 60, 70, 1024),
        [160, 1024],
        *(400, 400),
    ]


def test_launches_with_attributes(device: Client):
    script = """
class Attribute(ctypes.Structure): _fields_ = [("id", c_int), ("pad", c_int), ("value", ctypes.c_char * 64)]
class Config(ctypes.Structure):
    _fields_ = [("shape", ctypes.c_uint * 6), ("shared", ctypes.c_uint), ("stream", c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint)]
start(); f, to, steps = function(load(), "spin"), alloc(4 * 1024 * 200), ctypes.c_uint(0)
given = (c_void_p * 2)(ctypes.addressof(to), ctypes.addressof(steps))
def launched(blocks, together):
    a = Attribute(2, 0, struct.pack("i", together))
    c = Config((ctypes.c_uint * 6)(blocks, 1, 1, 1024, 1, 1), 0, None, ctypes.pointer(a), 1)
    return code(cuda.cuLaunchKernelEx, byref(c), f, given, None)
said([launched(200, 0), got("I", to, 3), launched(200, 1), launched(160, 1)])
"""
    assert said(device, script) == [0, [0, 1, 2], 720, 0]


def test_an_illegal_address_ends_the_context_and_nothing_else(device: Client):
    script = """
first = start(0); module = load(); f, to = function(module, "stray"), put("i", [0] * 16)
second = start(1); fine = put("i", [3]); cuda.cuCtxSetCurrent(first)
far = 1 << 21
codes = [code(lambda: launch(f, 1, 1, to, ctypes.c_longlong(by))) for by in (15, far)]
codes += [code(cuda.cuCtxSynchronize), code(alloc, 64), code(cuda.cuMemFree_v2, to), code(load),
          code(lambda: launch(f, 1, 1, to, ctypes.c_longlong(0))), code(got, "i", to, 1),
          code(cuda.cuStreamQuery, None)]
cuda.cuCtxSetCurrent(second)
still = got("i", fine, 1)
cuda.cuCtxSetCurrent(None)
cuda.cuDevicePrimaryCtxRelease_v2(0)
start(0); again = put("i", [4]); launch(function(load(), "stray"), 1, 1, again, ctypes.c_longlong(0))
null = function(load(), "stray")
after = [got("i", again, 1),
         code(lambda: launch(null, 1, 1, c_uint64(0), ctypes.c_longlong(0))), code(cuda.cuCtxSynchronize)]
said([codes, still, after])
"""
    assert said(device, script) == [[0, 0, 700, 700, 700, 700, 700, 700, 700], [3], [[1], 0, 700]]


def test_a_program_that_takes_a_device_address_for_its_own_faults_until_it_has_a_module(device: Client):
    process = device.start("start(); p = alloc(64); ctypes.string_at(p.value, 1)")
    assert process.wait(60) == -11
    process.communicate()
    process = device.start(LAUNCHES + "start(); load(); p = alloc(64); ctypes.string_at(p.value + (4 << 20), 1)")
    assert process.wait(60) == -11, "a fault outside of kernels is the program's own"
    process.communicate()


def test_an_illegal_address_can_be_planted(tmp_path: Path):
    device = local(tmp_path, describe(tmp_path, illegal_after=2))
    script = """
start(); f, to = function(load(), "spin"), alloc(64)
def step(): launch(f, 1, 1, to, ctypes.c_uint(1)); cuda.cuCtxSynchronize()
said([code(step) for _ in range(4)])
"""
    assert said(device, script) == [0, 0, 700, 700]


def test_kernels_of_a_slow_gpu_are_slower(tmp_path: Path):
    environment = describe(tmp_path)
    described = json.loads((tmp_path / "gpus.json").read_text())
    described["gpus"][1]["slow_percent"] = 80  # five times as long
    (tmp_path / "gpus.json").write_text(json.dumps(described))
    script = """
def ready(ordinal):
    context = start(ordinal)
    return context, function(load(), "spin"), alloc(64)
def took(context, f, to):
    cuda.cuCtxSetCurrent(context)
    began = time.monotonic()
    launch(f, 1, 1, to, ctypes.c_uint(20_000_000)); cuda.cuCtxSynchronize()
    return time.monotonic() - began
usual, slow = ready(0), ready(1)
said(sorted(1 / took(*usual) * took(*slow) for _ in range(7))[3])
"""
    assert said(local(tmp_path, environment), script) > 2.5
