"""Whole graphs of torch.compile: each is told to the server once, then run by one message.

A graph runs operator by operator the first time, when its operators are learned, and is taken down the second time:
what the client sends is what the server keeps (operators/record.cc). From the third time on it is one message, for the
same shapes. So it computes what eager computes, by the same kernels. What cannot be taken down runs by its operators.
"""

from __future__ import annotations

import struct
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: What elastic_ai::graph_run gives instead of a variant's number (client/operators/graphs.cc).
_TAKE_DOWN = -2
_said = False


class Graph:
    """A graph module whose inputs are tensors and numbers, and whose results are a flat sequence."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        """Nothing is told to the server yet."""
        self._module = module
        self._numbers: list[int] | None = None  # positions of inputs that are no tensors
        self._others: dict[int, list[Any]] = {}  # results of a variant that are no tensors; Ellipsis where one is
        self._set = torch.ops.elastic_ai.graph_new()
        weakref.finalize(self, _drop, self._set).atexit = False

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        """As the module."""
        return self.run(inputs)

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The same with the inputs as one sequence."""
        if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
            return self._as_written(inputs)
        if self._numbers is None:
            self._numbers = [i for i, one in enumerate(inputs) if not isinstance(one, torch.Tensor)]
        tensors: Any = inputs
        numbers: list[int] = []
        if self._numbers:
            tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
            if len(tensors) + len(self._numbers) != len(inputs):
                return self._as_written(inputs)
            for i in self._numbers:
                bits = _bits(inputs[i])
                if bits is None:
                    return self._as_written(inputs)
                numbers += bits
        variant, results = torch.ops.elastic_ai.graph_run(self._set, numbers, tensors)
        if variant >= 0:
            others = self._others.get(variant)
            if others is None:
                return tuple(results)
            tensors_left = iter(results)
            return tuple(next(tensors_left) if one is ... else one for one in others)
        if variant == _TAKE_DOWN:
            return self._take_down(inputs, numbers, tensors)
        return self._as_written(inputs)

    def _as_written(self, inputs: Sequence[Any]) -> Sequence[Any]:
        results: Sequence[Any] = self._module(*inputs)
        return results

    def _take_down(self, inputs: Sequence[Any], numbers: list[int], tensors: Any) -> Sequence[Any]:
        ops = torch.ops.elastic_ai
        before, cached = torch.get_rng_state(), torch.is_autocast_cache_enabled()
        on_cpu = [one for one in tensors if one.device.type == "cpu"]
        watching = _Watching(on_cpu) if on_cpu else nullcontext()
        ops.graph_begin(self._set, numbers, tensors)
        try:
            torch.set_autocast_cache_enabled(False)  # a cast that was made outside is of the weights of that time
            with watching:
                results = self._as_written(inputs)
        except BaseException:
            ops.graph_cancel()
            raise
        finally:
            torch.set_autocast_cache_enabled(cached)
        why = watching.why if isinstance(watching, _Watching) else ""
        if not torch.equal(before, torch.get_rng_state()):
            why = "it draws random numbers on the CPU"
        made = [one for one in results if isinstance(one, torch.Tensor)]
        if any(type(one) not in (torch.Tensor, torch.nn.Parameter) for one in made):
            why = why or "it makes tensors of a class of their own"
        variant, why = ops.graph_end(made, why)
        if variant >= 0:
            if len(made) != len(results):
                self._others[variant] = [... if isinstance(one, torch.Tensor) else one for one in results]
        elif why:
            _say(why)
        return results


class _Watching(TorchDispatchMode):
    """Sees whether a graph computes from tensors of the CPU there, where nothing of it can be taken down."""

    def __init__(self, inputs: list[torch.Tensor]) -> None:
        super().__init__()
        self._memory = {one.untyped_storage().data_ptr() for one in inputs}
        self.why = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operator as it is."""
        result = func(*args, **(kwargs or {}))
        given = [one for one in tree_leaves((args, kwargs)) if _on_cpu(one)]
        if any(one.untyped_storage().data_ptr() in self._memory for one in given) and not all(
            isinstance(one, torch.Tensor) and one.device.type == "cuda" for one in tree_leaves(result)
        ):
            self.why = "it computes on the CPU"
        return result


def backend(module: torch.fx.GraphModule, inputs: Sequence[Any], **named: Any) -> Callable[..., Any]:
    """A backend of torch.compile. Graphs without a tensor on a leased GPU are left to inductor."""
    if not _on_gpu(module, inputs):
        return _inductor(module, inputs, named)
    if torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in inputs):
        return _with_gradients(module, inputs)
    if any(node.target is torch._C._set_grad_enabled for node in module.graph.nodes):
        written: Callable[..., Any] = module.forward  # it may make a graph of autograd's own
        return written
    return Graph(module)


def _with_gradients(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import default_partition

    def compiled(traced: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        graph = Graph(traced)

        def boxed(given: list[Any]) -> Sequence[Any]:
            return graph.run(given)

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    # Nothing is computed twice, and what eager keeps for the backward pass is kept.
    make: Any = aot_autograd(
        fw_compiler=compiled, bw_compiler=compiled, partition_fn=default_partition, keep_inference_input_mutations=True
    )
    made: Callable[..., Any] = make(module, inputs)
    return made


def _inductor(module: torch.fx.GraphModule, inputs: Sequence[Any], named: dict[str, Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = torch._TorchCompileInductorWrapper(named.get("mode"), named.get("options"), None)(
        module, inputs
    )
    return made


def _on_gpu(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> bool:
    values = [*inputs, *(value for node in module.graph.nodes for value in _values(node))]
    return any(isinstance(one, torch.Tensor) and one.device.type == "cuda" for one in values)


def _on_cpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _values(node: torch.fx.Node) -> list[Any]:
    value = node.meta.get("val", node.meta.get("example_value"))
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _bits(number: Any) -> list[int] | None:
    if number is None:
        return [0, 0]
    if isinstance(number, (bool, int)):
        return [1 + isinstance(number, bool), int(number)] if -(1 << 63) <= number < 1 << 63 else None
    if isinstance(number, float):
        return [3, *struct.unpack("q", struct.pack("d", number))]
    return None


def _drop(number: int) -> None:
    torch.ops.elastic_ai.graph_drop(number)


def _say(why: str) -> None:
    global _said
    if not _said:
        _said = True
        print(f"torch.compile: a graph runs operator by operator on the leased GPU (eager), for {why}", file=sys.stderr)
