"""Facts of a training job: what ran where, and what carried it between the nodes."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, PlainSerializer, PlainValidator

from validation.measures.compute.burn_facts import Point
from validation.measures.gpu.watch import GpuWatch
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name

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


class RankDevice(NamedTuple):
    """What a rank trained on: a GPU by its PCI address and name, or processors by their machine (x86_64)."""

    gpu: str  # its PCI address, "" of processors
    name: str

    @classmethod
    def read(cls, text: object) -> RankDevice:
        """As the programs of the ranks report it: `GPU 0000:17:00.0 NVIDIA H100`, `cpu x86_64`."""
        what, _, rest = str(text).partition(" ")
        address, _, name = rest.partition(" ") if what == "GPU" else ("", "", rest)
        return cls(address, name if address else str(text))

    def __str__(self) -> str:
        """As it was reported."""
        return f"GPU {self.gpu}" + (f" {self.name}" if self.name else "") if self.gpu else self.name


def _rank_device(value: object) -> RankDevice:
    if isinstance(value, RankDevice):
        return value
    if not isinstance(value, str):
        raise ValueError("a rank's device is a text")
    return RankDevice.read(value)


RankDevices = tuple[
    Annotated[RankDevice, PlainValidator(_rank_device, json_schema_input_type=str), PlainSerializer(str, str)], ...
]


class Layout(NamedTuple):
    """Nodes x ranks of each, as a way of a training is called: `2x4`."""

    nodes: int
    each: int

    @classmethod
    def of(cls, way: str) -> Layout | None:
        """The layout of a way; None of a way that is none."""
        found = _LAYOUT.fullmatch(way)
        return cls(int(found[1]), int(found[2])) if found else None

    @property
    def ranks(self) -> int:
        """Of all nodes."""
        return self.nodes * self.each

    def __str__(self) -> str:
        """`2x4`."""
        return f"{self.nodes}x{self.each}"


class Cores(NamedTuple):
    """Processors of each rank, as a way of a training is called: `cores-8`."""

    each: int

    @classmethod
    def of(cls, way: str) -> Cores | None:
        """The processors of a way; None of a way that does not choose them."""
        found = _CORES.fullmatch(way)
        return cls(int(found[1])) if found else None

    def __str__(self) -> str:
        """`cores-8`."""
        return f"cores-{self.each}"


_LAYOUT, _CORES = re.compile(r"([1-9]\d*)x([1-9]\d*)"), re.compile(r"cores-([1-9]\d*)")


class TraceTop(Model):
    """A kernel or operator: microseconds of all its runs, how many, and its share of the time of all."""

    name: str
    us: float = Field(ge=0, allow_inf_nan=False)
    count: Count
    share: float = Field(ge=0, le=1.0001, allow_inf_nan=False)


class TraceGap(Model):
    """A time in which nothing ran on the device, and what ran before and after it."""

    us: float = Field(ge=0, allow_inf_nan=False)
    before: str
    after: str


class TrainingTrace(Model):
    """What a few steps came to after the measured ones, by torch's profiler on rank 0, which makes them slower.

    `wall_us`: all steps of it together. `busy_ratio`: share of that in which anything ran on the GPU; the rest are
    gaps, of which the longest are told. `left_out`: why a step of `of_steps` is missing, "" where none is.
    """

    by: Literal["kernels", "operators"]
    steps: Count
    of_steps: Count
    left_out: str = ""
    events: Count = 0
    wall_us: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    busy_ratio: float | None = Field(default=None, ge=0, le=1)
    allreduce_ratio: float | None = Field(default=None, ge=0, le=1)
    top: tuple[TraceTop, ...] = ()
    gaps: tuple[TraceGap, ...] = ()


class TrainingFacts(Facts):
    """What a training job says of itself. `carriers` empty: its log tells nothing, as where all is within one node.

    `model` to `framework` are those of older programs where a run has none; `tensorflow`: of tf_cnn_benchmarks.
    `devices`: of each rank. `products`: how many matrix products and convolutions of one pass came out in which type.
    `input_s`, `compute_s` and `allreduce_s` are means of the measured steps, of all ranks, in seconds; `rank_compute_s`
    of each rank. `allreduce_by`: "waits" = how long ranks wait for the average of gradients, "kernels" = what of a
    GPU's time NCCL's kernels take.
    `out_of_memory`: why nothing was measured, "" where something was. `watches`: of each rank's GPU, where a sampler
    looked at it; `courses` of them through the job. `trace`: None of older programs, and where none was asked for.
    `source`: of real images, what was read and decoded, by as many `workers` of each rank. `launcher`: mpirun or
    torchrun, "" where a rank was started by neither.
    """

    no_figure: ClassVar[bool] = True
    type: Literal["training"] = "training"
    world_size: Count
    hosts: tuple[str, ...]  # of each rank
    batch: Count  # images of a rank and step
    warmup: Count
    steps: Count
    loss_first: float | None = Field(default=None, allow_inf_nan=False)
    loss_last: float | None = Field(default=None, allow_inf_nan=False)
    parameters: Count = 0
    threads: Count
    python: str
    torch: str
    horovod: str
    mpi: str = ""
    carriers: tuple[Carrier, ...] = ()
    model: str = "small"
    precision: str = "fp32"
    framework: str = "horovod"
    launcher: str = ""
    tensorflow: str = ""
    devices: RankDevices = ()
    products: dict[str, Count] = Field(default={})
    rank_images_per_s: tuple[float, ...] = ()
    rank_compute_s: tuple[float, ...] = ()
    input_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    compute_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    allreduce_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    allreduce_by: Literal["", "waits", "kernels"] = ""
    out_of_memory: str = ""
    watches: tuple[GpuWatch, ...] = ()
    courses: tuple[tuple[Point, ...], ...] = ()
    trace: TrainingTrace | None = None
    source: str = ""
    workers: Count = 0

    def why_no_figure(self) -> str:
        """The GPU's memory was too small."""
        return self.out_of_memory or ""


class Turn(Model):
    """One job of several that were taken in turns. `way`: what was different, in a word. `images_per_s`: of each step,
    of the whole job. `cannot`: why it trained nothing, "" where it did.
    """

    way: Name
    turn: Count
    images_per_s: tuple[float, ...] = ()
    ranks: Count = 0
    nodes: Count = 0
    carriers: tuple[Carrier, ...] = ()
    gpudirect: bool | None = None  # whether NCCL moved data between adapter and GPU directly; None: its log tells not
    input_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)  # mean of steps and ranks
    source: str = ""  # of real images: what was read and decoded
    workers: Count = 0  # processes of each rank that decode
    cannot: str = ""
    launcher: str = ""


class TurnsFacts(Facts):
    """Jobs that were taken in turns, in the order in which they ran. All but `way` is the same."""

    type: Literal["turns"] = "turns"
    turns: tuple[Turn, ...]
    python: str = ""
    torch: str = ""
    horovod: str = ""
    framework: str = ""
    devices: RankDevices = ()  # each once

    def ways(self) -> tuple[str, ...]:
        """Each way once, in the order of the first turn."""
        return tuple(dict.fromkeys(turn.way for turn in self.turns))

    def of(self, way: str) -> tuple[Turn, ...]:
        """The turns of a way that trained something."""
        return tuple(turn for turn in self.turns if turn.way == way and turn.images_per_s)

    def rates(self, way: str) -> list[float]:
        """Images/s of every measured step of a way."""
        return [rate for turn in self.of(way) for rate in turn.images_per_s]
