"""What is said of a GPU while it is measured: on emulated devices, and where nothing can be said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_run import ROOT, UUIDS, built, describe
from toolkit.engine import build

WATCH = """
import json, sys, time
from validation.probes.gpu_watch import Watch, address
watch = Watch(address(int(sys.argv[1])))
with watch:
    time.sleep(0.9)
print(json.dumps({"address": watch.address, "who": watch.who, "watch": watch.document()}))
"""


def watched(index: int, environment: dict[str, str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", WATCH, str(index)], env={**os.environ, **environment}, cwd=ROOT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
def test_the_gpu_that_cuda_means_is_watched_and_no_other(tmp_path: Path) -> None:
    environment = {"LD_LIBRARY_PATH": str(built() / "devices"), **describe(tmp_path)}
    found = [watched(index, environment) for index in (0, 1)]
    assert [one["who"]["uuid"] for one in found] == UUIDS
    assert len({one["address"] for one in found}) == 2
    for one in found:
        assert one["who"]["others"] == {}
        assert one["watch"]["said"] == ""
        assert one["watch"]["samples"] >= 2


def test_without_a_driver_there_is_a_reason_and_no_figure(tmp_path: Path) -> None:
    found = watched(0, {"LD_LIBRARY_PATH": str(tmp_path)})
    assert found["address"] == ""
    assert found["watch"]["samples"] == 0
    assert "the GPU driver is not installed" in found["watch"]["said"]
    assert "sm_mhz" not in found["watch"]
