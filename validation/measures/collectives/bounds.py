"""How fast collective operations can be, and how fast they were on healthy machines.

A ceiling follows from NVLinks and fabric ports (the rings and trees of NCCL, its NVLS in NVSwitches): what is above it
was not measured. Both rates below are of one direction: of a GPU's NVLinks, and of a node's fabric ports together.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from validation.base.counting import number_of
from validation.model import Bound

NVLINK_GB_S = (
    (re.compile(r"V100-SXM[23]"), 150.0, "6 NVLinks x 25 GB/s, NVIDIA Tesla V100 GPU architecture, 2017"),
    (re.compile(r"A100-SXM4"), 300.0, "12 NVLinks x 25 GB/s, NVIDIA A100 GPU architecture, 2020"),
    (re.compile(r"^NVIDIA H100 \d+GB HBM3$|^NVIDIA H200$"), 450.0, "18 NVLinks x 25 GB/s, NVIDIA H100 and H200"),
    (re.compile(r"A800-SXM4|^NVIDIA H800$"), 200.0, "8 NVLinks x 25 GB/s, NVIDIA A800 and H800, data sheets"),
    (re.compile(r"^NVIDIA H20$"), 450.0, "18 NVLinks x 25 GB/s, NVIDIA H20, data sheet"),
    (re.compile(r"^NVIDIA B[23]00\b"), 900.0, "18 NVLinks x 50 GB/s, NVIDIA Blackwell architecture, 2024"),
)
"""GB/s in one direction of all NVLinks of a GPU on boards with NVSwitches or a mesh."""

NVLS_FROM = re.compile(r"^NVIDIA (H|B)\d+")
"""GPUs whose NVSwitches add up by themselves (NVLink SHARP: third generation of NVSwitch, H100 and later)."""

AZURE = "Azure, azurehpc-health-checks, configuration of the size (2026-05)"


class Floor(NamedTuple):
    """All-reduce bus bandwidth in GB/s that `gpus` of a model in one node must reach, and who asks for it."""

    name: re.Pattern[str]
    gpus: int
    gb_s: float
    source: str


FLOORS = (
    Floor(re.compile(r"V100-SXM2"), 8, 110, AZURE),
    Floor(re.compile(r"A100-SXM4"), 8, 228, AZURE),
    Floor(re.compile(r"^NVIDIA H100 \d+GB HBM3$"), 8, 460, AZURE),
    Floor(re.compile(r"^NVIDIA H200$"), 8, 431, AZURE),
    Floor(re.compile(r"A100 80GB PCIe"), 2, 193, AZURE),  # with NVLink bridges
    Floor(re.compile(r"A100 80GB PCIe"), 4, 25, AZURE),
    Floor(re.compile(r"H100 NVL"), 2, 208, AZURE),
)

LEAST_BYTES = 500_000_000
"""Smaller messages are not judged: latency, and not the links, makes their rate."""


class Layout(NamedTuple):
    """Where the ranks are: GPUs of each node, nodes, GPU model, GB/s of each node's fabric ports (None: unknown)."""

    gpus: int
    nodes: int
    model: str
    fabric_gb_s: float | None
    sharp: bool = False  # the fabric's switches may add up


def nvlink(model: str) -> tuple[float, str] | None:
    """GB/s of a GPU's NVLinks in one direction and its source; None where nothing is known of the model."""
    return next(((rate, source) for name, rate, source in NVLINK_GB_S if name.search(model)), None)


def ceiling(op: str, at: Layout) -> tuple[float, str] | None:
    """Bus bandwidth in GB/s that cannot be passed, and how it follows; None where nothing is known.

    Send and receive: each GPU of a node may talk to its neighbour in the node alone, so only the links inside bound it
    with one node, and the ports' share of the one pair that leaves a node with several: not derived.
    """
    ranks = at.gpus * at.nodes
    if at.nodes == 1:
        return _inside(op, at, ranks)
    if at.fabric_gb_s is None or op == "send_recv" or at.model.startswith("NVIDIA GB"):  # NVLink across nodes
        return None
    b, n, g = at.fabric_gb_s, at.nodes, at.gpus
    if op == "all_to_all":
        value = b / g * (ranks - 1) / (ranks - g)
        return (
            value,
            f"({b:g} GB/s of a node's ports / {number_of(g, 'GPU')}) x {ranks - 1}/{ranks - g} = {value:.4g} GB/s",
        )
    if op == "all_reduce" and at.sharp:
        value = 2 * b * (ranks - 1) / ranks
        return value, f"2 x {b:g} GB/s of a node's ports x {ranks - 1}/{ranks} = {value:.4g} GB/s (switches add up)"
    value = b * n * (ranks - 1) / ((n - 1) * ranks)
    return value, f"{b:g} GB/s of a node's ports x {n}/{n - 1} x {ranks - 1}/{ranks} = {value:.4g} GB/s"


def _inside(op: str, at: Layout, ranks: int) -> tuple[float, str] | None:
    links = nvlink(at.model)
    if links is None:
        return None
    rate, source = links
    if op == "all_reduce" and NVLS_FROM.search(at.model):
        value = max(rate, 2 * rate * (ranks - 1) / (ranks + 1))  # few ranks are as fast by a ring
        return value, f"2 x {rate:g} GB/s x {ranks - 1}/{ranks + 1} = {value:.4g} GB/s: NVSwitches add up ({source})"
    return rate, f"{rate:g} GB/s of a GPU's NVLinks in one direction ({source})"


def bound(op: str, at: Layout, metric: str, share: float, source: str) -> Bound | None:
    """Floor and ceiling of an operation; only a ceiling where no floor is known; None where nothing is.

    Across nodes the floor is `share` of what the ports carry by rings, which switches that add up may pass.
    """
    top = ceiling(op, at)
    floor, lines = None, [f"ceiling: {top[1]}"] if top else []
    if op == "all_reduce" and at.nodes == 1:
        known = next((f for f in FLOORS if f.gpus == at.gpus and f.name.search(at.model)), None)
        if known is not None:
            floor, source = known.gb_s, known.source
            lines.append(f"floor: {floor:g} GB/s of {at.gpus} x {at.model} in one node ({source})")
    elif op == "all_reduce" and top is not None:
        base = ceiling(op, at._replace(sharp=False)) or top
        floor = share * base[0]
        lines.append(f"floor = {share:g} x {base[0]:.4g} = {floor:.4g} GB/s ({source})")
    if top is None and floor is None:
        return None
    return Bound(
        metric=metric,
        unit="GB/s",
        floor=floor,
        ceiling=top[0] if top else None,
        derivation=tuple(lines),
        source=source,
    )
