"""What a burn-in of a node found, segment by segment, and how many of its GPUs failed in it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, field_validator

from validation.measures.compute.segments import segment_of
from validation.measures.gpu.health import GpuHealthFacts
from validation.measures.gpu.watch import GpuWatch
from validation.model import Measurement
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
    `fault`: the words of the call that ended it early. `course`: what a sampler saw of it over the time. `first`:
    digest of the load's first result, "" where each has one that is known. `steps`: of each share of the load the
    seconds that it lasted and those of work; none at full load throughout.
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
    first: str = ""
    steps: dict[str, tuple[float, float]] = Field(default={})

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
    def gpu_hours(self) -> float:
        """Of load, over all GPUs, of one that ended early until then; 0 where the GPUs are emulated."""
        if self.emulated:
            return 0.0
        gpus = [one for one in self.devices if one.device != "cpu"]
        return sum(len(one.rates) * self.window_s if one.fault else self.seconds for one in gpus) / 3600


def other_than_first(
    firsts: dict[tuple[str, ...], tuple[str, str]], m: Measurement, facts: BurnFacts, device: BurnDevice
) -> str:
    """In words, that the load's first result is not that of the first segment; "" where it is."""
    if not device.first:
        return ""
    key = (m.nodes[0], device.device, device.name, device.load, facts.how)
    digest, where = firsts.setdefault(key, (device.first, segment_of(m).words))
    if digest == device.first:
        return ""
    return f"its first result is {device.first[:16]}..., that of {where} was {digest[:16]}..., of the same operands"


def failures(found: Iterable[tuple[Measurement, BurnFacts]]) -> int:
    """GPUs of all segments whose results were wrong, or not those of the first segment, or that came to no end."""
    firsts: dict[tuple[str, ...], tuple[str, str]] = {}
    gpus = [(m, facts, one) for m, facts in found for one in facts.devices if one.device != "cpu"]
    return sum(bool(d.wrong or d.bad or other_than_first(firsts, m, facts, d) or d.fault) for m, facts, d in gpus)
