"""Several devices in one process: what torch.nn.parallel.comm asks of C functions that a wheel for processors lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def broadcast(tensor: Any, devices: Sequence[int]) -> list[Any]:
    """The tensor on each device."""
    return [tensor.to(torch.device("cuda", device), non_blocking=True) for device in devices]


def broadcast_out(tensor: Any, out: Sequence[Any]) -> list[Any]:
    """Into tensors that are there."""
    return [target.copy_(tensor, non_blocking=True) for target in out]


def broadcast_coalesced(tensors: Sequence[Any], devices: Sequence[int], buffer_size: int) -> list[list[Any]]:
    """Each tensor on each device, ordered by device."""
    return [[tensor.to(torch.device("cuda", device), non_blocking=True) for tensor in tensors] for device in devices]


def scatter(
    tensor: Any, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Any = None
) -> list[Any]:
    """Parts of the tensor, one for each device."""
    parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    return [
        part.to(torch.device("cuda", device), non_blocking=True) for part, device in zip(parts, devices, strict=False)
    ]


def scatter_out(tensor: Any, out: Sequence[Any], dim: int, streams: Any = None) -> list[Any]:
    """Into tensors that are there."""
    parts = tensor.split([target.size(dim) for target in out], dim)
    return [target.copy_(part, non_blocking=True) for target, part in zip(out, parts, strict=True)]


def gather(tensors: Sequence[Any], dim: int, destination: int | None) -> Any:
    """One tensor of all, on the destination: None is the first's device, -1 the processor."""
    if destination == -1:
        return torch.cat([tensor.cpu() for tensor in tensors], dim)
    index = torch.cuda.current_device() if destination is None else destination
    return torch.cat([tensor.to(torch.device("cuda", index)) for tensor in tensors], dim)


def gather_out(tensors: Sequence[Any], out: Any, dim: int) -> Any:
    """Into a tensor that is there."""
    return torch.cat([tensor.to(out.device) for tensor in tensors], dim, out=out)


def install() -> None:
    """Under their names in torch._C."""
    for function in (broadcast, broadcast_out, broadcast_coalesced, scatter, scatter_out, gather, gather_out):
        setattr(torch._C, f"_{function.__name__}", function)
    torch.cuda.nccl.is_available = lambda tensors: False  # of one process: its callers copy and add instead
