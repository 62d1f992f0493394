"""What the devices of a node computed, and how fast."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from validation.measures.gpu.watch_facts import GpuWatch
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name

Rate = float  # TFLOP/s
THROTTLED = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")
"""Reasons for which a healthy GPU in a healthy server never lowers its clocks. hw_slowdown comes with the first and the
last; sw_power_cap is usual under matrix products."""


NO_MEMORY = "out of memory"
"""What the probe calls a problem for which memory did not suffice."""


def out_of_memory(why: str) -> bool:
    """Whether torch says that the memory of a device did not suffice."""
    return "out of memory" in why


class ComputeFigure(Model):
    """A list of problems in one precision on one device. `tflops` is its operations over its seconds, `best_tflops` of
    the problem with the highest rate; None where nothing of it ran. `skipped`: why problems did not run -> how many.
    """

    list: Literal["gemm", "conv", "rnn", "sustained"]
    precision: Name
    problems: Count  # that ran
    tflops: Rate | None = Field(default=None, gt=0, allow_inf_nan=False)
    best_tflops: Rate | None = Field(default=None, gt=0, allow_inf_nan=False)
    not_finite: Count = 0  # problems whose result was none
    skipped: dict[str, int] = Field(default={})

    @property
    def lacked_memory(self) -> int:
        """How many problems the device's memory did not hold, for which the probe has one word."""
        return self.skipped.get(NO_MEMORY, 0)


class ComputeDevice(Model):
    """A GPU or the processors of a node. `wrong`: precisions and when of exact products that came out wrong, `products`
    how many were computed. `reasons`: share of the looks at it with each reason for its clocks. `others`: PIDs of
    processes that held memory of it before the measurement began -> bytes. `watch`: all that was seen of it meanwhile.
    """

    device: Name  # cuda:3, cpu
    name: str = ""
    address: str = ""
    serial: str = ""
    fault: str = ""  # why nothing of it was measured
    figures: tuple[ComputeFigure, ...] = ()
    without: dict[str, str] = Field(default={})  # precision -> why it has none
    products: Count = 0
    wrong: tuple[str, ...] = ()
    unproved: dict[str, str] = Field(default={})  # precision -> why its exact product did not run
    no_memory: tuple[str, ...] | None = None  # precisions whose exact product memory did not hold; None: older results
    sm_mhz: float | None = None  # middle of the looks at it
    sm_max_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    reasons: dict[str, float] = Field(default={})
    others: dict[str, int] = Field(default={})
    unwatched: str = ""  # why nothing is known of its clocks
    watch: GpuWatch | None = None

    @property
    def lacked_memory(self) -> frozenset[str]:
        """Precisions whose exact product memory did not hold; of older results by torch's words."""
        if self.no_memory is not None:
            return frozenset(self.no_memory)
        return frozenset(precision for precision, why in self.unproved.items() if out_of_memory(why))

    @property
    def gpu(self) -> str:
        """`GPU 3`, or `processors`."""
        return f"GPU {self.device.removeprefix('cuda:')}" if self.device != "cpu" else "processors"

    @property
    def slowed(self) -> tuple[str, ...]:
        """Reasons for which its clocks were lowered and should not have been."""
        return tuple(reason for reason in THROTTLED if self.reasons.get(reason, 0) > 0)

    def figure(self, which: str, precision: str) -> ComputeFigure | None:
        """Of that list in that precision."""
        return next((f for f in self.figures if (f.list, f.precision) == (which, precision)), None)


class ComputeFacts(Facts):
    """Facts of measurement gpu-compute. `most` problems of each list were asked for, 0: all."""

    type: Literal["compute"] = "compute"
    where: Literal["cuda", "cpu"]
    torch: str
    cuda: str = ""
    cudnn: str = ""
    most: Count = 0
    devices: tuple[ComputeDevice, ...]
