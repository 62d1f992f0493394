"""Facts of kind burn-in: what the devices of a node did under load for a given time."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from validation.measures.gpu.health_facts import GpuHealthFacts
from validation.measures.gpu.watch_facts import GpuWatch
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, Positive, once

Load = Literal["torch-cuda", "torch-cpu", "copies", "processors"]
Point = tuple[float, float | None, float | None, float | None, float | None]
"""Seconds since the begin, utilisation in percent, degrees Celsius, W, MHz of the multiprocessors."""


class BurnDevice(Model):
    """A GPU or the processors of a node. `rates`: of each window, in `unit`, in their order.

    `checks`: results that were compared, `wrong` of them that were not what they had to be. `products`: results whose
    digest is known, `bad` of what and when those came out wrong -> how often. `unproved`: precision -> why its products
    did not run.
    `fault`: the words of the call that ended it early. `course`: what a sampler saw of it over the time.
    """

    device: Name  # cuda:3, cpu
    name: str
    address: str
    load: str
    unit: Literal["TFLOP/s", "GB/s", "turns/s"]
    rates: tuple[Positive, ...]
    checks: Count
    wrong: Count
    products: Count
    bad: dict[str, Count] = Field(default={})
    unproved: dict[str, str] = Field(default={})
    fault: str = ""
    watch: GpuWatch | None = None
    course: tuple[Point, ...] = ()

    @property
    def words(self) -> str:
        """`GPU 3`, or `processors`."""
        return f"GPU {self.device.removeprefix('cuda:')}" if self.device != "cpu" else "processors"


class BurnFacts(Facts):
    """A node's burn-in. `how`: which torch, or why it was none. `seconds` were asked for, `took_s` went by."""

    type: Literal["burn-in"] = "burn-in"
    load: Load
    how: str
    emulated: bool
    seconds: Positive
    took_s: Positive
    window_s: Positive
    devices: tuple[BurnDevice, ...] = Field(min_length=1)
    before: GpuHealthFacts
    after: GpuHealthFacts

    @field_validator("devices")
    @classmethod
    def _devices_once(cls, devices: tuple[BurnDevice, ...]) -> tuple[BurnDevice, ...]:
        return once(devices, "device")

    @property
    def gpus(self) -> int:
        """GPUs that were loaded."""
        return sum(one.device != "cpu" for one in self.devices)

    @property
    def failures(self) -> int:
        """GPUs whose results were wrong, or that did not come to the end."""
        return sum(bool(d.wrong or d.bad or d.fault) for d in self.devices if d.device != "cpu")

    @property
    def gpu_hours(self) -> float:
        """Of load, over all GPUs, of one that ended early until then; 0 where the GPUs are emulated."""
        if self.emulated:
            return 0.0
        gpus = [one for one in self.devices if one.device != "cpu"]
        return sum(len(one.rates) * self.window_s if one.fault else self.seconds for one in gpus) / 3600
