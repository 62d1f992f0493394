"""What looks like a measurement of GPUs and is none: the list of docs/explanation/measuring/gpu-traps.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import ROOT, built, describe
from tests.support.gpu_health_case import read
from tests.support.recordings import RECORDINGS
from tests.support.site import criterion, lab, plan_of, results_of, verdict_of
from toolkit.engine import build
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.gpu.kinds import EMULATED
from validation.model import Measurement, Result

pytestmark = pytest.mark.engines

OF_GPUS = ("gpu-copies", "gpu-compute", "gpu-health", "collectives", "collectives nccl-tests")


@pytest.mark.parametrize("said", ["", "{}", "\n", "null"])
@pytest.mark.parametrize("name", OF_GPUS)
def test_a_report_of_nothing_is_refused(name: str, said: str) -> None:
    document, params = RECORDINGS[name]
    kind = document["kind"]
    assert parse(kind, document, params)  # type: ignore[arg-type]
    empty: Any = {**document, "stdout": said, "returncode": 0, "error": None}
    with pytest.raises(ParseError):
        parse(kind, empty, params)


def probe(environment: dict[str, str], kind: str, asked: dict[str, Any]) -> Any:
    command = [sys.executable, "-m", "validation.probes", kind, json.dumps(asked)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
def test_mig_that_is_on_by_accident_is_named(tmp_path: Path) -> None:
    devices = describe(tmp_path, ecc_enabled=1, ecc_uncorrected=0, ecc_corrected=0, persistence=1, throttle_reasons=1)
    first, last = json.loads((tmp_path / "gpus.json").read_text())["gpus"]
    environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(built() / "devices")}
    healthy = probe(environment, "gpu-health", {})
    (tmp_path / "gpus.json").write_text(json.dumps({"gpus": [first, {**last, "mig": "1,1"}]}))
    divided = probe(environment, "gpu-health", {})
    copies = probe(environment, "gpu-copies", {**EMULATED, "gpus": 2})
    assert (
        copies["error"] == "CUDA shows 1 of the 2 GPUs that NVML shows: MIG is on, and of its instances CUDA shows one"
    )
    topology = lab(("gpu1", "gpu2"), emulated_gpus=2)
    plan = plan_of(topology, ("preflight",))

    def said(m: Measurement) -> Result | None:
        facts = (divided if m.nodes == ("gpu2",) else healthy)["facts"]
        return read(m, facts, 0) if m.kind == "gpu-health" else None

    found = criterion(verdict_of(topology, plan, results_of(plan, said)), "pf.gpuhealth")
    reasons = {str(j.subject): j.reason for j in found.judgements}
    assert "GPU 1 (0000:11:00.0): MIG is on, and the inventory does not declare it (gpu_mig)" in reasons["gpu2"]
    assert "GPU 0" not in reasons["gpu2"].partition("MIG is on")[0]
    assert "MIG" not in reasons["gpu1"]


def test_every_test_of_the_table_is_there() -> None:
    page = (ROOT / "docs/explanation/measuring/gpu-traps.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    texts = [
        path.read_text()
        for folder in ("unit", "functional", "engine")
        for path in (ROOT / "tests" / folder).glob("*.py")
    ]
    there = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert len(named) > 10
    assert named <= there, named - there
