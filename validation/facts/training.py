"""Facts of a training job: what ran where, and what carried it between the nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from validation.facts.common import Count, Name
from validation.model_base import Model

RDMA_TRANSPORTS = ("rc", "ud", "dc", "ib", "ibext")
"""How the names of those begin that are RDMA: UCX's rc_mlx5, rc_verbs, ud_verbs, dc_mlx5; NCCL's IB and its plugin
IBext_v8."""


class Carrier(Model):
    """What a library says in its own log that it sends with between nodes. `device` "" where it names none."""

    library: Literal["UCX", "Open MPI", "NCCL"]
    transport: Name  # in the library's words: rc_mlx5, tcp, IB, Socket
    device: str = ""  # mlx5_0:1, eth0

    @property
    def rdma(self) -> bool:
        """True where that is RDMA."""
        return self.transport.lower().split("_")[0] in RDMA_TRANSPORTS

    def __str__(self) -> str:
        """`UCX: rc_mlx5 on mlx5_0:1`."""
        return f"{self.library}: {self.transport}" + (f" on {self.device}" if self.device else "")


class TrainingFacts(Model):
    """What a training job says of itself. `carriers` empty: its log tells nothing, as where all is within one node."""

    type: Literal["training"] = "training"
    world_size: Count
    hosts: tuple[str, ...]  # of each rank
    batch: Count  # images of a rank and step
    warmup: Count
    steps: Count
    loss_first: float = Field(allow_inf_nan=False)
    loss_last: float = Field(allow_inf_nan=False)
    parameters: Count
    threads: Count
    python: str
    torch: str
    horovod: str
    mpi: str = ""
    carriers: tuple[Carrier, ...] = ()
