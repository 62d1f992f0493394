"""RDMA bandwidth from this node to another one, with perftest's ib_write_bw, ib_read_bw or ib_send_bw."""

from __future__ import annotations

from dataclasses import dataclass

from validation.measures.rdma import rdma_perftest_probe
from validation.measures.rdma.rdma_perftest_probe import probe

__all__ = ["Asked", "probe"]


@dataclass
class Asked(rdma_perftest_probe.Asked):
    """What is asked of either end."""

    kind = "rdma-bandwidth"
    test = "bw"
