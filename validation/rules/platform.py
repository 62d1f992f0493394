"""What a node's platform can do at most, derived from what the inventory declares of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from validation.base.counting import number_of
from validation.model import Bound, Platform

BYTES_PER_TRANSFER = 8
"""A memory channel is 64 bits wide, without its bits for error correction (JEDEC JESD79-4, JESD79-5)."""


class Quantity(NamedTuple):
    """Something that follows from a platform: its unit, the keys that it needs, and the value, which says how."""

    unit: str
    needs: tuple[str, ...]
    value: Callable[[Platform], tuple[float, str]]


def _memory_bandwidth(p: Platform) -> tuple[float, str]:
    sockets, channels, mts = p.sockets or 0, p.memory_channels or 0, p.memory_mts or 0
    value = sockets * channels * mts * BYTES_PER_TRANSFER / 1000
    words = (
        f"{number_of(sockets, 'socket')} x {number_of(channels, 'channel')} x {mts} MT/s x "
        f"{BYTES_PER_TRANSFER} bytes = {value:.4g} GB/s"
    )
    return value, words


QUANTITIES = {
    "memory_bandwidth": Quantity("GB/s", ("sockets", "memory_channels", "memory_mts"), _memory_bandwidth),
}


def undeclared(key: str, platform: Platform) -> list[str]:
    """What the quantity `key` needs and the inventory does not declare."""
    return [name for name in QUANTITIES[key].needs if getattr(platform, name) is None]


def platform_bound(key: str, platform: Platform, metric: str, fraction: float, source: str) -> Bound | None:
    """At least `fraction` of the quantity `key`, and never more than it; None where the platform is not declared."""
    if undeclared(key, platform):
        return None
    ceiling, how = QUANTITIES[key].value(platform)
    floor, unit = fraction * ceiling, QUANTITIES[key].unit
    lines = (f"ceiling: {how} (the inventory's platform)", f"floor = {fraction:g} x {ceiling:.4g} = {floor:.4g} {unit}")
    return Bound(metric=metric, unit=unit, floor=floor, ceiling=ceiling, derivation=lines, source=source)
