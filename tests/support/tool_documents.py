"""What probes print of measurements with tools, recorded or made, for tests of parsers and of execution."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"


SOCKPERF_FACTS = json.loads((DATA / "sockperf/3.7-tcp.facts.json").read_text())


BANDWIDTH = {"seconds": 3, "omit_s": 1, "interval_s": 0.25}


FACTS = {
    "virt": "none", "lab": "", "model": "PowerEdge", "gpu_count": 4, "gpu_model": "V100", "nic_model": "ConnectX-5",
    "fabric_ports": [{"interface": "fab0", "operstate": "up", "mtu": 9000, "speed_mbit": 100000, "rdma": None}],
    "rdma_devices": [], "pci": [],
    "os": "debian 12",
    "kernel": "6.1", "python": "3.11",
    "openmpi": "", "docker": "", "horovod": "", "torch": "", "probes": "0.1.0",
    "driver": "", "fabric_manager": "", "cuda": "", "cudnn": "", "nccl": "", "ofed": "", "container_toolkit": "",
    "dcgm": "", "slurm": "", "stack_release": "current",
    "stand_ins": [], "not_applicable": [], "drift": [], "reboot_pending": [],
}  # fmt: skip


def doc(kind: str, stdout: str = "", facts: dict[str, Any] | None = None, **changes: Any) -> Any:
    """What a probe that succeeded says."""
    return {
        "kind": kind, "tool": kind, "tool_version": "1", "command": [], "returncode": 0, "stdout": stdout, "stderr": "",
        "facts": facts or {}, "started": "", "ended": "", "duration_s": 1.0, "error": None, **changes,
    }  # fmt: skip


def values(samples, metric):
    return [s.value for s in samples if s.metric == metric]


def training(**changes):
    """What rank 0 prints, in the form that the probe documents; made here, not recorded."""
    steps = [0.030 + 0.0001 * (i % 7) for i in range(100)]
    report = {
        "world_size": 4, "hosts": ["gpu1", "gpu1", "gpu2", "gpu2"], "batch": 16, "warmup": 10, "steps": 100,
        "step_s": [round(s, 6) for s in steps], "images_per_s": [round(64 / s, 3) for s in steps], "loss_first": 2.3,
        "loss_last": 0.2, "loss_finite": True, "ranks_agree": True, "parameters": 109698, "threads": 1,
        "python": "3.11.2", "torch": "1.13.1", "horovod": "0.28.1",
    }  # fmt: skip
    return "Warning: Permanently added gpu2\n" + json.dumps({**report, **changes}) + "\n"


TRAINING_PARAMS = {"ranks": 4, "ranks_per_node": 2, "warmup": 10, "steps": 100, "batch": 16}
