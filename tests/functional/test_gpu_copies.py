"""Copies of GPUs: taken on emulated devices, read whole or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import gpu_copies_documents as made
from tests.support.engine_run import MIB, ROOT, UUIDS, built, describe, local
from tests.support.gpu_copies_case import judged, planned
from tests.support.site import criterion, lab, result, verdict_of
from toolkit.engine import build
from toolkit.lab.gpufaults import described
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.gpu import gpu_copies_probe
from validation.measures.gpu.copies_facts import GpuCopyFacts
from validation.measures.gpu.kinds import FULL
from validation.probes import gpu_host
from validation.probes.gpu_bench import LIBC, sizes
from validation.probes.gpu_host import busy

pytestmark = pytest.mark.engines

compiles = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
ASKED = {"largest_bytes": MIB, "repeat": 6, "latency_count": 20, "warm_s": 0.02}
PARAMS = {**FULL, "gpus": 2}


def probed(tmp_path: Path, devices: dict[str, str], **asked: Any) -> dict[str, Any]:
    """What the probe prints on emulated devices."""
    environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(built() / "devices"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "validation.probes", "gpu-copies", json.dumps({**ASKED, **asked})]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@compiles
def test_it_copies_on_emulated_devices_leaves_nothing_and_is_read_whole(tmp_path: Path) -> None:
    devices = describe(tmp_path)
    doc = probed(tmp_path, devices, gpus=2)
    assert doc["error"] is None
    samples, facts = parse("gpu-copies", doc, {**ASKED, "gpus": 2})  # type: ignore[arg-type, typeddict-item]
    assert isinstance(facts, GpuCopyFacts)
    assert facts.emulated
    assert facts.holes == []
    assert facts.path(0, 1).access  # type: ignore[union-attr]
    assert all(len(copy.gb_s) == ASKED["repeat"] for copy in facts.copies)
    assert {s.metric for s in samples} >= {"gpu_h2d_gb_s", "gpu_d2h_gb_s", "gpu_local_us", "gpu_peer_us", "holes"}
    inside = next(c for c in json.loads(doc["stdout"])["cells"] if c["what"] == "local" and c["bytes"] == MIB)
    assert inside["counted"] == 2 * MIB
    assert local(tmp_path, devices).run("start(); said(info())")[0] == [256 * MIB, 256 * MIB]


@compiles
def test_faults_that_are_planted_in_a_lab_are_found(tmp_path: Path) -> None:
    devices = describe(tmp_path, pcie_generation=3, pcie_width=16)
    described_at = tmp_path / "gpus.json"
    whole = json.loads(described_at.read_text())["gpus"]
    rehearsal = lab(("gpu1",), emulated_gpus=2)
    plan = planned(rehearsal)
    (m,) = plan.measurements
    found = {}
    for kind in (None, "gpu-missing", "pcie-x8"):
        described_at.write_text(json.dumps({"gpus": described(whole, kind)}))
        doc = probed(tmp_path, devices, **m.params)
        samples, facts = parse("gpu-copies", doc, m.params)  # type: ignore[arg-type]
        assert isinstance(facts, GpuCopyFacts)
        judged_ = criterion(verdict_of(rehearsal, plan, [result(m, samples, facts=facts)]), "tr.matrix")
        found[kind] = judged_.verdict, judged_.reason, [gpu.lanes for gpu in facts.gpus]
    assert found[None][0] == "pass"
    assert found["gpu-missing"][:2] == ("fail", "1 of 2 GPUs is there")
    assert (found["pcie-x8"][0], found["pcie-x8"][2]) == ("pass", [16, 8])


@compiles
def test_a_gpu_that_somebody_works_on_is_named_and_costs_itself_alone_unless_it_is_asked_for(tmp_path: Path) -> None:
    devices = describe(tmp_path, 1 << 30)
    client = local(tmp_path, devices)
    holder = client.start("start(1); alloc(300 << 20); said(os.getpid()); sys.stdin.read()")
    pid = holder.stdout.readline().strip()  # type: ignore[union-attr]
    try:
        facts = only_the_first(probed(tmp_path, devices, gpus=2))
        assert facts.gpus[1].untaken.startswith(f"GPU 0000:11:00.0 is in use by process {pid} (python")
        assert (facts.gpus[1].held, facts.holes) == (True, [])
        assert not [c for c in read(probed(tmp_path, devices, anyway=True, gpus=2)).copies if c.fault]
        both = client.start("start(0); alloc(300 << 20); said(os.getpid()); sys.stdin.read()")
        both.stdout.readline()  # type: ignore[union-attr]
        try:
            doc = probed(tmp_path, devices, gpus=2)
        finally:
            both.communicate()
        assert doc["stdout"] == ""
        assert [f"GPU 0000:1{n}:00.0 is in use by process" in doc["error"] for n in (0, 1)] == [True, True]
    finally:
        holder.communicate()


@compiles
def test_a_gpu_that_is_lost_at_the_start_costs_itself_alone_and_is_named(tmp_path: Path) -> None:
    devices = describe(tmp_path)
    first, last = json.loads((tmp_path / "gpus.json").read_text())["gpus"]
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": [first, {**last, "lost_after": 0}]}))
    doc = probed(tmp_path, devices, gpus=2)
    facts = only_the_first(doc)
    assert "CUDA_ERROR_UNKNOWN (999); look at dmesg for NVRM and Xid" in facts.gpus[1].untaken
    assert facts.silent == ("GPU 1: NVML error 15, it has fallen off the bus",)
    assert facts.holes == [facts.gpus[1].untaken]
    rehearsal = lab(("gpu1",), emulated_gpus=2)
    plan = planned(rehearsal)
    document = verdict_of(rehearsal, plan, [result(plan.measurements[0], facts=facts)])
    found = criterion(document, "tr.matrix")
    assert (found.verdict, found.reason) == ("fail", facts.gpus[1].untaken)
    assert next(j.value for j in criterion(document, "tr.h2d").judgements if "GPU 0" in str(j.subject))


def read(doc: dict[str, Any]) -> GpuCopyFacts:
    """The facts of a report on two GPUs."""
    assert doc["error"] is None, doc["error"]
    facts = parse("gpu-copies", doc, {**ASKED, "gpus": 2})[1]  # type: ignore[arg-type]
    assert isinstance(facts, GpuCopyFacts)
    return facts


def only_the_first(doc: dict[str, Any]) -> GpuCopyFacts:
    """The facts, whose GPU 0 has all its figures and GPU 1 none."""
    facts = read(doc)
    broken = {(c.source, c.target) for c in facts.copies if c.fault}
    assert broken == {(None, 1), (1, None), (1, 1), (0, 1), (1, 0)}
    assert {(c.source, c.target) for c in facts.copies} - broken == {(None, 0), (0, None), (0, 0)}
    assert {(w.source, w.target) for w in facts.waits if not w.error} == {(None, 0), (0, None), (0, 0)}
    assert (facts.gpus[0].untaken, facts.gpus[0].watch is not None) == ("", True)
    return facts


FEW = """
import sys
from validation.probes import __main__, cuda
whole, had = cuda.Cuda.host_alloc, []
def few(self, size):
    if len(had) == 2: raise cuda.CudaError("cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)", 2)
    had.append(whole(self, size))
    return had[-1]
