"""What is known of GPU models from their maker's papers."""

from __future__ import annotations

import re
from typing import NamedTuple


class NvLinks(NamedTuple):
    """How many NVLinks each GPU has whose name, as the driver has it, matches, and who says so."""

    name: re.Pattern[str]
    links: int
    source: str


def _of(name: str, links: int, source: str) -> NvLinks:
    return NvLinks(re.compile(name), links, f"NVIDIA {source}")


NVLINKS = (
    _of(r"V100-SXM[23]", 6, "Tesla V100 GPU architecture, whitepaper, 2017"),
    _of(r"A100-SXM4", 12, "A100 Tensor Core GPU architecture, whitepaper, 2020"),
    _of(r"^NVIDIA H100 \d+GB HBM3$", 18, "H100 Tensor Core GPU architecture, whitepaper, 2022"),
    _of(r"^NVIDIA H200$", 18, "H200 Tensor Core GPU, data sheet"),
    _of(r"^NVIDIA B[23]00\b", 18, "Blackwell architecture, technical brief, 2024"),
)
"""Models on boards that wire all of their NVLinks. Cards in slots have them only where a bridge was ordered; of the
P100-SXM2 servers wire three or four.
"""


def nvlinks(gpu_model: str) -> NvLinks | None:
    """The row of a GPU model; None where nothing is known of it, or where several models stand there."""
    return next((row for row in NVLINKS if "," not in gpu_model and row.name.search(gpu_model)), None)
