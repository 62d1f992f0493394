"""What a GPU was doing while it was measured, as a sampler beside the measurement saw it by NVML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from validation.base.counting import number_of
from validation.kinds.parsing import ParseError, real
from validation.model.base import Model
from validation.model.facts import Count

Seconds = float
THROTTLED = {
    "hw_thermal_slowdown": "it was too hot",
    "sw_thermal_slowdown": "it was too hot",
    "hw_power_brake_slowdown": "the power supply asked for it",
    "hw_slowdown": "its hardware slowed it down",
}
"""Reasons for which a healthy GPU in a healthy server never lowers its clocks -> in words. hw_slowdown comes with the
hardware's other two; sw_power_cap is usual under matrix products."""
SLOW_CLOCK = 0.6
"""Share of the largest clock of a GPU's multiprocessors below which it was asleep, or is held low, under load: what
power and heat leave is more. Project default."""
CAPPED_SHARE = 0.5  # of the looks with sw_power_cap: then it is its power that holds the clock


class Range(Model):
    """The least, the median and the most of what was seen."""

    least: float = Field(ge=0, allow_inf_nan=False)
    median: float = Field(ge=0, allow_inf_nan=False)
    most: float = Field(ge=0, allow_inf_nan=False)


class GpuWatch(Model):
    """A GPU beside a measurement. Clocks in MHz, power in W, temperature in degrees Celsius, utilisation in percent.

    `samples`: looks while it was measured, of which the ranges and `reasons` (the share of looks with each reason for
    its clocks) are. `seconds`: how long it was looked at in all, `reason_s` how long of that with each reason. `said`:
    why it was not looked at, or not to the end.
    """

    address: str = ""
    uuid: str = ""
    samples: Count = 0
    seconds: float = Field(default=0, ge=0, allow_inf_nan=False)
    said: str = ""
    sm_mhz: Range | None = None
    memory_mhz: Range | None = None
    power_w: Range | None = None
    temperature_c: Range | None = None
    utilisation_percent: Range | None = None
    sm_max_mhz: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    memory_max_mhz: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    power_limit_w: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    reasons: dict[str, float] = Field(default={})
    reason_s: dict[str, float] = Field(default={})

    @property
    def throttled(self) -> dict[str, Seconds]:
        """Reasons for which its clocks were lowered and should not have been, with their seconds."""
        found = {name: self.reason_s.get(name, 0.0) for name in THROTTLED if self.reasons.get(name)}
        return {**{n: s for n, s in self.reason_s.items() if n in THROTTLED and s > 0}, **found}

    @property
    def held_low(self) -> bool:
        """Whether its clock stayed far below its largest while it worked, and neither heat nor power held it there."""
        if self.sm_mhz is None or not self.sm_max_mhz or self.reasons.get("sw_power_cap", 0.0) >= CAPPED_SHARE:
            return False
        return self.sm_mhz.median < SLOW_CLOCK * self.sm_max_mhz

    @property
    def unnamed(self) -> str:
        """In words, reasons for its clocks that this release has no name for; "" where there were none."""
        found = [f"{name} in {share:.0%} of the looks" for name, share in self.reasons.items() if name.startswith("0x")]
        return f"reasons for its clock without a name here: {', '.join(found)}" if found else ""

    @property
    def words(self) -> str:
        """`1455 of 1530 MHz (1380 to 1455), 212 W, 54 C, 99 % in use`; "" where nothing was seen."""
        parts = []
        if self.sm_mhz is not None:
            of = f" of {self.sm_max_mhz:.0f}" if self.sm_max_mhz else ""
            least, most = self.sm_mhz.least, self.sm_mhz.most
            span = f" ({least:.0f} to {most:.0f})" if least < most else ""
            parts.append(f"{self.sm_mhz.median:.0f}{of} MHz{span}")
        for value, unit in ((self.power_w, "W"), (self.temperature_c, "C"), (self.utilisation_percent, "% in use")):
            parts += [f"{value.median:.0f} {unit}"] if value is not None else []
        return ", ".join(parts)

    @property
    def slowed_words(self) -> str:
        """What held its clocks down, in words: reasons with their seconds; "" where nothing should be said."""
        said = [f"{name} for {seconds:.1f} of {self.seconds:.1f} s ({THROTTLED[name]})"
                for name, seconds in self.throttled.items()]  # fmt: skip
        if self.held_low and self.sm_mhz is not None:
            why = [name for name, share in self.reasons.items() if share and name not in THROTTLED]
            shown = f" ({', '.join(why)})" if why else ""
            said.append(f"held at {self.sm_mhz.median:.0f} of {self.sm_max_mhz:.0f} MHz{shown}")
        return "; ".join(said)


# --- What a sampler beside a measurement saw of a GPU, from a probe's document ---------------------------------------


RANGES = ("sm_mhz", "memory_mhz", "power_w", "temperature_c", "utilisation_percent")
LIMITS = ("sm_max_mhz", "memory_max_mhz", "power_limit_w")
_WHAT = "what a GPU was doing"


def watch_of(report: Any, address: str) -> dict[str, Any] | None:
    """Of the GPU at that PCI address, as GpuWatch has it; None where the probe does not tell."""
    if report is None:
        return None
    mine = [one for one in report["gpus"] if one["address"] == address]
    if len(mine) > 1:
        raise ParseError(f"{_WHAT}: {number_of(len(mine), 'GPU')} are at {address or 'no address'}")
    if not mine:
        why = str(report["said"]) or "NVML has no GPU at its address"
        return GpuWatch(address=address, said=why).model_dump(mode="json")
    return checked(mine[0])


def checked(one: Mapping[str, Any]) -> dict[str, Any]:
    """One GPU's document; ParseError where its figures contradict each other."""
    found: dict[str, Any] = {key: one[key] for key in ("address", "uuid", "samples", "seconds", "said")}
    found.update({key: one.get(key) for key in LIMITS})
    for key in RANGES:
        if one.get(key) is None:
            continue
        least, median, most = (real(one[key][part], f"{_WHAT}: {key}") for part in ("least", "median", "most"))
        if not 0 <= least <= median <= most or not one["samples"]:
            span = f"{least:g} to {most:g}, of {one['samples']} looks"
            raise ParseError(f"{_WHAT}: {key}: {median:g} is not within {span}")
        found[key] = {"least": least, "median": median, "most": most}
    for key, limit in (("reasons", 1.0), ("reason_s", found["seconds"])):
        found[key] = {str(name): real(value, f"{_WHAT}: {name}") for name, value in one[key].items()}
        if any(not 0 <= value <= limit + 0.011 for value in found[key].values()):
            raise ParseError(f"{_WHAT}: {key}: more than the whole")
    return found
