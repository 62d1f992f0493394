"""What tf_cnn_benchmarks prints, made in the form of its log at its last commit (tensorflow/benchmarks 8fb7907).

Nothing of it was recorded or measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from validation.probes.tf_rank import MARK

PARAMS: dict[str, Any] = {
    "model": "resnet50", "batch": 128, "ranks": 2, "ranks_per_node": 1, "hosts": ["gpu1", "gpu2"], "warmup": 10,
    "steps": 40, "transport": "tcp", "precision": "fp16", "device": "gpu", "program": "/opt/tf_cnn_benchmarks.py",
}  # fmt: skip


def printed(params: Mapping[str, Any], images_per_s: float, **changes: Any) -> str:
    """What the job prints: each process all of its own lines, one after the other."""
    ranks, each, steps = (int(str(params[key])) for key in ("ranks", "ranks_per_node", "steps"))
    hosts = list(params["hosts"])
    processes = changes.get("processes", ranks if len(hosts) > 1 else 1)
    batch = int(str(params["batch"]))
    text = ""
    for rank in range(processes):
        host = hosts[rank // each] if processes > 1 else hosts[0]
        told = {"rank": rank, "world": changes.get("world", processes), "host": host}
        text += MARK + json.dumps(told) + "\n"
        text += (
            "TensorFlow:  1.14\nModel:       resnet50\nDataset:     imagenet (synthetic)\nMode:        training\n"
            f"SingleSess:  False\nBatch size:  {changes.get('global_batch', batch * ranks)} global\n"
            f"             {batch} per device\nNum batches: {steps}\nNum epochs:  0.08\n"
            f"Devices:     {[f'horovod/gpu:{n}' for n in range(ranks)]}\nNUMA bind:   False\nData format: NCHW\n"
            f"Optimizer:   momentum\nVariables:   {'horovod' if processes > 1 else 'replicated'}\n==========\n"
            "Generating training model\nRunning warm up\nDone warm up\nStep\tImg/sec\ttotal_loss\n"
        )
        seconds = 0.0
        for step in range(1, steps + 1):
            seconds += batch * ranks / images_per_s * (1 + 0.002 * math.sin(step))
            if step == 1 or step % 10 == 0:
                rate = step * batch * ranks / processes / seconds
                loss = changes.get("loss", 8.2 - 0.001 * step)
                text += f"{step}\timages/sec: {rate:.1f} +/- 0.4 (jitter = 1.2)\t{loss:.3f}\n"
        total = changes.get("total", steps * batch * ranks / seconds)
        text += f"{'-' * 64}\ntotal images/sec: {total:.2f}\n{'-' * 64}\n"
    return text
