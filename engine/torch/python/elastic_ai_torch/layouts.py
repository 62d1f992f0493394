"""Tensors that are not carried: sparse, quantised and nested ones are refused at the line that makes them."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import torch

_KEYS = {
    "SparseCUDA": "sparse",
    "SparseCsrCUDA": "sparse",
    "QuantizedCUDA": "quantised",
    "NestedTensorCUDA": "nested",
}
_libraries: list[Any] = []  # a library's kernels go with it


def _refused(kind: str, name: str) -> NoReturn:
    raise NotImplementedError(
        f"not on a leased GPU: {kind} tensors ({name}); keep this tensor on the CPU or make it dense, "
        "or run the program beside the GPU (toolkit run --where server)"
    )


def install() -> None:
    """A fallback for each such key, and the operators that make such a tensor of a dense one."""
    for key, kind in _KEYS.items():
        library = torch.library.Library("_", "IMPL", key)
        library.fallback(_fallback(kind), key)
        _libraries.append(library)
    for name in ("nested_tensor", "as_nested_tensor"):
        setattr(torch.nested, name, _dense(getattr(torch.nested, name)))


def _dense(own: Any) -> Any:
    """Of tensors of the processor torch makes a nested one on the device without asking an operator for it."""

    @functools.wraps(own)
    def make(*arguments: Any, **named: Any) -> Any:
        made = own(*arguments, **named)
        if made.device.type == "cuda" and made.layout == torch.strided:
            _refused("nested", own.__name__)
        return made

    return make


def _fallback(kind: str) -> Any:
    def fallback(operator: Any, *_: Any, **__: Any) -> NoReturn:
        _refused(kind, str(operator).partition(".")[2] or str(operator))

    return fallback
