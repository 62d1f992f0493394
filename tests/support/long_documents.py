"""What the probe training-long prints: made here, in the form that it documents. Figures are invented."""

from __future__ import annotations

import json
from typing import Any

from tests.support.site import result
from tests.support.tool_documents import doc
from validation.kinds import parse
from validation.model import Measurement, Result
from validation.probes import ProbeDoc
from validation.probes.train_course import learning_rate
from validation.probes.train_networks import NETWORKS, PRODUCTS
from validation.probes.train_tiny import CLASSES, TRAIN, VAL

IMAGES, VAL_IMAGES = CLASSES * TRAIN, CLASSES * VAL


def report(m: Measurement, images_per_s: float = 400.0) -> dict[str, Any]:
    """Of rank 0: a training on the tiny set that gets better from epoch to epoch."""
    params, epochs = m.params, int(str(m.params["epochs"]))
    step = int(str(params["ranks"])) * int(str(params["batch"]))
    steps, each = IMAGES // step, int(str(params["ranks_per_node"]))
    seconds = round(steps * step / images_per_s, 3)
    hosts = params["hosts"]
    assert isinstance(hosts, tuple)
    curve = []
    for epoch in range(1, epochs + 1):
        right, all_of = epoch / (epochs + 1), steps * step
        curve.append(
            {
                "epoch": epoch, "rate": learning_rate((epoch - 1 + (steps - 1) / steps) / epochs, step),
                "images": all_of, "loss": 2.3 * (1 - right), "train_top1": round(right * all_of) / all_of,
                "train_top5": 1.0, "val_images": VAL_IMAGES, "val_loss": 2.3 * (1 - right),
                "val_top1": round(right * VAL_IMAGES) / VAL_IMAGES, "val_top5": 1.0, "train_s": seconds,
                "input_s": 0.01, "val_s": 0.1, "images_per_s": all_of / seconds,
            }
        )  # fmt: skip
    step_s = step / images_per_s
    return {
        "world_size": params["ranks"], "model": params["model"], "precision": params["precision"],
        "batch": params["batch"], "epochs": epochs, "seed": 20190201, "framework": "horovod", "launcher": "mpirun",
        "threads": 1, "python": "3.11.2", "torch": "1.13.1", "horovod": "0.28.1", "mpi": "4.1.4", "tf32": False,
        "products": {PRODUCTS[str(params["precision"])]: 10}, "devices": ["cpu x86_64"] * (each * len(hosts)),
        "hosts": [name for name in hosts for _ in range(each)], "cannot": "", "cannot_ranks": 0, "format": "folders",
        "storage": "tmpfs", "images": IMAGES, "val_images": VAL_IMAGES, "classes": CLASSES, "workers": 0,
        "steps": steps, "curve": curve,
        "predicted": {"step_s": step_s, "images_per_s": images_per_s, "input_images_per_s": 3 * images_per_s,
                      "hours": epochs * steps * step_s / 3600},
        "resumed": [], "seconds": round(epochs * (seconds + 0.1) + 0.1, 3), "checkpoint_steps": 7000,
        "parameters": NETWORKS[str(params["model"])].parameters, "ranks_agree": True,
    }  # fmt: skip


def document(m: Measurement, **more: Any) -> ProbeDoc:
    """What the probe prints."""
    found = report(m)
    return doc("training-long", json.dumps(found), found, tool="horovod", **more)


def healthy_long(m: Measurement) -> Result:
    """Its result, parsed."""
    samples, facts = parse("training-long", document(m), m.params)
    assert facts is not None
    return result(m, samples, facts=facts.model_dump(mode="json"))
