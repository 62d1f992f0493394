"""Emulated devices: what CUDA and NVML say of them, and that the node's accounts are exact."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import MIB, ROOT, UUIDS, describe, local, wait_for
from toolkit.engine import build

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
NVML = """
from toolkit.lease.programs.copybench import Cuda
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
def handle(i):
    h = c_void_p(); assert nvml.nvmlDeviceGetHandleByIndex_v2(i, byref(h)) == 0; return h
def memory(i):
    m = (ctypes.c_ulonglong * 3)(); assert nvml.nvmlDeviceGetMemoryInfo(handle(i), m) == 0; return list(m)
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("a", ctypes.c_uint), ("b", ctypes.c_uint)]
def processes(i):
    n = ctypes.c_uint(0)
    status = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle(i), byref(n), None)
    assert status == (7 if n.value else 0)
    array = (Process * max(n.value, 1))()
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle(i), byref(n), array) == 0
    return [[p.pid, p.used] for p in array[:n.value]]
"""


@pytest.fixture
def devices(tmp_path: Path) -> dict[str, str]:
    return describe(tmp_path)


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        (None, [0, 1]),
        ("1", [1]),
        ("1,0", [1, 0]),
        (UUIDS[1], [1]),
        (UUIDS[1][:-1], None),  # the beginning of both
        (f"{UUIDS[1]},{UUIDS[0]}", [1, 0]),
        (UUIDS[0].upper(), [0]),
        ("0,7,1", [0]),
        ("0,0", [0]),
        ("", None),
        ("GPU-nothing", None),
    ],
)
def test_visible_devices(tmp_path: Path, devices: dict[str, str], visible: str | None, seen: list[int] | None):
    script = """
status = code(cuda.cuInit, 0); n = c_int(); found = []
if not status: cuda.cuDeviceGetCount(byref(n))
for i in range(n.value):
    u = (ctypes.c_ubyte * 16)(); cuda.cuDeviceGetUuid_v2(u, i); found.append(bytes(u).hex())
said([status, found])
"""
    more = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    status, found = local(tmp_path, devices, **more).run(script)[0]
    if seen is None:
        assert (status, found) == (100, [])
    else:
        assert (status, found) == (0, [UUIDS[i].removeprefix("GPU-").replace("-", "") for i in seen])


def test_what_a_device_is(tmp_path: Path):
    devices = describe(tmp_path, 64 * MIB, name="V100")  # nobody can have it without the word
    script = """
start(); n = ctypes.create_string_buffer(99); cuda.cuDeviceGetName(n, 99, 0)
bus = ctypes.create_string_buffer(99); cuda.cuDeviceGetPCIBusId(bus, 99, 1)
at = c_int(); cuda.cuDeviceGetByPCIBusId(byref(at), bus)
v = c_int(); values = []
for a in (16, 75, 41): cuda.cuDeviceGetAttribute(byref(v), a, 0); values.append(v.value)
said([n.value.decode(), bus.value.decode(), at.value, values, info(),
      code(cuda.cuDeviceGetAttribute, byref(v), 9999, 0)])
"""
    said, _ = local(tmp_path, devices).run(script)
    assert said == ["Emulated V100", "0000:11:00.0", 1, [80, 7, 1], [64 * MIB, 64 * MIB], 1]


def test_memory_is_of_the_node_and_gone_with_its_process(tmp_path: Path, devices: dict[str, str]):
    client = local(tmp_path, devices)
    holder = client.start("start(); alloc(200 << 20); said(os.getpid()); sys.stdin.read()")
    pid = int(holder.stdout.readline())
    look = NVML + "said([memory(0), memory(1), processes(0), processes(1)])"
    free = 256 * MIB - 200 * MIB
    assert client.run(look)[0] == [
        [256 * MIB, free, 200 * MIB],
        [256 * MIB, 256 * MIB, 0],
        [[pid, 200 * MIB]],
        [],
    ]
    assert client.run("start(); said([info(), code(alloc, 57 << 20), code(alloc, 56 << 20)])")[0] == [
        [free, 256 * MIB],
        2,
        0,
    ]
    os.kill(pid, signal.SIGKILL)
    holder.communicate()
    assert client.run(look)[0][0][2] == 0
    assert client.run("start(); alloc(256 << 20); said(info()[0])")[0] == 0


def test_own_process_and_a_forked_child_are_told_apart(tmp_path: Path, devices: dict[str, str]):
    script = (
        NVML
        + """
