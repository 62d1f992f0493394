"""The probe gpu-load on emulated devices: memory is placed and its place is read, data are verified, nothing stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.engine_run import MIB, ROOT, built, describe, local
from toolkit.engine import build
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.gpu.gpu_load_probe import Loads
from validation.measures.gpu.kinds import EMULATED_LOAD
from validation.measures.gpu.load import GpuLoadFacts
from validation.nvml import NvmlError
from validation.probes.cuda import CudaError

pytestmark = [
    pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}"),
    pytest.mark.engines,
]


def probed(tmp_path: Path, devices: dict[str, str], **asked: Any) -> dict[str, Any]:
    """What the probe prints on emulated devices."""
    environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(built() / "devices"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "validation.probes", "gpu-load", json.dumps({**EMULATED_LOAD, **asked})]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_copies_from_each_node_and_on_all_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    devices = describe(tmp_path)
    doc = probed(tmp_path, devices, gpus=2)
    assert doc["error"] is None
    samples, facts = parse("gpu-load", doc, {**EMULATED_LOAD, "gpus": 2})  # type: ignore[arg-type]
    assert isinstance(facts, GpuLoadFacts)
    assert facts.emulated
    assert {(cell.gpu, cell.what) for cell in facts.cells} == {(gpu, way) for gpu in (0, 1) for way in ("h2d", "d2h")}
    assert all(cell.gb_s and not cell.fault for cell in facts.cells)
    assert all(cell.placed is None or cell.placed > 0 for cell in facts.cells)
    assert [(one.what, one.fault, len(one.each_gb_s)) for one in facts.together] == [("h2d", "", 2), ("d2h", "", 2)]
    assert {sample.metric for sample in samples} == {"gpu_all_h2d_gb_s", "gpu_all_d2h_gb_s"}
    assert local(tmp_path, devices).run("start(); said(info())")[0] == [256 * MIB, 256 * MIB]


def test_a_gpu_that_is_missing_refuses_the_whole(tmp_path: Path) -> None:
    doc = probed(tmp_path, describe(tmp_path), gpus=3)
    with pytest.raises(ParseError, match="2 of 3 GPUs are there"):
        parse("gpu-load", doc, {**EMULATED_LOAD, "gpus": 3})  # type: ignore[arg-type]


def test_a_node_without_a_driver_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(tmp_path)}
    command = [sys.executable, "-m", "validation.probes", "gpu-load", json.dumps({**EMULATED_LOAD, "gpus": 0})]
    doc = json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout)
    samples, facts = parse("gpu-load", doc, {**EMULATED_LOAD, "gpus": 0})
    assert isinstance(facts, GpuLoadFacts)
    assert (samples, facts.gpus, "the GPU driver is not installed" in facts.why) == ([], (), True)
    wanted = json.dumps({**EMULATED_LOAD, "gpus": 1})
    doc = json.loads(subprocess.run([*command[:-1], wanted], env=environment, capture_output=True, check=False).stdout)
    assert "the GPU driver is not installed" in doc["error"]


def ended_by(tmp_path: Path, number: int, copies: int) -> GpuLoadFacts:
    """The facts where a memory error of one of two GPUs ends its process after so many copies there."""
    devices = describe(tmp_path, ecc_enabled=1, ecc_uncorrected=0)
    gpus = json.loads((tmp_path / "gpus.json").read_text())["gpus"]
    gpus[number] |= {"xid_after": copies}
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": gpus}))
    doc = probed(tmp_path, devices, gpus=2, warm_s=0.0)
    assert doc["error"] is None, doc["error"]
    facts = parse("gpu-load", doc, {**EMULATED_LOAD, "gpus": 2})[1]  # type: ignore[arg-type]
    assert isinstance(facts, GpuLoadFacts)
    assert local(tmp_path, devices).run(f"start({1 - number}); said(info())")[0] == [256 * MIB, 256 * MIB]
    return facts


def test_an_error_that_ends_its_process_is_one_gpus_and_the_other_is_measured(tmp_path: Path) -> None:
    facts = ended_by(tmp_path, 0, 10)  # in its own turn, in which there are 19
    assert {cell.gpu for cell in facts.cells if cell.fault} == {0}
    assert {cell.gpu for cell in facts.cells if cell.gb_s} == {1}
    for why in [cell.fault for cell in facts.cells if cell.gpu == 0] + [one.fault for one in facts.together]:
        assert why.startswith("GPU 0 of CUDA: cuMem"), why
        assert "CUDA_ERROR_ECC_UNCORRECTABLE (214)" in why
        assert "; this ended all work of its process" in why


def test_one_that_comes_while_all_work_is_named_and_what_was_measured_before_is_kept(tmp_path: Path) -> None:
    facts = ended_by(tmp_path, 1, 25)
    assert all(cell.gb_s and not cell.fault for cell in facts.cells)
    assert {one.what for one in facts.together if one.fault} >= {"d2h"}
    for one in facts.together:
        if one.fault:
            assert one.fault.startswith("GPU 1 of CUDA: ")
            assert "; NVML counts 1 memory errors more of it; " in one.fault


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ([0, 3], "GPU 1 of CUDA: it failed; NVML counts 3 memory errors more of it"),
        ([0, None], "GPU 1 of CUDA: it failed; NVML cannot read it any more"),
        ([0, 0], "GPU 0 of CUDA, whose call was the first that failed: it failed"),
        ([None, None], "GPU 0 of CUDA: it failed; NVML cannot read it any more"),
    ],
)
def test_whose_error_it_was_is_what_nvml_counts_before_the_order_of_the_calls(
    now: list[int | None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def errors(number: int) -> int:
        if now[number] is None:
            raise NvmlError("it has fallen off the bus")
        return now[number] or 0

    monkeypatch.setattr("validation.measures.gpu.gpu_load_probe.memory_errors", errors)
    bench: Any = SimpleNamespace(cuda=None, largest=4096, devices=[SimpleNamespace(uuid=uuid) for uuid in "ab"])
    found = Loads(bench, None, []).culprit(CudaError("it failed"), {"a": 0, "b": 0}, {"a": 0, "b": 1})  # type: ignore[arg-type]
    assert found == f"{said}; this ended all work of its process"