cuda.Cuda.host_alloc = few
sys.exit(__main__.main(sys.argv[1:]))
"""


@compiles
def test_host_memory_that_cannot_be_pinned_costs_the_turn_of_that_gpu(tmp_path: Path) -> None:
    environment = {**os.environ, **describe(tmp_path), "LD_LIBRARY_PATH": str(built() / "devices")}
    command = [sys.executable, "-c", FEW, "gpu-copies", json.dumps({**ASKED, "gpus": 2})]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    facts = read(json.loads(done.stdout))
    broken = {(c.what, c.source, c.target) for c in facts.copies if c.fault}
    assert {cell[1:] for cell in broken if cell[0] not in ("pair", "sm_read", "sm_write")} == {
        (None, 1),
        (1, None),
        (1, 1),
        (1, 0),
    }
    assert ("pair", 0, 1) in broken
    assert "GPU 1 of CUDA: cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)" in facts.gpus[1].untaken


@compiles
def test_without_memory_or_driver_it_says_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "low").mkdir()
    devices = describe(tmp_path / "low", 16 * MIB)
    client = local(tmp_path, devices)
    holder = client.start("start(); alloc(16 << 20); said(1); sys.stdin.read()")
    holder.stdout.readline()  # type: ignore[union-attr]
    try:
        facts = read(probed(tmp_path, devices, anyway=True, gpus=2))
    finally:
        holder.communicate()
    assert "CUDA_ERROR_OUT_OF_MEMORY (2); the memory is taken" in facts.gpus[0].untaken
    assert "\n" not in facts.gpus[0].untaken
    assert (facts.gpus[1].untaken, facts.holes) == ("", [])
    hidden = probed(tmp_path, {**devices, "CUDA_VISIBLE_DEVICES": ""})
    assert "the driver shows this user no GPU" in hidden["error"]


def test_no_driver_is_an_error_where_gpus_are_declared_and_a_finding_where_they_are_not(tmp_path: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    code = (
        "import json; from validation import nvml; nvml.LIBRARY='libnone.so'; "
        "nvml.Nvml.__init__.__defaults__ = ('libnone.so',); from validation.measures.gpu.gpu_copies_probe import *; "
        "print(json.dumps([probe(Asked(4096, 2, 2, 0.0, gpus=n)) for n in (4, 0)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    declared, open_ = json.loads(done.stdout)
    assert "the GPU driver is not installed" in declared["error"]
    assert open_["error"] is None
    samples, facts = parse("gpu-copies", open_, {"gpus": 0})
    assert (samples, facts.gpus) == ([], ())  # type: ignore[union-attr]
    with pytest.raises(ParseError, match="nothing was measured of 4 GPUs"):
        parse("gpu-copies", {**open_}, {"gpus": 4})


@compiles
def test_who_is_merely_there_is_named_and_costs_nothing(tmp_path: Path) -> None:
    """An MPS server, a display, a monitor: a context and a little memory."""
    devices = describe(tmp_path, 1 << 30)
    holder = local(tmp_path, devices).start("start(1); alloc(60 << 20); said(os.getpid()); sys.stdin.read()")
    pid = holder.stdout.readline().strip()  # type: ignore[union-attr]
    try:
        facts = read(probed(tmp_path, devices, gpus=2))
    finally:
        holder.communicate()
    assert (facts.holes, [gpu.held for gpu in facts.gpus]) == ([], [False, False])
    assert facts.gpus[0].beside == ""
    assert facts.gpus[1].beside.startswith(f"process {pid} (python")
    assert facts.gpus[1].beside.endswith("60 MiB) is there too")


def test_who_is_beside_a_gpu_stands_beside_its_figures() -> None:
    there = "process 7 (nvidia-cuda-mps, user root, 30 MiB) is there too"
    verdict = judged(lambda params: made.report(params, [made.gpu(0), made.gpu(1, beside=there)]))
    figures = {str(j.subject): j for j in criterion(verdict, "tr.h2d").judgements}
    assert {j.verdict for j in figures.values()} == {"pass"}
    assert {name for name, j in figures.items() if there in j.reason} == {name for name in figures if "GPU 1" in name}


@pytest.mark.parametrize(
    ("processes", "used_mib", "percent", "works"),
    [
        ({}, 300, 0, ""),
        ({7: 30 << 20}, 300, 0, ""),  # an MPS server
        ({7: 30 << 20, 8: 255 << 20}, 700, 3, ""),
        ({7: 256 << 20}, 700, 0, "7"),
        ({7: 30 << 20, 8: 9 << 30}, 9500, 0, "8"),
        ({7: 30 << 20}, 300, 97, "7"),  # little memory, and it works all the same
        ({7: 0}, 40, 0, ""),  # NVML does not say how much: by what the GPU has in use
        ({7: 0}, 700, 0, "7"),
        (None, 300, 50, ""),  # nobody is listed
    ],
)
def test_who_works_is_told_by_memory_and_utilisation(
    processes: dict[int, int] | None, used_mib: int, percent: int, works: str
) -> None:
    said = busy("0000:1a:00.0", processes, (80 << 30, used_mib << 20), percent)
    assert said.partition(" (")[0] == (f"GPU 0000:1a:00.0 is in use by process {works}" if works else "")


def test_memory_that_is_held_without_a_process_is_work_too() -> None:
    assert busy("0000:1a:00.0", {}, (16 << 30, 300 << 20)) == ""
    assert "5120 of 16384 MiB of its memory are held" in busy("0000:1a:00.0", {}, (16 << 30, 5 << 30))
    assert sizes(1 << 20) == [4, 64, 1024, 16384, 262144, 1 << 20]
    assert sizes(1 << 30)[-1] == 4 * 16**7


def test_a_gpu_without_a_numa_node_is_near_no_processor_unless_there_is_one_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_host, "DEVICES", tmp_path)
    monkeypatch.setattr(gpu_host, "NODES", tmp_path / "nodes")
    gpu = tmp_path / "0000:1a:00.0"
    gpu.mkdir()
    (gpu / "local_cpulist").write_text("0-3,8\n")
    (gpu / "numa_node").write_text("1\n")
    (tmp_path / "nodes" / "node0").mkdir(parents=True)
    assert gpu_host.local_cpus(gpu.name) == {0, 1, 2, 3, 8}
    (gpu / "numa_node").write_text("-1\n")
    assert gpu_host.local_cpus(gpu.name) == {0, 1, 2, 3, 8}
    (tmp_path / "nodes" / "node1").mkdir()
    assert gpu_host.local_cpus(gpu.name) == set()
    with gpu_host.near(gpu.name, os.sched_getaffinity(0)) as bound:
        assert not bound


#: In front of the emulated driver: the context of GPU 1 is broken once its memory is taken.
BROKEN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#define REAL(name) ((int (*)()) dlsym(RTLD_NEXT, #name))
static void *bad, *now;
int cuDevicePrimaryCtxRetain(void **to, int device) {
    if (EXCLUSIVE && device == 1) return 46;
    int code = REAL(cuDevicePrimaryCtxRetain)(to, device);
    if (device == 1) bad = *to;
    return code;
}
int cuCtxSetCurrent(void *context) { now = context; return REAL(cuCtxSetCurrent)(context); }
int cuMemHostAlloc(void **to, size_t bytes, unsigned flags) {
    return now == bad ? 214 : REAL(cuMemHostAlloc)(to, bytes, flags);
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, void *from, size_t bytes, void *stream) {
    return now == bad ? 214 : REAL(cuMemcpyHtoDAsync_v2)(to, from, bytes, stream);
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void *stream) {
    return now == bad ? 214 : REAL(cuMemcpyDtoDAsync_v2)(to, from, bytes, stream);
}
"""
BENCH = """
import json, sys
from validation.probes.cuda import Cuda, CudaError
from validation.probes.gpu_bench import Asked, Bench
try:
    print(json.dumps(Bench(Cuda(sys.argv[1]), Asked(65536, 2, 3, 0.01)).run({})))
except CudaError as fault:
    print(json.dumps(str(fault)))
"""


