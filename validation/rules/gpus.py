"""What is known of GPU models from their maker's papers."""

from __future__ import annotations

import re
from typing import NamedTuple


class NvLinks(NamedTuple):
    """What its NVLinks are of each GPU whose name, as the driver has it, matches, and who says so.

    `rate_mb_s`: of a link, one way, in 10^6 byte/s: a GPU's NVLink bandwidth by its links and by both ways. The driver
    tells a little more (H100: 26562 of 25000), the rate before the coding. `registered`: the GPU registers with the
    fabric of its NVSwitches, and NVML tells how (Hopper and later). `switched`: no board of this model is without
    NVSwitches. `beyond`: its NVLinks leave the server, to switches with a Fabric Manager of their own.
    """

    name: re.Pattern[str]
    links: int
    source: str
    rate_mb_s: int
    registered: bool = False
    switched: bool = False
    beyond: bool = False


def _of(name: str, links: int, source: str, rate_mb_s: int = 25_000, **more: bool) -> NvLinks:
    return NvLinks(re.compile(name), links, f"NVIDIA {source}", rate_mb_s, **more)


NVLINKS = (
    _of(r"V100-SXM[23]", 6, "Tesla V100 GPU architecture, whitepaper, 2017"),
    _of(r"A100-SXM4", 12, "A100 Tensor Core GPU architecture, whitepaper, 2020"),
    # 400 GB/s both ways, 8 links of 50; counted on sound boards in public records: topo -m prints NV8, of H20 NV18
    # (sgl-project/sglang issue 3685; rates of H800 and H20: deepseek-ai/DeepEP issue 16).
    _of(r"A800-SXM4", 8, "A800, data sheet"),
    _of(r"^NVIDIA H800$", 8, "H800, data sheet", registered=True),
    _of(r"^NVIDIA H20$", 18, "H20, data sheet", registered=True),
    _of(r"^NVIDIA H100 \d+GB HBM3$", 18, "H100 Tensor Core GPU architecture, whitepaper, 2022", registered=True),
    _of(r"^NVIDIA H200$", 18, "H200 Tensor Core GPU, data sheet", registered=True),
    _of(
        r"^NVIDIA B[23]00\b",
        18,
        "Blackwell architecture, technical brief, 2024",
        50_000,
        registered=True,
        switched=True,
    ),
    _of(
        r"^NVIDIA GB[23]00\b", 18, "GB200 NVL72, data sheet, 2024", 50_000, registered=True, switched=True, beyond=True
    ),
)
"""Models on boards that wire all of their NVLinks. Cards in slots have them only where a bridge was ordered; of the
P100-SXM2 servers wire three or four.
"""


def nvlinks(gpu_model: str) -> NvLinks | None:
    """The row of a GPU model; None where nothing is known of it, or where several models stand there."""
    return next((row for row in NVLINKS if "," not in gpu_model and row.name.search(gpu_model)), None)


class Memory(NamedTuple):
    """Bandwidth of the memory of each GPU whose name matches, GB/s (10^9 byte/s), and who says so."""

    name: re.Pattern[str]
    gb_s: float
    source: str


def _memory(name: str, gb_s: float, source: str) -> Memory:
    return Memory(re.compile(name), gb_s, f"NVIDIA {source}")


