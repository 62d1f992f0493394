"""Printing a tensor copies its values once, not once for each element."""

from __future__ import annotations

from typing import Any

import torch


def install() -> None:
    """Wrap the function of torch that formats values; what follows them (device, dtype, grad_fn) stays torch's."""
    import torch._tensor_str as theirs

    own = theirs._tensor_str

    def _tensor_str(self: Any, indent: int) -> Any:
        if (
            isinstance(self, torch.Tensor)
            and self.device.type == "cuda"
            and type(self).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
        ):
            self = shown(self.detach(), theirs.PRINT_OPTS).cpu()
        return own(self, indent)

    theirs._tensor_str = _tensor_str


def shown(tensor: Any, options: Any) -> Any:
    """The tensor whole; a large one is cut by torch itself on the copy."""
    return tensor
