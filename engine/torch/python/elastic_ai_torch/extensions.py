"""CUDA code of a program's own, compiled while it runs: refused by a sentence at the line that asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elastic_ai_torch.loading import when_loaded
from elastic_ai_torch.refusals import INSTEAD, refuse

_MODULE = "torch.utils.cpp_extension"
_CUDA = (".cu", ".cuh")


def install() -> None:
    """Now, or when the module is imported."""
    when_loaded(_MODULE, guard)


def guard(module: Any) -> None:
    """load and load_inline refuse CUDA code; C++ alone is compiled as ever."""
    for name in ("load", "load_inline"):
        setattr(module, name, _guarded(getattr(module, name), name))


def _guarded(own: Callable[..., Any], name: str) -> Callable[..., Any]:
    def load(*arguments: Any, **named: Any) -> Any:
        places = ("name", "sources") if name == "load" else ("name", "cpp_sources", "cuda_sources")
        given = {**dict(zip(places, arguments, strict=False)), **named}
        sources = given.get("sources") or []
        files = [sources] if isinstance(sources, str) else sources
        if given.get("cuda_sources") or given.get("with_cuda") or any(str(file).endswith(_CUDA) for file in files):
            reason = f"its kernels would run on this machine, which has no GPU; {INSTEAD}"
            refuse(f"CUDA code of the program's own ({_MODULE}.{name}: {given.get('name')})", reason)
        return own(*arguments, **named)

    load.__name__ = load.__qualname__ = name
    load.__doc__ = own.__doc__
    return load
