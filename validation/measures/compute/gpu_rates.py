"""What is known of how fast GPU models compute: their makers' peaks, and the best that others measured and published.

TFLOP/s without sparsity. Models are matched by the name that the driver has.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from validation.rules.gpus import part_of

_STAS = "stas00/ml-engineering at 744d01e (2026-08-22), compute/accelerator, maximum achievable matmul FLOPS"
_BAIDU = "baidu-research/DeepBench at da81ba7, results/train"
HELD = 0.91
"""Share of a published burst that a healthy GPU holds under load. The bursts of mamf-finder.py are of one GPU with time
to rest after each product. An H200 whose burst is 794.5 TFLOP/s in bf16 holds 727 at the long k of these products (749
at its best shape), and 1337 of 1453.4 in fp8: mamf-finder.py at 0359db8, notes of `msmf_k_walk`."""


class Peak(NamedTuple):
    """Peaks of a model by precision, as its maker's data sheet has them."""

    name: re.Pattern[str]
    tflops: dict[str, float]
    source: str


class Seen(NamedTuple):
    """The rate of a matrix product on a model, as somebody published it. `held`: the share that lasts under load."""

    name: re.Pattern[str]
    precision: str
    shape: str  # of deepbench.gemm: m x n x k, and how A and B are stored
    tflops: float
    source: str
    held: float = 1.0


def _peak(name: str, source: str, fp32: float, tf32: float, half: float, fp8: float, bf16: bool = True) -> Peak:
    rates = {"fp32": fp32, "tf32": tf32, "fp16": half, "bf16": half if bf16 else 0.0, "fp8": fp8}
    return Peak(re.compile(name), {key: rate for key, rate in rates.items() if rate}, f"NVIDIA {source}")


PEAKS = (
    _peak(r"P100-PCIE", "Tesla P100 for PCIe, data sheet", 9.3, 0, 18.7, 0, bf16=False),
    _peak(r"P100-SXM2", "Tesla P100, data sheet", 10.6, 0, 21.2, 0, bf16=False),
    _peak(r"V100-PCIE", "V100, data sheet", 14.0, 0, 112, 0, bf16=False),
    _peak(r"V100-SXM[23]", "V100, data sheet", 15.7, 0, 125, 0, bf16=False),
    _peak(r"\bA100[ -]", "A100, data sheet", 19.5, 156, 312, 0),
    _peak(r"^NVIDIA H100 PCIe$", "H100, data sheet", 51, 378, 756, 1513),
    _peak(r"^NVIDIA (H100 \d+GB HBM3|H200|GH200.*)$", "H100, H200 and GH200, data sheets", 67, 494.5, 989, 1979),
    _peak(r"^NVIDIA L40S$", "L40S, data sheet", 91.6, 183, 362, 733),
    _peak(r"^NVIDIA B[23]00\b", "DGX B200 and B300, data sheets, one of eight", 80, 1125, 2250, 4500),
    _peak(r"^NVIDIA GB[23]00\b", "GB200 and GB300 NVL72, data sheets, one of 72", 80, 1250, 2500, 5000),
)


def _seen(name: str, precision: str, shape: str, tflops: float, source: str) -> Seen:
    burst = source is _STAS  # mamf-finder.py stores B column by column
    stored, held = ("NT", HELD) if burst else ("NN", 1.0)
    return Seen(re.compile(name), precision, f"{shape}{stored}", tflops, source, held)


SEEN = (
    _seen(r"P100-PCIE", "fp32", "7680x48000x2560", 9.123, f"{_BAIDU}, Tesla P100 (X99 board, so PCIe)"),
    _seen(r"V100-SXM2", "fp32", "4096x7000x4096", 14.78, f"{_BAIDU}, V100 of a DGX-1"),
    _seen(r"V100-SXM2", "fp16", "4096x7000x4096", 112.3, f"{_BAIDU}, V100 of a DGX-1"),
    _seen(r"A100-SXM4", "bf16", "1024x10240x5120", 271.2, _STAS),
    _seen(r"A100[ -]PCI", "bf16", "2048x5120x6144", 252.9, _STAS),
    _seen(r"^NVIDIA (H100 \d+GB HBM3|H200)$", "bf16", "2048x2048x13312", 794.5, _STAS),
    _seen(r"^NVIDIA GH200", "bf16", "1024x15360x4096", 828.6, _STAS),
    _seen(r"^NVIDIA B200\b", "bf16", "1792x16128x3072", 1745.0, _STAS),
    _seen(r"^NVIDIA B300\b", "bf16", "12288x18432x1024", 1769.0, _STAS),
    _seen(r"^NVIDIA GB200\b", "bf16", "4096x9728x2048", 1822.0, _STAS),
    _seen(r"^NVIDIA H100 \d+GB HBM3$", "fp8", "1024x9216x14336", 1402.6, _STAS),
    _seen(r"^NVIDIA H200$", "fp8", "1280x4096x12032", 1453.4, _STAS),
    _seen(r"^NVIDIA GH200", "fp8", "1024x14336x14336", 1535.0, _STAS),
    _seen(r"^NVIDIA B200\b", "fp8", "15360x4096x3072", 3432.5, _STAS),
    _seen(r"^NVIDIA B300\b", "fp8", "3072x6144x7168", 3353.3, _STAS),
    _seen(r"^NVIDIA GB200\b", "fp8", "19456x5120x1536", 3615.6, _STAS),
)


def peak(model: str, precision: str) -> tuple[float, str] | None:
    """The data sheet's peak of a model and its source; None where none is known."""
    row = next((row for row in PEAKS if row.name.search(model) and not part_of(model)), None)
    return (row.tflops[precision], row.source) if row is not None and precision in row.tflops else None


def seen(model: str, precision: str) -> Seen | None:
    """What was measured of a model; None where nothing is known."""
    if part_of(model):
        return None
    return next((row for row in SEEN if row.precision == precision and row.name.search(model)), None)


def shapes() -> tuple[str, ...]:
    """Every product of SEEN, as PRECISION:MxNxK and its layout, once."""
    return tuple(dict.fromkeys(f"{row.precision}:{row.shape}" for row in SEEN))
