"""torch.cuda.FloatTensor and its kin: types that old programs make tensors with, and set as default."""

from __future__ import annotations

from typing import Any

import torch

NAMES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Byte", "Char", "Bool")


class _TensorType(type):
    """Of torch.cuda.FloatTensor: isinstance by dtype and device, as torch's own."""

    dtype: Any
    is_cuda = True
    is_sparse = False
    layout = torch.strided

    def __instancecheck__(cls, value: object) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.is_cuda
            and value.dtype == cls.dtype
            and value.layout == torch.strided
        )

    def __call__(cls, *arguments: Any, device: Any = None) -> Any:
        place = torch.device("cuda") if device is None else torch.device(device)
        if not arguments or all(isinstance(a, int) for a in arguments) or isinstance(arguments[0], torch.Size):
            return torch.empty(arguments[0] if arguments and not isinstance(arguments[0], int) else arguments or (0,),
                               dtype=cls.dtype, device=place)  # fmt: skip
        given = arguments[0]
        if isinstance(given, torch.Tensor):
            return given.to(device=place, dtype=cls.dtype)
        return torch.tensor(given, dtype=cls.dtype, device=place)


def install() -> None:
    """The types, and torch.set_default_tensor_type for them."""
    ours: dict[Any, Any] = {}
    for name in NAMES:
        full = f"torch.cuda.{name}Tensor"  # Tensor.type() compares this, the C name of the class
        dtype = getattr(torch, f"{name}Tensor").dtype
        made = _TensorType(full, (), {"dtype": dtype, "__module__": "torch.cuda", "__qualname__": f"{name}Tensor"})
        setattr(torch.cuda, f"{name}Tensor", made)
        ours[made] = ours[full] = made
    own = torch.set_default_tensor_type

    def set_default_tensor_type(t: Any, /) -> None:
        if t not in ours:
            own(t)
            torch.set_default_device(None)
            return
        torch.set_default_dtype(ours[t].dtype)
        torch.set_default_device("cuda")

    set_default_tensor_type.__doc__ = own.__doc__
    torch.set_default_tensor_type = set_default_tensor_type