def with_a_broken_gpu(tmp_path: Path, **flags: int) -> Any:
    """What the bench says where GPU 1 is broken."""
    front, devices = tmp_path / "libfront.so", describe(tmp_path)
    defined = [f"-D{name}={value}" for name, value in {"EXCLUSIVE": 0, **flags}.items()]
    command = ["cc", "-shared", "-fPIC", "-w", "-xc", *defined, "-o", str(front), "-", "-xnone"]
    command += ["-Wl,--no-as-needed", str(built() / "devices" / "libcuda.so.1"), "-ldl"]
    subprocess.run(command, input=BROKEN, text=True, check=True)
    environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(built() / "devices"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BENCH, str(front)]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@compiles
def test_a_gpu_that_breaks_costs_its_own_cells_and_no_others(tmp_path: Path) -> None:
    cells = with_a_broken_gpu(tmp_path)["cells"]
    wrong = {(c["what"], c["source"], c["target"]) for c in cells if "error" in c}
    assert ("h2d", None, 1) in wrong
    assert {(c["what"], c["source"], c["target"]) for c in cells} - wrong >= {("h2d", None, 0), ("d2h", 0, None)}
    assert all(c["verified"] for c in cells if c["target"] == 0 and c["source"] is None)
    assert next(c["error"] for c in cells if (c["what"], c["target"]) == ("h2d", 1)).startswith("cuMem")


