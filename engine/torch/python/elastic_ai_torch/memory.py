"""Memory statistics, counted on the client without a wait, under the names of torch's own allocator."""

from __future__ import annotations

import warnings
from typing import Any

from elastic_ai_torch.client import Client

_OF_BYTES = ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes", "inactive_split_bytes")
_OF_BLOCKS = ("allocation", "active", "segment", "inactive_split")


class Memory:
    """The functions of torch._C on memory. The server counts its pools itself; here one pool is told, `all`."""

    def __init__(self, client: Client) -> None:
        """Nothing is counted before the first allocation."""
        self._client = client
        self._before: dict[int, tuple[int, int]] = {}  # allocations and frees at the last reset
        self._fraction: dict[int, float] = {}

    def empty_cache(self) -> None:
        """What servers keep of freed memory is given back, for other programs of the lease."""
        self._client.library.empty_cache()

    def stats(self, device: int) -> dict[str, Any]:
        """What torch.cuda.memory_stats is made of. What only the server's allocator knows is 0."""
        allocated, peak, reserved, peak_reserved, allocations, frees, _, ooms = self._client.library.memory(
            self._client.check(device)
        )
        allocations_before, frees_before = self._before.get(device, (0, 0))
        held = {"current": allocated, "peak": peak, "allocated": peak, "freed": peak - allocated}
        kept = {
            "current": reserved,
            "peak": peak_reserved,
            "allocated": peak_reserved,
            "freed": peak_reserved - reserved,
        }
        blocks = {
            "current": allocations - frees,
            "peak": allocations - frees,
            "allocated": allocations - allocations_before,
            "freed": frees - frees_before,
        }
        told: dict[str, dict[str, int]] = {
            "allocated_bytes": held, "active_bytes": held, "requested_bytes": held, "reserved_bytes": kept,
            "allocation": blocks, "active": blocks,
        }  # fmt: skip
        statistics: dict[str, Any] = {
            name: {"all": told.get(name, _nothing()), "large_pool": _nothing(), "small_pool": _nothing()}
            for name in _OF_BYTES + _OF_BLOCKS
        }
        statistics.update({name: _nothing() for name in ("oversize_allocations", "oversize_segments")})
        for name in ("num_alloc_retries", "num_sync_all_streams", "num_device_alloc", "num_device_free"):
            statistics[name] = 0
        return {**statistics, "num_ooms": ooms, "max_split_size": -1}

    def reset_peak(self, device: int) -> None:
        """torch.cuda.reset_peak_memory_stats."""
        self._client.library.reset_peak(self._client.check(device))

    def reset_accumulated(self, device: int) -> None:
        """torch.cuda.reset_accumulated_memory_stats."""
        numbers = self._client.library.memory(self._client.check(device))
        self._before[device] = (numbers[4], numbers[5])

    def info(self, device: int) -> tuple[int, int]:
        """Free and total bytes of the lease's part of the device; a neighbour's use is nobody's business."""
        total = int(self._client.properties(device)["total_memory_bytes"])
        reserved = self._client.library.memory(self._client.check(device))[2]
        return max(total - reserved, 0), total

    def set_fraction(self, fraction: float, device: int) -> None:
        """The part of a lease is the limit; a smaller one of the program's own is kept and said to be not held."""
        self._client.check(device)
        if fraction < 1:
            warnings.warn(
                f"set_per_process_memory_fraction({fraction}): the limit on a leased GPU is the lease's part; "
                "a smaller one is not enforced",
                stacklevel=3,
            )
        self._fraction[device] = fraction

    def fraction(self, device: int) -> float:
        """What was set."""
        return self._fraction.get(self._client.check(device), 1.0)


def _nothing() -> dict[str, int]:
    return {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
