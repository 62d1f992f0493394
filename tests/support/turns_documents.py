"""What the probe training-turns prints: made here, in the form that it documents. Figures are invented."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.tool_documents import doc
from validation.kinds import parse
from validation.kinds.record import names
from validation.measures.training.training_turns_probe import CORES, LAYOUT
from validation.model import Measurement, Result

BASE = 800.0
SHARES = {"rdma": 1.0, "tcp": 0.6, "gdr-on": 1.02, "gdr-off": 1.0, "synthetic": 1.0, "real": 0.99}
UCX = "[1.1] [gpu1:7:0]  ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag(rc_mlx5/mlx5_0:1)\n"
BTL = "[gpu1:7] mca: bml: Using tcp btl for send to [[1,1],2] on node gpu2\n"
NCCL = "gpu1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> {far}[0] [send] via NET/IB/0{gdr}\n"


def rate_of(way: str, ranks: int = 0) -> float:
    """Images/s of a way on machines that are well; `ranks` of all nodes, where ways have different numbers."""
    if ranks and (way == "torchrun" or LAYOUT.fullmatch(way)):
        nodes, _, each = way.partition("x")
        count = int(nodes) * int(each) if each else ranks
        return BASE * (1.0 if count == 1 else 0.96 * count) * (1.0 if each else 1.02)
    if LAYOUT.fullmatch(way):
        return BASE if way.startswith("1x") else 0.97 * BASE
    if found := CORES.fullmatch(way):
        return BASE * min(0.99, int(found[1]) / 4)
    return BASE * SHARES[way]


def job(m: Measurement, way: str, rate: float, **changes: Any) -> str:
    """Rank 0's report of a job at that rate."""
    hosts, each, ranks = names(m, "hosts"), int(str(m.params["ranks_per_node"])), int(str(m.params["ranks"]))
    if layout := LAYOUT.fullmatch(way):
        hosts, each, ranks = hosts[: int(layout[1])], int(layout[2]), int(layout[1]) * int(layout[2])
    batch, count = int(str(m.params["batch"])), int(str(m.params["steps"]))
    steps = [round(batch * ranks / rate * (1 + 0.001 * (i % 5 - 2)), 9) for i in range(count)]
    real = way == "real" or CORES.fullmatch(way) is not None
    gpu = m.params["device"] == "gpu"
    on = [f"GPU 0000:{0x17 + at % each:02x}:00.0 V100" if gpu else "cpu x86_64" for at in range(ranks)]
    precision = str(m.params["precision"])
    kind = {"bf16": "bfloat16", "fp16": "float16"}.get(precision, "float32")
    report = {
        "world_size": ranks, "hosts": [host for host in hosts for _ in range(each)], "batch": batch,
        "warmup": m.params["warmup"], "steps": count, "model": m.params["model"], "precision": precision,
        "products": {kind: 10}, "tf32": precision == "tf32", "devices": on, "step_s": steps,
        "images_per_s": [round(batch * ranks / s, 6) for s in steps], "loss_first": 2.3, "loss_last": 0.2,
        "loss_finite": True, "ranks_agree": True, "parameters": 109698, "threads": 1, "python": "3.11.2",
        "torch": "2.14.1", "horovod": "" if way == "torchrun" else "0.28.1",
        "framework": "ddp" if way == "torchrun" else "horovod", "allreduce_s": [0.1 * s for s in steps],
        "allreduce_kernels": [], "compute_s": [0.8 * s for s in steps],
        "input_s": [(0.05 if real else 0.0) * s for s in steps], "cannot": "",
        "source": "256 JPEG pictures of its own, in the page cache, 110 kB each" if real else "", "workers": 4 * real,
    }  # fmt: skip
    return json.dumps({**report, **changes}) + "\n"


def log(m: Measurement, way: str) -> str:
    """What MPI and NCCL say of a job across nodes."""
    if len(names(m, "hosts")) < 2 or way.startswith("1x"):
        return ""
    gpus, far = m.params["device"] == "gpu", int(str(m.params["ranks_per_node"]))
    if way == "tcp" or m.params["transport"] == "tcp":
        return BTL
    return UCX + (NCCL.format(far=far, gdr="" if way == "gdr-off" else "/GDRDMA") if gpus else "")


def document(
    m: Measurement,
    rates: Mapping[str, float] | None = None,
    said: Callable[[Measurement, str], str] = log,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    **more: Any,
) -> Any:
    """What the probe prints; `changes` of the report of a way."""
    turns = int(str(m.params["turns"]))
    ranks = int(str(m.params["ranks"])) if m.params["label"] == "scale" else 0
    out, err = "", ""
    for turn in range(1, turns + 1):
        for way in names(m, "ways"):
            heading = f"== turn {turn} of {turns}: {way}\n"
            out += heading + job(m, way, (rates or {}).get(way, rate_of(way, ranks)), **(changes or {}).get(way, {}))
            err += heading + said(m, way)
    return doc("training-turns", out, stderr=err, tool="horovod", **more)


def healthy_turns(m: Measurement, *given: Any, **how: Any) -> Result:
    """The result of `document`."""
    from tests.support.site import result  # which stands on this module

    samples, facts = parse("training-turns", document(m, *given, **how), m.params)
    return result(m, samples, facts=facts)
