"""GPUs of a node by the CUDA driver API: copies and latencies between the host memory and all of them."""

from __future__ import annotations

from validation.kinds.record import Kind, on_node
from validation.measures.gpu import copies_parse, load, tools
from validation.model import Job, Measurement, Node, Param, Topology

MIB = 1 << 20
FULL: dict[str, Param] = {"largest_bytes": 1024 * MIB, "repeat": 7, "latency_count": 200, "warm_s": 1.0}
QUICK: dict[str, Param] = {"largest_bytes": 256 * MIB, "repeat": 6, "latency_count": 100, "warm_s": 0.5}
EMULATED: dict[str, Param] = {"largest_bytes": MIB, "repeat": 6, "latency_count": 40, "warm_s": 0.05}
LOAD: dict[str, Param] = {"largest_bytes": 256 * MIB, "repeat": 6, "copies": 8, "warm_s": 1.0}
EMULATED_LOAD: dict[str, Param] = {"largest_bytes": MIB, "repeat": 6, "copies": 2, "warm_s": 0.05}
"""Emulated devices are small, share their host's memory, and judge nothing of rates."""
GPU_S, QUICK_GPU_S, PAIR_S, EMULATED_S = 16.0, 5.0, 0.9, 2.5
TOOL_LIMIT_S = 300.0  # after which a tool is killed
LOAD_S, LOAD_GPU_S = 8.0, 6.0
TOOLS_GPU_S, TOOLS_PAIR_S = 6.0, 1.5  # nvbandwidth copies 24 GiB for each figure
"""Estimates of the plan, for PCI Express of generation 3; nothing that is measured depends on them."""


def gpus_of(node: Node, topology: Topology) -> int | None:
    """How many GPUs a node is said to have, emulated ones of a lab too; 0 where nobody says; None where it has none."""
    if topology.here is not None:
        return topology.here.gpus or None
    if node.bom.gpu_count is None and not node.emulated_gpus and "gpu_servers" in node.groups:
        return 0
    return node.gpus or None


def copies_asked(node: Node, gpus: int, quick: bool, emulated: bool = False) -> tuple[dict[str, Param], float]:
    """Parameters of gpu-copies for a node with so many GPUs, and how long it will take."""
    if emulated or node.emulated_gpus:
        return {**EMULATED, "gpus": gpus}, EMULATED_S
    likely = gpus or 8
    each, params = (QUICK_GPU_S, QUICK) if quick else (GPU_S, FULL)
    return {**params, "gpus": gpus}, round(likely * each + likely * (likely - 1) * PAIR_S, 1)


def load_asked(node: Node, gpus: int, emulated: bool = False) -> tuple[dict[str, Param], float]:
    """Parameters of gpu-load, and how long it will take."""
    if emulated or node.emulated_gpus:
        return {**EMULATED_LOAD, "gpus": gpus}, EMULATED_S
    return {**LOAD, "gpus": gpus}, LOAD_S + (gpus or 8) * LOAD_GPU_S


def tools_asked(node: Node, gpus: int, emulated: bool = False) -> tuple[dict[str, Param], float]:
    """Parameters of gpu-tools, and how long NVIDIA's tools may take; where none is installed they take nothing."""
    likely = gpus or 8
    estimated = 10 + likely * TOOLS_GPU_S + likely * (likely - 1) * TOOLS_PAIR_S
    return {"time_limit_s": TOOL_LIMIT_S}, EMULATED_S if emulated or node.emulated_gpus else round(estimated, 1)


def _job(m: Measurement, topology: Topology) -> Job:
    return on_node(m)


KINDS = (
    Kind(
        name="gpu-copies",
        title="Copies between host memory and GPUs",
        measures="Copies between host memory and each GPU, inside each GPU, between each pair and between several at "
        "once, verifies the data, "
        "and times empty kernel launches.",
        tool="the CUDA driver API through ctypes",
        more="explanation/measuring/gpu-copies.md",
        job=_job,
        parse=copies_parse.parse,
        headline="gpu_h2d_gb_s",
        repeat_by="probe",
    ),
    Kind(
        name="gpu-load",
        title="Copies of GPUs by NUMA node, and of all GPUs at once",
        measures="Copies from near and far NUMA memory to each GPU, and to all GPUs at once.",
        tool="the CUDA driver API through ctypes",
        more="explanation/measuring/gpu-copies.md",
        job=_job,
        parse=load.parse,
        headline="gpu_all_h2d_gb_s",
        repeat_by="probe",
    ),
    Kind(
        name="gpu-tools",
        title="NVIDIA's own bandwidth tools",
        measures="Repeats the copies with the vendor's tools and compares the figures with ours.",
        tool="nvbandwidth and p2pBandwidthLatencyTest, where installed",
        more="explanation/measuring/gpu-copies.md",
        job=_job,
        parse=tools.parse,
        repeat_by="probe",
        once=True,
    ),
)
