"""torch.compile: one sentence, then the program runs as written. Nothing is compiled for a GPU that is elsewhere."""

from __future__ import annotations

import sys
from typing import Any

import torch

#: Backends that only trace; they run here as they are.
_PLAIN = ("eager", "aot_eager", "aot_eager_decomp_partition")
_said = False


def install() -> None:
    """Replace torch.compile where a backend would make kernels."""
    own = torch.compile

    def compile(model: Any = None, *, backend: Any = None, **named: Any) -> Any:
        if backend in _PLAIN or callable(backend):
            return own(model, backend=backend, **named)
        if model is None:
            return lambda function: compile(function, backend=backend, **named)
        _say()
        if not callable(model):
            return own(model, **named)  # torch's own error
        if isinstance(model, torch.nn.Module):
            from torch._dynamo.eval_frame import DisableContext, OptimizedModule

            return OptimizedModule(model, DisableContext())  # keys of its state begin with _orig_mod, as compiled
        return model

    compile.__doc__ = own.__doc__
    torch.compile = compile


def _say() -> None:
    global _said
    if not _said:
        _said = True
        print(
            "torch.compile: nothing is compiled for a leased GPU; the program runs as written (eager)", file=sys.stderr
        )