start(); alloc(1 << 20); mine = processes(0) == [[os.getpid(), 1 << 20]]
if os.fork() == 0: time.sleep(3); os._exit(0)
said(mine); os._exit(0)
"""
    )
    process = local(tmp_path, devices).start(script)
    assert process.stdout.readline() == "true\n"
    process.wait()
    assert local(tmp_path, devices).run(NVML + "said(processes(0))")[0] == [], "its fork keeps nothing"
    process.communicate()


def test_memory_of_another_is_never_seen(tmp_path: Path, devices: dict[str, str]):
    client = local(tmp_path, devices)
    client.run("start(); p = alloc(64 << 20); cuda.cuMemsetD8_v2(p, 170, c_size_t(64 << 20)); said(0)")
    said, _ = client.run(
        "start(); p = alloc(64 << 20); b = ctypes.create_string_buffer(64 << 20); "
        "cuda.cuMemcpyDtoH_v2(b, p, c_size_t(64 << 20)); said(b.raw.count(0) == 64 << 20)"
    )
    assert said is True


def test_utilisation_is_measured(tmp_path: Path, devices: dict[str, str]):
    client = local(tmp_path, devices)
    script = (
        NVML
        + """
def utilisation(i):
    u = (ctypes.c_uint * 2)(); assert nvml.nvmlDeviceGetUtilizationRates(handle(i), u) == 0; return list(u)
start(); p = alloc(64 << 20); utilisation(0); utilisation(1); until = time.monotonic() + .4
while time.monotonic() < until: cuda.cuMemsetD8_v2(p, 1, c_size_t(64 << 20))
busy = [utilisation(0), utilisation(1)]; time.sleep(.3); said([busy, utilisation(0)])
"""
    )
    (used, unused), idle = client.run(script)[0]
    assert used[0] > 20
    assert used[0] == used[1]
    assert unused == idle == [0, 0]


def test_nvml_inventory_and_what_is_not_supported(tmp_path: Path, devices: dict[str, str]):
    script = (
        NVML
        + """
n = ctypes.c_uint(); nvml.nvmlDeviceGetCount_v2(byref(n)); t = ctypes.create_string_buffer(96); out = []
for f in ("nvmlDeviceGetName", "nvmlDeviceGetUUID"):
    assert getattr(nvml, f)(handle(1), t, 96) == 0; out.append(t.value.decode())
short = nvml.nvmlDeviceGetName(handle(0), t, 3)
h = c_void_p(); by_uuid = nvml.nvmlDeviceGetHandleByUUID(out[1].encode(), byref(h)) == 0 and h.value == handle(1).value
absent = nvml.nvmlDeviceGetHandleByUUID(b"GPU-no", byref(h))
none = [nvml.nvmlDeviceGetPowerUsage(handle(0), byref(n)), nvml.nvmlDeviceGetTemperature(handle(0), 0, byref(n)),
        nvml.nvmlDeviceGetMigMode(handle(0), byref(n), byref(n))]
bad = [nvml.nvmlDeviceGetHandleByIndex_v2(9, byref(h)), nvml.nvmlDeviceGetName(c_void_p(5), t, 96)]
nvml.nvmlSystemGetDriverVersion(t, 80); version = t.value.decode(); nvml.nvmlShutdown()
said([n.value, out, short, by_uuid, absent, none, bad, version, nvml.nvmlDeviceGetCount_v2(byref(n))])
"""
    )
    said, _ = local(tmp_path, devices, CUDA_VISIBLE_DEVICES="").run(script)  # which is CUDA's alone
    driver = f"{build.emulated_driver()[0]}-emulated"
    assert said == [2, ["Emulated V100", UUIDS[1]], 7, True, 6, [3, 3, 3], [2, 2], driver, 1]


def test_programs_know_an_emulated_device_by_its_library(tmp_path: Path):
    devices = describe(tmp_path, name="H200") | {"PYTHONPATH": f"{ROOT}:{ROOT}/roles/monitoring/files"}
    script = """