MEMORIES = (
    _memory(r"P100-SXM2|P100-PCIE-16GB", 732, "Tesla P100, data sheet"),
    _memory(r"P100-PCIE-12GB", 549, "Tesla P100, data sheet"),
    _memory(r"Tesla P40$", 346, "Tesla P40, data sheet"),
    _memory(r"V100S", 1134, "V100S, data sheet"),
    _memory(r"V100-", 900, "V100, data sheet"),
    _memory(r"Tesla T4$", 320, "T4, data sheet"),
    _memory(r"A100-(SXM4|PCIE)-40GB", 1555, "A100, data sheet"),
    _memory(r"A100-SXM4-80GB", 2039, "A100 80GB, data sheet"),
    _memory(r"A100 80GB PCIe", 1935, "A100 80GB, data sheet"),
    _memory(r"A800-SXM4-40GB", 1555, "A800, data sheet"),
    _memory(r"A800-SXM4-80GB", 2039, "A800 80GB, data sheet"),
    _memory(r"A800 80GB PCIe", 1935, "A800 80GB, data sheet"),
    _memory(r"NVIDIA A30$", 933, "A30, data sheet"),
    _memory(r"NVIDIA A10$", 600, "A10, data sheet"),
    _memory(r"NVIDIA A(2|16)$", 200, "A2 and A16 (of each GPU), data sheets"),
    _memory(r"NVIDIA A40$", 696, "A40, data sheet"),
    _memory(r"NVIDIA L40S?$", 864, "L40S, data sheet"),
    _memory(r"NVIDIA L20$", 864, "L20, data sheet"),
    _memory(r"NVIDIA L4$", 300, "L4, data sheet"),
    _memory(r"RTX PRO 6000 Blackwell Server Edition$", 1597, "RTX PRO 6000 Blackwell Server Edition, data sheet"),
    _memory(r"^NVIDIA H100 80GB HBM3$", 3350, "H100, data sheet"),
    _memory(r"^NVIDIA H100 PCIe$", 2039, "H100 PCIe, data sheet"),
    _memory(r"^NVIDIA H100 NVL$", 3900, "H100 NVL, data sheet"),
    _memory(r"^NVIDIA H800$", 3350, "H800, data sheet"),
    _memory(r"^NVIDIA H800 PCIe$", 2039, "H800 PCIe, data sheet"),
    _memory(r"^NVIDIA H20$", 4000, "H20, data sheet"),
    _memory(r"^NVIDIA H200( NVL)?$", 4800, "H200, data sheet"),
    _memory(r"^NVIDIA G?B200\b", 8000, "Blackwell architecture, technical brief, 2024"),
    _memory(r"^NVIDIA G?B300\b", 8000, "Blackwell Ultra, data sheet"),
)
"""Per model, the peak that its maker prints."""


def part_of(gpu_model: str) -> str:
    """Why nothing that is known of a GPU holds of this one: it is a part of it; "" of a whole GPU.

    Names as the driver has them: `NVIDIA A100-SXM4-80GB MIG 1g.10gb`, and of virtual GPUs `GRID V100D-8Q`,
    `NVIDIA A40-48Q` (NVIDIA Virtual GPU Software, User Guide).
    """
    if re.search(r" MIG \d", gpu_model):
        return "it is a MIG instance, a part of a GPU, of which no figure is published"
    if re.search(r"-\d+([ABCQ]|CME)$", gpu_model):
        return "it is a virtual GPU (vGPU), a share of one, of which no figure is published"
    return ""


def memory_rate(gpu_model: str) -> Memory | None:
    """The row of a GPU model; None where nothing is known of it, as of a part of a GPU."""
    if part_of(gpu_model):
        return None
    return next((row for row in MEMORIES if row.name.search(gpu_model)), None)


def on_c2c(gpu_model: str) -> str:
    """Why a GPU's PCI Express link says nothing of its copies from and to the host; "" where it does."""
    if not re.search(r"\bG[HB][23]00\b", gpu_model):
        return ""
    return "it hangs on NVLink-C2C, of which no floor is published (seen: 201 GB/s, Azure AI benchmarking guide, GB200)"


def pcie_rate(gt_s: float, lanes: int) -> tuple[float, str]:
    """Data rate of a PCI Express link each way in GB/s, and how it follows.

    Encoding: 8b/10b up to 5 GT/s, 128b/130b from 8 to 32 GT/s, flits of 242 bytes in 256 at 64 GT/s (PCI Express base
    specifications 2.0, 3.0, 6.0). Headers of packets are not taken off: what copies reach is below it.
    """
    good, all_ = (8, 10) if gt_s <= 5 else (128, 130) if gt_s <= 32 else (242, 256)
    rate = gt_s * lanes * good / all_ / 8
    return rate, f"{gt_s:g} GT/s x {lanes} lanes x {good}/{all_} / 8 = {rate:.4g} GB/s each way"
