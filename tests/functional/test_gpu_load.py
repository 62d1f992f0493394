"""The probe gpu-load on emulated devices: memory is placed and its place is read, data are verified, nothing stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import MIB, ROOT, built, describe, local
from toolkit.engine import build
from validation.facts import GpuLoadFacts
from validation.kinds import parse
from validation.kinds.gpu import EMULATED_LOAD
from validation.parsers.common import ParseError

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")


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
