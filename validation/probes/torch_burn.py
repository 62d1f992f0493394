"""The part of probe burn_in that needs torch: matrix products on each GPU of this node for a given time, all at once.

One process for each GPU; without CUDA one for the processors. The load is one product of random operands, again and
again: what comes out must be the first result, bit by bit, each time (a library's kernel gives one result for one
input on one device). Between the windows, products of whole numbers are computed whose digest is known
(exact_products.py): cold before the load, during it and hot at its end.

A parent prints one JSON document: for each device its rate in each window, how often it was compared and was unequal,
digests, and the words of the fault that ended it early.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # python -I leaves out where the probes are

from validation.probes.gpu_watch import address
from validation.probes.power_steps import Pace
from validation.probes.torch_compute import Device, digest_of, every, exactly, matrix_product, processor, with_parent

LOADS = ("bf16", "fp16", "fp32")  # the first that the device has: what draws the most power
GPU_SIZE, CPU_SIZE = 8192, 512  # rows and columns of the load's operands
BATCH_S = 1.0  # of products between two comparisons
LATE_S = 75.0  # after the time that was asked for, a GPU's process is killed: before the whole probe is
EXACT_S = 15.0  # between two rounds of exact products, at least


def load(device: Device, report: dict[str, Any], asked: dict[str, Any]) -> None:
    """Fills `report` while it goes on, so that a fault leaves what was there."""
    torch = device.torch
    precisions = {"precisions": asked["precisions"], "exact": 1}
    report["exact"] += exactly(device, precisions, "cold")
    precision = next(one for one in LOADS if not device.supports(one))
    size = GPU_SIZE if device.cuda else CPU_SIZE
    dtype = device.use(precision)
    left, right = (device.random(size, size, dtype=dtype) for _ in range(2))
    run = matrix_product(device, left, right, precision)
    first = run().clone()
    report["first"] = digest_of(first)
    report["load"] = f"{size} x {size} x {size} in {precision}"
    times = max(1, int(min(BATCH_S, asked["window_s"]) / max(device.seconds(run, 2) / 2, 1e-6)))
    until = time.monotonic() + asked["seconds"]
    exact_at = time.monotonic() + EXACT_S
    pace = Pace(asked.get("steps", ()), until)
    report["steps"] = pace.spent
    while time.monotonic() < until:
        ends, done, took = min(until, time.monotonic() + asked["window_s"]), 0, 0.0
        while not done or time.monotonic() < ends:
            device.use(precision)  # exact products set it otherwise
            begin = time.monotonic()
            took += device.seconds(run, times)
            done += times
            report["checks"] += 1
            report["wrong"] += not torch.equal(run(), first)
            pace.rest(time.monotonic() - begin)
        report["rates"].append(round(2 * size**3 * done / took / 1e12, 6))
        if time.monotonic() >= exact_at:
            report["exact"] += exactly(device, precisions, "during")
            exact_at = time.monotonic() + max(EXACT_S, asked["window_s"])
    report["exact"] += exactly(device, precisions, "hot")


def burnt(asked: dict[str, Any], index: int | None) -> dict[str, Any]:
    """Everything of one device."""
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(1)
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        with contextlib.suppress(AttributeError, AssertionError):  # older than these settings
            setattr(torch.backends.cuda.matmul, name, False)
    report: dict[str, Any] = {"device": "cpu" if index is None else f"cuda:{index}", "fault": "", "load": "",
                              "unit": "TFLOP/s", "rates": [], "checks": 0, "wrong": 0, "exact": []}  # fmt: skip
    report["address"] = "" if index is None else address(index)
    report["name"] = processor() if index is None else ""
    try:
        device = Device(torch, index)
        if index is not None:
            report["name"] = torch.cuda.get_device_name(device.at)
        load(device, report, asked)
    except RuntimeError as fault:  # an Xid in mid-run, or no memory left
        report["fault"] = (str(fault).strip() or type(fault).__name__).splitlines()[0][:200]
    return report


def main() -> None:
    """All devices; with a number the GPU of that number."""
    with_parent()
    asked = json.loads(sys.argv[1])
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if len(sys.argv) > 2:
        print(json.dumps(burnt(asked, int(sys.argv[2]))), flush=True)
        return
    torch: Any = importlib.import_module("torch")
    cuda = asked["device"] == "auto" and bool(torch.cuda.is_available())
    count = torch.cuda.device_count() if cuda else 0
    report: dict[str, Any] = {"torch": str(torch.__version__), "cuda": str(torch.version.cuda or ""), "devices": []}
    if cuda and count == asked["gpus"]:
        report["devices"] = list(every(asked, count, __file__, asked["seconds"] + LATE_S))
    elif not asked["gpus"]:
        report["devices"] = [burnt(asked, None)]
    print(json.dumps({**report, "seen": count}), flush=True)


if __name__ == "__main__":
    main()
