"""Tensors that are not carried: sparse, quantised and nested ones are refused at the line that makes them."""

from __future__ import annotations

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


def _fallback(kind: str) -> Any:
    def fallback(operator: Any, *_: Any, **__: Any) -> NoReturn:
        _refused(kind, str(operator).partition(".")[2] or str(operator))

    return fallback