import gpu_metrics
from toolkit.lease.machine import nvml
samples, _ = gpu_metrics.reading()
found = [(gpu.emulated, gpu.sm_count, gpu.capability, gpu.driver, gpu.cuda) for gpu in nvml.gpus()]
said([found, sorted({labels["emulated"] for _, labels, _ in samples if labels})])
"""
    driver, cuda = build.emulated_driver()
    said = [True, 80, "7.0", f"{driver}-emulated", cuda]
    assert local(tmp_path, devices).run(script)[0] == [[said] * 2, ["true"]]


def test_mig_instances_are_devices_of_their_own(tmp_path: Path):
    """A GPU as 1 + 2 + 3 slices: NVML lists them; a program has the one that it is given, with its memory alone."""
    devices = describe(tmp_path, mig="1,2,3") | {"PYTHONPATH": str(ROOT)}
    script = """
from toolkit.lease.machine import nvml
first, second = nvml.gpus()
said([*([second.uuid[6:] == one.uuid[6:], one.gpu_instance, one.slices, one.memory_mib, one.sm_count]
        for one in second.mig), second.mig_slices, first.mig[1].uuid])
"""
    *instances, slices, uuid = local(tmp_path, devices).run(script)[0]
    assert instances == [[True, 1, 1, 32, 11], [True, 2, 2, 64, 22], [True, 3, 3, 128, 34]]
    assert (slices, uuid[:4]) == (7, "MIG-")
    program = """
n = c_int(); name = ctypes.create_string_buffer(96); total = ctypes.c_size_t(); p = c_uint64()
from toolkit.lease.machine import nvml
cuda.cuInit(0); cuda.cuDeviceGetCount(byref(n)); cuda.cuDeviceGetName(name, 96, 0)
cuda.cuDeviceTotalMem_v2(byref(total), 0); c = c_void_p(); cuda.cuDevicePrimaryCtxRetain(byref(c), 0)
cuda.cuCtxSetCurrent(c)
fits = [code(cuda.cuMemAlloc_v2, byref(p), ctypes.c_size_t(mib << 20)) for mib in (60, 8)]
said([n.value, name.value.decode(), total.value >> 20, fits, [gpu.used_mib for gpu in nvml.gpus()],
      sorted(uuid[:4] for uuid, pids in nvml.processes().items() if os.getpid() in pids)])
"""
    one = local(tmp_path, devices | {"CUDA_VISIBLE_DEVICES": uuid}).run(program)[0]
    assert one == [1, "Emulated V100 MIG 2g", 64, [0, 2], [60, 0], ["MIG-"]]
    count = "n = c_int(); said([code(cuda.cuInit, 0), code(cuda.cuDeviceGetCount, byref(n)), n.value])"
    assert local(tmp_path, devices | {"CUDA_VISIBLE_DEVICES": "0"}).run(count)[0][0] == 100, "a divided GPU is none"
    assert local(tmp_path, devices).run(count)[0] == [0, 0, 1], "of divided GPUs a program sees one instance by itself"


@pytest.mark.parametrize("sizes", ["", "5", "4,4", "1,", "x", "-1"])
def test_mig_instances_that_cannot_be(tmp_path: Path, sizes: str):
    devices = describe(tmp_path, mig=sizes)
    assert local(tmp_path, devices).run("said([code(cuda.cuInit, 0)])")[0] == [100]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"gpus": [',
        '{"gpus": [{}]}',
        '{"gpus": [{"uuid": "GPU-1", "name": "x", "memory_bytes": 5, "pci_bus_id": "0:1:0.0"}]}',
        json.dumps({"gpus": [{"uuid": UUIDS[0], "name": "x", "memory_bytes": -5, "pci_bus_id": "0:1:0.0"}]}),
        json.dumps({"gpus": [{"uuid": UUIDS[0], "name": "x", "memory_bytes": 5, "pci_bus_id": "?"}]}),
        json.dumps({"gpus": [{"uuid": UUIDS[0], "name": "x" * 999, "memory_bytes": 5, "pci_bus_id": "0:1:0.0"}]}),
    ],
)
def test_a_broken_description_is_said(tmp_path: Path, devices: dict[str, str], text: str):
    (tmp_path / "gpus.json").write_text(text)
    said, err = local(tmp_path, devices).run("said(code(cuda.cuInit, 0))")
    assert said == 100
    assert f"{tmp_path}/gpus.json: want" in err


def test_no_description_is_no_device(tmp_path: Path, devices: dict[str, str]):
    (tmp_path / "gpus.json").unlink()
    said, err = local(tmp_path, devices).run("said(code(cuda.cuInit, 0))")
    assert said == 100
    assert "no emulated GPU is described" in err


def test_many_processes_at_once_never_take_more_than_there_is(tmp_path: Path, devices: dict[str, str]):
    script = "start(); said(sum(code(alloc, 20 << 20) == 0 for _ in range(8))); sys.stdin.read()"
    running: list[Any] = [local(tmp_path, devices).start(script) for _ in range(6)]
    taken = [int(p.stdout.readline()) for p in running]
    assert sum(taken) == 12, "256 MiB hold 12 blocks of 20 MiB"
    for p in running:
        p.kill()
        p.communicate()
    wait_for(lambda: local(tmp_path, devices).run("start(); said(info()[0])")[0] == 256 * MIB)


def test_a_context_takes_memory_and_the_driver_keeps_some(tmp_path: Path):
    devices = describe(tmp_path, 64 * MIB, reserved_bytes=4 * MIB, context_bytes=MIB)
    script = (
        NVML
        + """
