"""torch.compile: its default backend makes no kernels for a leased GPU, but sends whole graphs (graphs.py)."""

from __future__ import annotations

import sys
from typing import Any

import torch

from elastic_ai_torch.loading import when_loaded

#: Backends that only trace; they run here as they are.
_PLAIN = ("eager", "aot_eager", "aot_eager_decomp_partition")
#: Backends that make kernels, or keep launches: graphs that go whole stand for them.
_WHOLE = (None, "inductor", "cudagraphs")
_said = False


def install() -> None:
    """Replace torch.compile where a backend would make kernels."""
    own = torch.compile

    def compile(model: Any = None, *, backend: Any = None, **named: Any) -> Any:
        if _leased(backend):
            from elastic_ai_torch.graphs import backend as whole

            if named.get("mode") is not None and named.get("options") is not None:
                return own(model, **named)  # torch's own error
            return own(model, backend=whole, **named)
        if backend in _PLAIN or callable(backend):
            return own(model, backend=backend, **named)
        if model is None:
            return lambda function: compile(function, backend=backend, **named)
        _say(backend)
        if not callable(model):
            return own(model, **named)  # torch's own error
        if isinstance(model, torch.nn.Module):
            from torch._dynamo.eval_frame import DisableContext, OptimizedModule

            return OptimizedModule(model, DisableContext())  # keys of its state begin with _orig_mod, as compiled
        return model

    compile.__doc__ = own.__doc__
    torch.compile = compile
    when_loaded("torch._dynamo.eval_frame", _replace_optimize)


def _leased(backend: Any) -> bool:
    return backend is None or (isinstance(backend, str) and backend in _WHOLE)


def _replace_optimize(module: Any) -> None:
    """torch._dynamo.optimize called by itself."""
    own = module._optimize

    def optimize(rebuild_ctx: Any, backend: Any = "inductor", **named: Any) -> Any:
        if _leased(backend):
            from elastic_ai_torch.graphs import backend as whole

            return own(rebuild_ctx, whole, **named)
        if backend in _PLAIN or callable(backend):
            return own(rebuild_ctx, backend, **named)
        _say(backend)
        return module._NullDecorator()

    module._optimize = optimize


def _say(backend: Any) -> None:
    global _said
    if not _said:
        _said = True
        print(
            f"torch.compile: the backend {backend!r} makes nothing for a leased GPU; the program runs as written "
            "(eager)", file=sys.stderr,
        )  # fmt: skip