@compiles
def test_the_gpu_that_does_not_let_itself_be_taken_is_named_and_the_other_is_measured(tmp_path: Path) -> None:
    report = with_a_broken_gpu(tmp_path, EXCLUSIVE=1)
    said = report["devices"][1]["untaken"]
    assert said.startswith("GPU 1 of CUDA: cuDevicePrimaryCtxRetain: ")
    assert "its compute mode is exclusive" in said
    assert [device["held"] for device in report["devices"]] == [False, True]
    wrong = {(c["what"], c["source"], c["target"]) for c in report["cells"] if "error" in c}
    assert all(1 in way for way in wrong)
    assert all(c["verified"] for c in report["cells"] if 1 not in (c["source"], c["target"]))


OLDER = """
import json, sys
from validation.probes.cuda import Cuda, Device
class Older:
    def __init__(self, library):
        self.library = library
    def __getattr__(self, name):
        if name == "cuDeviceGetUuid_v2":
            raise AttributeError(name)
        return getattr(self.library, name)
cuda = Cuda()
cuda.library = Older(cuda.library)
print(json.dumps([Device(cuda, number).uuid for number in range(2)]))
"""


@compiles
def test_a_driver_before_r470_tells_the_uuid_by_the_older_name(tmp_path: Path) -> None:
    devices = {**describe(tmp_path), "LD_LIBRARY_PATH": str(built() / "devices"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", OLDER], env={**os.environ, **devices}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == UUIDS


def test_nvml_without_a_part_of_nvlinks_costs_the_links_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_copies_probe.nvlinks, "collect", lambda: LIBC.nvmlDeviceGetNothing())
    known, unread = gpu_copies_probe.links()
    assert known is None
    assert "nvmlDeviceGetNothing" in unread


@compiles
@pytest.mark.parametrize("wanted", [0, 2])
def test_gpus_that_the_environment_hides_are_no_measurement_of_all(tmp_path: Path, wanted: int) -> None:
    doc = probed(tmp_path, {**describe(tmp_path), "CUDA_VISIBLE_DEVICES": "1"}, gpus=wanted)
    assert doc["error"] == "CUDA shows 1 of the 2 GPUs that NVML shows: CUDA_VISIBLE_DEVICES is set to '1'"
    assert doc["stdout"] == ""


def test_why_cuda_shows_fewer_gpus_is_told_where_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_host.hidden(1, 8, 8, mig=True).endswith("MIG is on, and of its instances CUDA shows one")
    assert gpu_host.hidden(7, 8, 0, mig=False) == "CUDA shows 7 of the 8 GPUs that NVML shows"
    assert gpu_host.hidden(7, 8, 8, mig=False) == ""  # a hole of the matrix
    assert gpu_host.hidden(7, 7, 8, mig=False) == ""  # likewise
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert gpu_host.hidden(1, 8, 1, mig=False) == ""


# --- what does not add up


def changed(change: Any) -> dict[str, Any]:
    report = made.report(PARAMS)
    change(report)
    return made.document(report)


def test_two_ordinals_of_one_gpu_are_named() -> None:
    twice = [made.gpu(0), made.gpu(1), made.gpu(2, uuid=made.gpu(0)["uuid"])]
    with pytest.raises(ParseError, match="ordinals 0 and 2 are one GPU, GPU-0000"):
        parse("gpu-copies", made.document(made.report(PARAMS, twice)), PARAMS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.update(devices=[]),  # exit 0 with nothing measured
        lambda r: r.update(cells=[]),
        lambda r: r["devices"][1].update(uuid=r["devices"][0]["uuid"]),  # two ordinals of one GPU
        lambda r: r["cells"].pop(),
        lambda r: r["cells"].append(r["cells"][0]),
        lambda r: r["latencies"].pop(),
        lambda r: r["peers"].pop(),
        lambda r: r["cells"][0]["event_s"].pop(),
        lambda r: r["cells"][0]["clock_s"].__setitem__(0, 0),
        lambda r: r["cells"][-1]["event_s"].__setitem__(0, 1e9),  # longer than the clock saw
        lambda r: r["cells"][-1].update(counted=3 * r["cells"][-1]["counted"]),
        lambda r: r.update(largest_bytes=2 * r["largest_bytes"]),
        lambda r: r["devices"][0]["state"].update(sm_mhz=-1),
        lambda r: r["latencies"][0]["us"].__setitem__(0, 0),
    ],
)
def test_what_does_not_add_up_is_refused(change: Any) -> None:
    assert parse("gpu-copies", made.document(made.report(PARAMS)), PARAMS)  # type: ignore[arg-type]
    with pytest.raises(ParseError):
        parse("gpu-copies", changed(change), PARAMS)  # type: ignore[arg-type]


def test_nvml_and_cuda_of_different_drivers_are_refused() -> None:
    doc = made.document(made.report(PARAMS), facts={"driver": "", "emulated": True, "gpus": 2})
    with pytest.raises(ParseError, match="not of one driver"):
        parse("gpu-copies", doc, PARAMS)  # type: ignore[arg-type]