before = memory(0); start(); held = [memory(0), info(), processes(0) == [[os.getpid(), 1 << 20]]]
n = c_size_t(); cuda.cuDeviceTotalMem_v2(byref(n), 0)
full = [code(alloc, 60 << 20), code(alloc, 59 << 20)]
own = c_void_p(); third = code(cuda.cuCtxCreate_v2, byref(own), 0, 0)
cuda.cuDevicePrimaryCtxRelease_v2(0); said([before, held, n.value, full, third, memory(0)])
"""
    )
    before, held, total, full, third, after = local(tmp_path, devices).run(script)[0]
    assert before == after == [64 * MIB, 60 * MIB, 4 * MIB], "what the driver keeps counts as used, as NVML has it"
    assert held == [[64 * MIB, 59 * MIB, 5 * MIB], [59 * MIB, 60 * MIB], True]
    assert (total, full, third) == (60 * MIB, [2, 0], 2)


def test_the_size_of_a_context_is_measured_beside_others_and_kept(tmp_path: Path):
    devices = describe(tmp_path, context_bytes=700_000)
    script = """
from pathlib import Path
from toolkit.lease.machine import context_size, nvml
path = Path(os.environ["CACHE"])
first = context_size.measured(path)
said([first, context_size.measured(path), [[g.reserved_mib, g.used_mib] for g in nvml.gpus()]])
"""
    cache = tmp_path / "leases/contexts.json"
    client = local(tmp_path, devices, CACHE=str(cache), CUDA_VISIBLE_DEVICES="")
    holder = local(tmp_path, devices).start("start(); alloc(200 << 20); said(1); sys.stdin.read()")
    holder.stdout.readline()
    sizes = dict.fromkeys(UUIDS, 700_000)
    assert client.run(script)[0] == [sizes, sizes, [[0, 200], [0, 0]]]
    describe(tmp_path, context_bytes=800_000)
    assert client.run(script)[0][0] == sizes, "measured once for a driver and its GPUs"
    cache.write_text("{")
    assert client.run(script)[0][0] == dict.fromkeys(UUIDS, 800_000)
    holder.kill()
    holder.communicate()


def test_a_context_that_cannot_be_measured_is_said(tmp_path: Path):
    devices = describe(tmp_path, MIB, context_bytes=2 * MIB)
    script = """
from toolkit.lease import LeaseError
from toolkit.lease.machine import context_size
try: context_size.measure()
except LeaseError as fault: said(str(fault))
"""
    words = "the size of a CUDA context could not be measured: GPU 1: CUDA error 2"
    assert local(tmp_path, devices).run(script)[0] == words
