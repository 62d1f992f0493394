"""Facts of collective operations: what ran on which GPUs, and every size that was measured."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from validation.measures.gpu.watch import GpuWatch
from validation.measures.training.facts import Carrier, RankDevices
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, Positive

CollectiveOp = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]


class CollectiveRow(Model):
    """One operation at one size. `bytes`: of the larger buffer of a rank. `us`: median of the blocks, slowest rank."""

    op: CollectiveOp
    bytes: Count
    us: Positive
    busbw_gb_s: Positive
    times: Count = 0  # how often it was done, at least; 0: nobody says


class CollectiveGap(Model):
    """Sizes of an operation that were not measured, and why."""

    op: CollectiveOp
    bytes: tuple[Count, ...]
    why: Name


class NcclChannels(Model):
    """Connections of NCCL between ranks of one sort. `across`: between nodes. `gdr`: GPUDirect RDMA."""

    transport: Name  # in NCCL's words: P2P, SHM, NET/IB, NET/Socket
    gdr: bool
    across: bool
    count: Count

    def __str__(self) -> str:
        """`32 x NET/IB with GDRDMA between nodes`."""
        where = "between nodes" if self.across else "in a node"
        return f"{self.count} x {self.transport}{' with GDRDMA' if self.gdr else ''} {where}"


class NcclPath(Model):
    """What NCCL's log tells of its ways. `devices`: mlx5_0:1; `sockets`: interfaces of its TCP connections; `nvls`:
    NVSwitches add up; `settings`: NAME=VALUE that it says were set. All empty where there is no log.
    """

    devices: tuple[Name, ...] = ()
    sockets: tuple[Name, ...] = ()
    channels: tuple[NcclChannels, ...] = ()
    nvls: bool = False
    settings: tuple[Name, ...] = ()


class PortBytes(Model):
    """What a port of a node carried during the job, in bytes; None: it does not count, or its counter began anew.

    `ours`: of the fabric, and named to the job; `below`: one of the ports that such an interface is made of. Ethernet
    counts nothing of RDMA, but for adapters in software.
    """

    port: Name
    way: Literal["ethernet", "rdma"]
    ours: bool
    below: bool = False
    sent: Count | None = None
    received: Count | None = None


class NodeBytes(Model):
    """All ports of a node during the job. `host`: in the node's own words."""

    host: Name
    ports: tuple[PortBytes, ...]


class CollectivesFacts(Facts):
    """What a job of collective operations says of itself. `devices`: of each rank, a GPU by its PCI address, or cpu.

    `carriers` empty: its log tells nothing.
    """

    type: Literal["collectives"] = "collectives"
    tool: Literal["torch", "nccl-tests"]
    launcher: Literal["", "mpirun", "torchrun"] = ""  # what rank 0 says that started it; older ones and programs do not
    backend: Literal["nccl", "gloo"]
    world_size: Count
    hosts: tuple[str, ...]  # of each rank
    devices: RankDevices
    rows: tuple[CollectiveRow, ...]
    left_out: tuple[CollectiveGap, ...] = ()
    nccl: str = ""
    torch: str = ""
    sharp: bool = False  # by its log the switches of the fabric may add up
    path: NcclPath = NcclPath()
    carriers: tuple[Carrier, ...] = Field(default=())
    carried: tuple[NodeBytes, ...] = Field(default=())  # of each node; of nccl-tests once for each of its programs
    watches: tuple[GpuWatch, ...] = Field(default=())  # of each rank's GPU, where a sampler looked at it

    @property
    def by(self) -> str:
        """By what it was measured: `gloo (torch)`, and torchrun where that launched it in place of mpirun."""
        alone = ", launched by torchrun" if self.launcher == "torchrun" else ""
        return f"{self.backend} ({self.tool}{alone})"

    @property
    def slowed(self) -> str:
        """Ranks whose GPUs were slowed down or held low meanwhile, in words; "" where none was."""
        said = [
            f"rank {rank} on {host}, GPU {watch.address}: {watch.words}; {watch.slowed_words}"
            for rank, (host, watch) in enumerate(zip(self.hosts, self.watches, strict=False))
            if watch.samples and watch.slowed_words
        ]
        return "; ".join([*said[:4], *([f"and {len(said) - 4} more"] if len(said) > 4 else [])])

    @property
    def gpu_model(self) -> str:
        """The model of all GPUs; "" on processors, or where they differ."""
        models = {device.name for device in self.devices if device.gpu}
        return models.pop() if len(models) == 1 and self.backend == "nccl" else ""
