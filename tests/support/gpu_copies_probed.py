"""The probe gpu-copies on emulated GPUs, in a process of its own, and what is read of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.engine_run import MIB, ROOT, built, describe
from validation.kinds import parse
from validation.measures.gpu.copies_facts import GpuCopyFacts

ASKED = {"largest_bytes": MIB, "repeat": 6, "latency_count": 20, "warm_s": 0.02}


def probed(folder: Path, gpus: int, libraries: Path | None = None, **last: Any) -> dict[str, Any]:
    """What the probe prints of so many emulated GPUs, the last of which is described so.

    libraries: the folder of the emulated driver, else that of the built one.
    """
    devices = describe(folder)
    (one, _) = json.loads((folder / "gpus.json").read_text())["gpus"]
    several = [
        {**one, "uuid": f"GPU-00000000-0000-0000-0000-00000000000{n}", "pci_bus_id": f"00000000:1{n}:00.0"}
        for n in range(gpus)
    ]
    several[-1] |= last
    (folder / "gpus.json").write_text(json.dumps({"gpus": several}))
    environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(libraries or built() / "devices")}
    command = [sys.executable, "-m", "validation.probes", "gpu-copies", json.dumps({**ASKED, "gpus": gpus})]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    doc: dict[str, Any] = json.loads(done.stdout)
    assert doc["error"] is None, doc["error"]
    return doc


def read(doc: dict[str, Any], gpus: int) -> GpuCopyFacts:
    """Its facts."""
    facts = parse("gpu-copies", doc, {**ASKED, "gpus": gpus})[1]  # type: ignore[arg-type]
    assert isinstance(facts, GpuCopyFacts)
    return facts
