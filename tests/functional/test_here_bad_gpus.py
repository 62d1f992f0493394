"""`toolkit validate --here` where its GPUs are in trouble: one clear sentence, the rest is finished, nothing is left.

The GPUs are emulated ones, by the libraries that the probes load; drivers that are broken are stand-ins compiled here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import MIB, ROOT, built, describe, local, wait_for
from tests.support.run_case import processes_of
from toolkit.engine import build
from toolkit.here import Driver, ask_driver, library_trouble
from validation.model import Topology, VerdictDoc
from validation.model.load import load_json
from validation.nvml import INIT
from validation.probes.cuda import HINTS
from validation.probes.gpu_host import who

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
HOLD = "start(1); alloc({} << 20); said(os.getpid()); sys.stdin.read()"
HELD = """
from validation.nvml import Nvml
with Nvml() as nvml: said([gpu.processes() for gpu in nvml.gpus()])
"""


def start(folder: Path, devices: dict[str, str], *arguments: str, quick: bool = True) -> subprocess.Popen[str]:
    environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(built() / "devices"), "PYTHONPATH": str(ROOT)}
    command = [
        sys.executable,
        "-m",
        "toolkit",
        "validate",
        "--here",
        *(["--quick"] if quick else []),
        "--format",
        "none",
        *arguments,
    ]
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def here(folder: Path, devices: dict[str, str], *arguments: str) -> tuple[int, VerdictDoc, str]:
    """Exit code, verdict and stderr of a run in a folder of its own."""
    folder.mkdir()
    process = start(folder, devices, *arguments)
    _, err = process.communicate(timeout=120)
    (run,) = (folder / "runs").iterdir()
    return process.returncode, load_json(run / "verdict.json", VerdictDoc), err


def reason(verdict: VerdictDoc, id_: str) -> str:
    return next(c for c in verdict.criteria if c.id == id_).reason


@pytest.fixture
def worked_on(tmp_path: Path) -> Iterator[tuple[dict[str, str], str]]:
    """Two GPUs, on the second of which somebody works; his process."""
    devices = describe(tmp_path, 1 << 30)
    holder = local(tmp_path, devices).start(HOLD.format(300))
    try:
        yield devices, holder.stdout.readline().strip()  # type: ignore[union-attr]
    finally:
        holder.communicate()


def test_emulated_gpus_are_found_said_and_recorded(tmp_path: Path) -> None:
    code, verdict, err = here(tmp_path / "run", describe(tmp_path), "--suite", "preflight", "--suite", "transport")
    assert "GPUs: 2, emulated: they prove no rate" in err
    (run,) = (tmp_path / "run/runs").iterdir()
    found = load_json(run / "topology.json", Topology).here
    assert found is not None
    assert (found.gpus, found.emulated, found.gpu_trouble) == (2, True, "")
    assert "emulated" in reason(verdict, "tr.matrix")
    assert verdict.sign_off in ("INSPECTION", "REHEARSAL")
    assert (code == 0) == (verdict.sign_off == "REHEARSAL")  # on hardware they are no GPUs of its


def test_who_works_on_a_gpu_is_named_and_it_is_refused_unless_it_is_asked_for(
    tmp_path: Path, worked_on: tuple[dict[str, str], str]
) -> None:
    devices, pid = worked_on
    code, verdict, err = here(tmp_path / "run", devices, "--suite", "preflight", "--suite", "transport")
    assert code == 3
    said = reason(verdict, "tr.matrix")
    name = Path(f"/proc/{pid}/comm").read_text().strip()
    assert f"GPU 0000:11:00.0 is in use by process {pid} ({name}, user {Path(f'/proc/{pid}').owner()}, 300 MiB)" in said
    assert "end it, or measure with --anyway" in said
    assert "0000:10:00.0" not in said
    assert "Traceback" not in err
    assert verdict.measured == verdict.planned  # the rest is finished, and so is the other GPU
    figures = {str(j.subject): j for c in verdict.criteria if c.id == "tr.h2d" for j in c.judgements}
    assert figures[f"{verdict.site}, H to GPU 0"].value
    assert not figures[f"{verdict.site}, H to GPU 1"].value
    _, verdict, _ = here(tmp_path / "again", devices, "--suite", "transport", "--anyway")
    assert verdict.measured == verdict.planned == 1


def test_memory_that_is_taken_is_one_sentence_and_the_rest_is_finished(tmp_path: Path) -> None:
    devices = describe(tmp_path, 201 * MIB, context_bytes=MIB)
    holder = local(tmp_path, devices).start(HOLD.format(200))
    holder.stdout.readline()  # type: ignore[union-attr]
    try:
        code, verdict, err = here(tmp_path / "run", devices, "--suite", "preflight", "--suite", "transport", "--anyway")
    finally:
        holder.communicate()
    assert code in (1, 3)
    assert "GPU 1" in reason(verdict, "tr.matrix")
    assert "CUDA_ERROR_OUT_OF_MEMORY (2); the memory is taken by somebody else" in reason(verdict, "tr.matrix")
    assert "Traceback" not in err
    assert verdict.measured >= verdict.planned - 1


def test_a_gpu_that_is_lost_in_mid_run_costs_its_own_cells_and_the_rest_is_finished(tmp_path: Path) -> None:
    devices = describe(tmp_path)
    first, last = json.loads((tmp_path / "gpus.json").read_text())["gpus"]
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": [first, {**last, "lost_after": 100}]}))
    _, verdict, err = here(tmp_path / "run", devices, "--suite", "preflight", "--suite", "transport")
    assert verdict.measured == verdict.planned
    assert "CUDA_ERROR_UNKNOWN (999); look at dmesg for NVRM and Xid" in reason(verdict, "tr.matrix")
    figures = {str(j.subject): j for c in verdict.criteria if c.id == "tr.h2d" for j in c.judgements}
    assert figures[f"{verdict.site}, H to GPU 0"].value  # measured, though of emulated GPUs not judged
    assert not figures[f"{verdict.site}, H to GPU 1"].value
    assert "GPU 1: NVML error 15, it has fallen off the bus" in reason(verdict, "pf.gpuhealth") or "emulated" in reason(
        verdict, "pf.gpuhealth"
    )
    assert "Traceback" not in err


def test_an_error_that_ends_its_process_in_mid_run_is_one_gpus_and_the_others_are_measured(tmp_path: Path) -> None:
    devices = describe(tmp_path, ecc_enabled=1, ecc_uncorrected=0)
    first, last = json.loads((tmp_path / "gpus.json").read_text())["gpus"]
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": [{**first, "xid_after": 100}, last]}))
    _, verdict, err = here(tmp_path / "run", devices, "--suite", "preflight", "--suite", "transport")
    assert verdict.measured == verdict.planned
    said = reason(verdict, "tr.matrix")
    assert "GPU 0 of CUDA: " in said
    assert "CUDA_ERROR_ECC_UNCORRECTABLE (214); an uncorrectable memory error: look at dmesg for NVRM and Xid" in said
    assert "the other GPUs were measured without it" in said
    assert "GPU 1 of CUDA" not in said
    figures = {str(j.subject): j for c in verdict.criteria if c.id == "tr.h2d" for j in c.judgements}
    assert figures[f"{verdict.site}, H to GPU 1"].value  # though it came after the error
    assert not figures[f"{verdict.site}, H to GPU 0"].value
    assert "GPU 0 (0000:10:00.0): 1 uncorrectable" in reason(verdict, "pf.gpuhealth")
    assert "Traceback" not in err
    assert local(tmp_path, devices).run(HELD)[0] == [{}, {}]


def test_memory_that_is_taken_in_mid_run_costs_what_comes_after_it_alone(tmp_path: Path) -> None:
    devices = describe(tmp_path)
    first, last = json.loads((tmp_path / "gpus.json").read_text())["gpus"]
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": [first, {**last, "taken_after": 100}]}))
    (tmp_path / "run").mkdir()
    process = start(tmp_path / "run", devices, "--suite", "transport", quick=False)
    _, err = process.communicate(timeout=300)
    (run,) = (tmp_path / "run/runs").iterdir()
    verdict = load_json(run / "verdict.json", VerdictDoc)
    assert process.returncode in (1, 3)
    assert reason(verdict, "tr.matrix").count("CUDA_ERROR") == 0  # all copies were done before
    said = [j.reason for c in verdict.criteria if c.id in ("tr.h2dnuma", "tr.h2dall") for j in c.judgements]
    why = "CUDA_ERROR_OUT_OF_MEMORY (2); the memory is taken by somebody else"
    assert any("GPU 1 of CUDA" in words and why in words for words in said), said
    assert not any("GPU 0 of CUDA" in words for words in said)
    assert "Traceback" not in err
    assert local(tmp_path, devices).run(HELD)[0] == [{}, {}]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_mid_run_leaves_nothing_on_the_gpu(tmp_path: Path, number: signal.Signals) -> None:
    devices = describe(tmp_path, slow_percent=99)
    (tmp_path / "run").mkdir()
    process = start(tmp_path / "run", devices, "--suite", "transport")
    client = local(tmp_path, devices)
    held: Any = []

    def working() -> bool:
        held[:] = [pid for of in client.run(HELD)[0] for pid in of or ()]
        return bool(held) or process.poll() is not None

    wait_for(working, 60)
    assert process.poll() is None, process.communicate()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "0 of 1 measurement are finished and kept" in err
    assert "Traceback" not in out + err
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in held), 10)
    assert client.run(HELD)[0] == [{}, {}]
    assert processes_of("gpu-copies", str(tmp_path)) == []


#: A driver's library whose start fails, hangs or ends the program.
BROKEN = "#include <stdlib.h>\n#include <unistd.h>\nint nvmlInit_v2(void) {{ {} }}\n"


def broken(folder: Path, how: str) -> Path:
    library = folder / "libnvidia-ml.so.1"
    command = [shutil.which("cc") or "gcc", "-shared", "-fPIC", "-xc", "-o", str(library), "-"]
    subprocess.run(command, input=BROKEN.format(how), text=True, check=True)
    return folder


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("return 18;", "library and kernel module of the driver are of different versions: load the installed module"),
        ("return 9;", "the kernel module of the driver is not loaded: modprobe nvidia"),
        ("return 4;", "this user cannot open the device files"),
        ("return 999;", "NVML error 999; does nvidia-smi work?"),
        ("sleep(60); return 0;", "NVML did not answer within 2 s; look at dmesg"),
        ("abort();", "a process that asks the driver's libraries ends; look at dmesg"),
    ],
)
def test_a_driver_that_does_not_start_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, words: str
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(broken(tmp_path, how)))
    driver = ask_driver(2 if "sleep" in how else 60)
    (tmp_path / "driver/nvidia").mkdir(parents=True)
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
    (tmp_path / "driver/nvidia/version").write_text(version)
    said = library_trouble(("0000:18:00.0",), driver, tmp_path)
    assert said.startswith("kernel module 550.54.15 is loaded, but: ")
    assert words in said
    assert "\n" not in said


def test_a_module_without_libraries_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    if not shutil.which("nvidia-smi"):
        said = library_trouble(("0000:18:00.0",), ask_driver(), tmp_path)
        assert said.startswith(
            "the kernel module is loaded, but: no libnvidia-ml.so.1: the GPU driver is not installed;"
        )
    shutil.copy(built() / "devices/libnvidia-ml.so.1", tmp_path)
    monkeypatch.setenv("ELASTIC_AI_EMULATED_GPUS", describe(tmp_path)["ELASTIC_AI_EMULATED_GPUS"])
    monkeypatch.setenv("ELASTIC_AI_EMULATED_STATE", str(tmp_path / "state"))
    if not shutil.which("nvidia-smi"):
        assert ask_driver().trouble.startswith("libcuda.so.1 cannot be loaded: ")
    assert library_trouble((), Driver(False, 0, "no libnvidia-ml.so.1"), tmp_path) == ""
    assert library_trouble(("0000:18:00.0",), Driver(False, 1, ""), tmp_path) == ""


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/usr/bin/python3").exists(), reason="needs root, to be another user")
def test_a_user_without_rights_is_told_so_by_both_libraries() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
            shutil.copy(built() / "devices" / library, folder)
        devices = describe(folder)
        (folder / "gpus.json").chmod(0o644)
        (folder / "state").touch(0o600)
        code = "import ctypes; print(*(getattr(ctypes.CDLL(n), f)(0) for n, f in {}.items()))"
        asked = {"libcuda.so.1": "cuInit", "libnvidia-ml.so.1": "nvmlInit_v2"}
        command = ["/usr/bin/python3", "-I", "-c", code.format(asked)]
        environment = {**devices, "LD_LIBRARY_PATH": name}
        said = subprocess.run(command, env=environment, cwd="/", user=65534, capture_output=True, text=True, check=True)
    cuda, nvml = map(int, said.stdout.split())
    assert HINTS[cuda] == "may this user open /dev/nvidia*?"
    assert INIT[nvml].startswith("this user cannot open the device files")


COMPUTE = """
import json, sys
from validation.measures.compute import gpu_compute_probe as gpu_compute
gpu_compute.gpus_here = lambda: 2
asked = dict(lists=["gemm"], precisions=["fp32"], most=1, sustained=[], least_s=0.01, batches=1, exact=0)
doc = gpu_compute.probe(gpu_compute.Asked(**asked, python="/bin/echo", **json.loads(sys.argv[1])))
print(json.dumps([doc["error"], doc["stdout"]]))
"""


def test_compute_is_refused_on_a_gpu_that_somebody_works_on(
    tmp_path: Path, worked_on: tuple[dict[str, str], str]
) -> None:
    devices, pid = worked_on

    def compute(least: int = 1, **asked: Any) -> Any:
        environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(built() / "devices"), "PYTHONPATH": str(ROOT)}
        code = COMPUTE.replace("gpu_compute.gpus_here", f"gpu_compute.HELD_BYTES = {least}\ngpu_compute.gpus_here")
        command = [sys.executable, "-c", code, json.dumps(asked)]
        return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    said, out = compute()
    assert f"GPU 0000:11:00.0 is in use by process {pid} (" in said
    assert out == ""
    for error, out in (compute(anyway=True), compute(device="cpu"), compute(1 << 30)):
        assert "in use" not in (error or "")
        assert out  # the worker was started


def test_a_process_that_nobody_sees_is_named_by_its_number() -> None:
    assert who(1 << 30, 5 << 20) == f"{1 << 30} (of another container or user, 5 MiB)"
    assert who(os.getpid(), 0).startswith(f"{os.getpid()} (")
    assert f", user {Path('/proc/self').owner()})" in who(os.getpid(), 0)


def test_a_program_whose_name_the_kernel_has_cut_in_a_letter_is_told(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/comm").write_bytes("学習プログラム".encode()[:15] + b"\n")
    (tmp_path / "8").mkdir()
    (tmp_path / "8/comm").write_bytes("gr\u00f6\u00dfenmessung\u00e4".encode()[:15] + b"\n")
    assert who(7, 1 << 20, tmp_path).startswith("7 (学習プログラム"[:6])
    assert "1 MiB)" in who(7, 1 << 20, tmp_path)
    assert who(8, 0, tmp_path).startswith("8 (größenmessung")
