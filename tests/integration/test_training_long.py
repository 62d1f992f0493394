"""The long training on provisioned nodes: a small network learns the tiny set, is killed, and goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN, ROOT, Lab, Provisioned

from validation.plan.offered import IN_MEMORY

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.rest]
PROGRAM = "train_long.py"


def steps_kept(lab: Lab) -> int:
    """Of the newest checkpoint on the node of rank 0."""
    text = lab.ssh("gpu1", f"cat {IN_MEMORY}/latest.json 2>/dev/null || true")
    return int(json.loads(text)["checkpoints"][0]["step"]) if text else 0


def ended(lab: Lab) -> bool:
    """Whether no rank and no launcher is left on any node, after the time that the supervisors allow themselves."""
    for _ in range(60):
        if not any(lab.processes(node, f"{PROGRAM}|mpirun") for node in ("head", "gpu1", "gpu2")):
            return True
        time.sleep(0.5)
    return False


def test_a_killed_training_goes_on_and_learns(provisioned: Provisioned, tmp_path: Path) -> None:
    lab = provisioned.lab
    words = [
        BIN / "toolkit",
        "validate",
        "--suite",
        "training",
        "--long",
        "--fabric",
        "tcp10",
        "-i",
        lab.inventory,
        "--runs-dir",
        tmp_path / "runs",
    ]
    words += [
        "--data",
        "tiny:tar",
        "--models",
        "small-resnet",
        "--batch",
        "8",
        "--epochs",
        "4",
        "--checkpoint-steps",
        "3",
    ]
    try:
        process = subprocess.Popen([*map(str, words), "--format", "json"], cwd=ROOT)
        until = time.monotonic() + 300
        while steps_kept(lab) < 12:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < until, "no checkpoint"
            time.sleep(0.5)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        assert ended(lab)
        (run,) = (tmp_path / "runs").iterdir()
        resumed = [BIN / "toolkit", "validate", "--resume", run, "--format", "json"]
        done = subprocess.run([str(w) for w in resumed], cwd=ROOT, capture_output=True, text=True, timeout=600)
        verdict = json.loads((run / "verdict.json").read_text())
    finally:
        for node in ("gpu1", "gpu2"):
            lab.ssh(node, f"rm -rf {IN_MEMORY}")
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = next(c for c in verdict["criteria"] if c["id"] == "tn.long")
    assert (found["verdict"], found["reason_code"]) == ("not-measured", "virtual"), found["reason"]
    assert "continued 1 time from a checkpoint" in found["judgements"][0]["text"]
    lines = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    facts = next(line["facts"] for line in lines if line["measurement"].startswith("training-long"))
    assert facts["world_size"] == 4
    assert len(set(facts["hosts"])) == 2
    assert facts["curve"][-1]["val_top1"] > 0.4, "ten classes, one in ten by chance"
