"""`toolkit validate --here` on GPUs that are real for all it can tell: no PCI function, an H100's name, NVML's count.

The emulated devices stand in for them, compiled without what says that they are emulated. What they measure is memory
of this host, so that no figure is looked at: only that figures are judged at all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.engine_run import ROOT, describe
from toolkit.engine import build
from validation.model import Topology, VerdictDoc
from validation.model.load import load_json
from validation.probes import pcie

pytestmark = [
    pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}"),
    pytest.mark.skipif(any(c["what"] == "gpu" for c in pcie.collect([])), reason="this machine has GPUs of its own"),
]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both libraries, that say nothing of emulation."""
    folder = tmp_path_factory.mktemp("unmarked")
    shutil.copytree(build.SOURCES, folder / "engine")
    config = folder / "engine/devices/config.c"
    text = config.read_text()
    for said, unsaid in (("elasticAiEmulated", "elasticAiUnmarked"), ('"Emulated "', '""')):
        assert said in text
        text = text.replace(said, unsaid)
    config.write_text(text)
    header = folder / "engine/devices/emulated.h"
    header.write_text(header.read_text().replace("elasticAiEmulated", "elasticAiUnmarked"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "SOURCES", folder / "engine")
        build.compile_devices(folder / "lib")
    return folder / "lib"


def test_their_own_rates_are_judged_as_an_inspection(tmp_path: Path, libraries: Path) -> None:
    link = {"pcie_generation": 5, "pcie_width": 16, "pcie_max_generation": 5, "pcie_max_width": 16}
    devices = describe(tmp_path, 1 << 30, name="NVIDIA H100 80GB HBM3", compute_capability="9.0", **link)
    (tmp_path / "run").mkdir()
    command = [sys.executable, "-m", "toolkit", "validate", "--here", "--quick", "--format", "none"]
    command += ["--suite", "preflight", "--suite", "transport"]
    environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(libraries), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path / "run", capture_output=True, text=True, env=environment, check=False)
    assert "GPUs: 2\n" in done.stderr, done.stderr
    (run,) = (tmp_path / "run/runs").iterdir()
    here = load_json(run / "topology.json", Topology).here
    assert here is not None
    assert (here.gpus, here.emulated, here.gpu_trouble) == (2, False, "")
    verdict = load_json(run / "verdict.json", VerdictDoc)
    assert verdict.sign_off == "INSPECTION"
    for id_ in ("tr.h2d", "tr.hbm", "tr.local"):
        judgements = next(c for c in verdict.criteria if c.id == id_).judgements
        assert judgements
        assert "virtual" not in {j.reason_code for j in judgements}, [j.reason for j in judgements]
        assert all(j.bound is not None for j in judgements)
    (hbm, *_) = next(c for c in verdict.criteria if c.id == "tr.hbm").judgements
    assert hbm.bound is not None
    assert hbm.bound.ceiling == 3350
    assert (hbm.verdict, hbm.reason_code) == ("fail", "below-floor")  # host memory is no HBM
