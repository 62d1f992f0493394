"""Settings of NCCL and UCX that nobody should leave on a machine: they take a choice away that these make better."""

from __future__ import annotations

import re
from typing import NamedTuple

GUIDE = "NVIDIA NCCL user guide, environment variables"


class Pin(NamedTuple):
    """A setting by its name, the values of it that are meant, why it ought not be there, and who says what it does.

    `rdma`: on fabrics that carry data by RDMA alone; over TCP it changes nothing, or is right.
    """

    name: re.Pattern[str]
    value: re.Pattern[str]
    why: str
    rdma: bool = False
    source: str = GUIDE


def _pin(name: str, value: str, why: str, rdma: bool = False, source: str = GUIDE) -> Pin:
    return Pin(re.compile(name), re.compile(value, re.IGNORECASE), why, rdma, source)


ON, OFF, ANY = r"[1-9]\d*", r"0", r".*"
RDMA_NONE = r"(?!\^)(?!(.*,)?\s*\\?(all|ib|((rc|dc|ud|gga|srd)(_\w+)?))\b).*"
"""A list of UCX's transports, none of which is RDMA's; `^` begins a list of those that are not to be used."""
PINS = (
    _pin("NCCL_(ALGO|PROTO)", ANY, "one algorithm or protocol for all sizes and all numbers of GPUs"),
    _pin("NCCL_(MIN|MAX)_(NCHANNELS|CTAS|P2P_NCHANNELS)", ANY, "a number of channels that NCCL chooses by topology"),
    _pin("NCCL_(NTHREADS|BUFFSIZE|NVB_DISABLE)", ANY, "a size that NCCL chooses by topology"),
    _pin("NCCL_P2P_DISABLE", ON, "GPUs of a node no longer copy to each other directly"),
    _pin("NCCL_P2P_LEVEL", r"0|LOC", "GPUs of a node no longer copy to each other directly"),
    _pin("NCCL_SHM_DISABLE", ON, "processes of a node talk over the network"),
    _pin("NCCL_NVLS_ENABLE", OFF, "reductions in NVSwitches are off"),
    _pin("NCCL_IB_DISABLE", ON, "no RDMA between nodes", rdma=True),
    _pin("NCCL_NET", r"socket", "no RDMA between nodes", rdma=True),
    _pin("NCCL_NET_GDR_LEVEL", r"0|LOC", "no GPUDirect RDMA", rdma=True),
    _pin("NCCL_(DMABUF_ENABLE|IB_CUDA_SUPPORT)", OFF, "no GPUDirect RDMA by that way", rdma=True),
    _pin("UCX_TLS", RDMA_NONE, "no RDMA among these transports", True, "OpenUCX, FAQ (UCX_TLS)"),
)


def pinned(name: str, value: str, rdma: bool) -> Pin | None:
    """The pin that a setting is; None for one that may stay, such as those that name the fabric's ports."""
    matching = (pin for pin in PINS if pin.name.fullmatch(name) and pin.value.fullmatch(value))
    return next((pin for pin in matching if rdma or not pin.rdma), None)
