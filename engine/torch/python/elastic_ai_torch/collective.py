"""What a collective is, for whoever carries it out: its name, its tensors, its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

#: Those that compute, and so depend on what the bytes mean; of all others only the bytes are carried.
COMPUTE = ("allreduce", "reduce", "reduce_scatter", "_reduce_scatter_base")
#: Of truth values, which gloo computes as numbers.
_OF_TRUTH = {"SUM": "MAX", "PRODUCT": "MIN"}


@dataclass(frozen=True)
class Collective:
    """`name` as torch's backends have it. Those that write where they read have `outputs` alone. root: of whom, or to
    whom; -1 for anybody. sizes: rows of alltoall_base's outputs and inputs, empty for equal parts."""

    name: str
    outputs: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    operation: str = "SUM"
    root: int = 0
    tag: int = 0
    sizes: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))

    def with_tensors(self, made: Callable[[Any], Any]) -> Collective:
        """The same with others in their places."""
        return replace(self, outputs=[made(t) for t in self.outputs], inputs=[made(t) for t in self.inputs])

    def plain(self) -> Collective:
        """The same in types that every backend knows: bytes, and numbers for truth values."""
        if self.name not in COMPUTE:
            rows = self.name == "alltoall_base"
            return self.with_tensors(lambda tensor: as_bytes(tensor, rows))
        if all(tensor.dtype != torch.bool for tensor in (*self.outputs, *self.inputs)):
            return self.with_tensors(lambda tensor: tensor.detach())
        numbers = self.with_tensors(lambda tensor: tensor.detach().view(torch.uint8))
        return replace(numbers, operation=_OF_TRUTH.get(self.operation, self.operation))

    def on(self, backend: Any) -> Any:
        """Begun by one of torch's own backends: its work."""
        import torch.distributed.distributed_c10d as c10d

        def options(kind: str, **named: Any) -> Any:
            made = getattr(c10d, kind)()
            for name, value in named.items():
                setattr(made, name, value)
            return made

        operation = getattr(c10d.ReduceOp, self.operation)
        if self.name == "allreduce":
            if len(self.outputs) > 1:
                return backend.allreduce_coalesced(
                    self.outputs, options("AllreduceCoalescedOptions", reduceOp=operation)
                )
            return backend.allreduce(self.outputs, options("AllreduceOptions", reduceOp=operation))
        if self.name == "broadcast":
            return backend.broadcast(self.outputs, options("BroadcastOptions", rootRank=self.root))
        if self.name == "reduce":
            return backend.reduce(self.outputs, options("ReduceOptions", reduceOp=operation, rootRank=self.root))
        if self.name == "allgather":
            return backend.allgather([self.outputs], self.inputs, options("AllgatherOptions"))
        if self.name == "gather":
            outputs = [self.outputs] if self.outputs else []
            return backend.gather(outputs, self.inputs, options("GatherOptions", rootRank=self.root))
        if self.name == "scatter":
            inputs = [self.inputs] if self.inputs else []
            return backend.scatter(self.outputs, inputs, options("ScatterOptions", rootRank=self.root))
        if self.name == "reduce_scatter":
            return backend.reduce_scatter(
                self.outputs, [self.inputs], options("ReduceScatterOptions", reduceOp=operation)
            )
        if self.name == "_reduce_scatter_base":
            return backend._reduce_scatter_base(
                self.outputs[0], self.inputs[0], options("ReduceScatterOptions", reduceOp=operation)
            )
        if self.name == "_allgather_base":
            return backend._allgather_base(self.outputs[0], self.inputs[0], options("AllgatherOptions"))
        if self.name == "alltoall":
            return backend.alltoall(self.outputs, self.inputs, options("AllToAllOptions"))
        if self.name == "alltoall_base":
            return backend.alltoall_base(self.outputs[0], self.inputs[0], *self.sizes, options("AllToAllOptions"))
        if self.name == "send":
            return backend.send(self.inputs, self.root, self.tag)
        if self.name == "recv" and self.root < 0:
            return backend.recv_anysource(self.outputs, self.tag)
        if self.name == "recv":
            return backend.recv(self.outputs, self.root, self.tag)
        return backend.barrier(options("BarrierOptions"))


class Carrier(Protocol):
    """Carries collectives out; each rank of the group calls the same ones in the same order."""

    def start(self, one: Collective) -> Any:
        """Begins it: the future of its outputs."""

    def close(self) -> None:
        """Nothing more is started."""


def as_bytes(tensor: Any, rows: bool) -> Any:
    """Its bytes, of a contiguous tensor; in as many rows as it has."""
    count = tensor.shape[0] if rows and tensor.dim() else 1
    flat = tensor.detach().reshape(count, tensor.numel() // count if count else 0)
    whole = flat.view(torch.uint8)
    return whole if rows else whole.view(-1)
