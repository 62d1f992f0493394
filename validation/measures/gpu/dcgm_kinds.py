"""NVIDIA DCGM's own diagnostic, where it is installed."""

from __future__ import annotations

from validation.kinds.record import Kind, OnEach, on_node
from validation.measures.gpu import dcgm_parse
from validation.model import Job, Measurement, Node, Param, Topology

LEVEL, QUICK_LEVEL = 2, 1
MINUTES_S = 180.0  # of level 2: about two minutes (NVIDIA, dcgmi diag)


def _job(m: Measurement, topology: Topology) -> Job:
    return on_node(m)


def _params(node: Node) -> dict[str, Param]:
    return {"level": LEVEL}


def _why_not(node: Node, topology: Topology) -> str:
    """DCGM asks NVML for more than emulated devices have."""
    there = node.bom.gpu_count or (topology.here.gpus if topology.here is not None else 0)
    return "" if there else "no GPU of hardware in these nodes"


KINDS = (
    Kind(
        name="dcgm-diag",
        title="NVIDIA DCGM's diagnostic",
        measures="Runs the vendor's own GPU diagnostic.",
        tool="dcgmi diag, level 2 (level 1 when quick)",
        more="explanation/measuring/gpu-compute.md",
        job=_job,
        parse=dcgm_parse.parse,
        repeat_by="tool",
        once=True,
        by_daemon=True,
        on_each=OnEach(_params, MINUTES_S, {"level": QUICK_LEVEL}, 20.0, _why_not),
    ),
)
