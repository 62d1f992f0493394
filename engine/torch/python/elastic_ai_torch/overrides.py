"""Kernels that torch registers on the key CUDA after this plug-in: taken out again, and what is left is checked.

`torch._native` (since 2.12) puts kernels of Triton and CuTe there at the end of `import torch`: they would run on
addresses that are only numbers here.
"""

from __future__ import annotations

import importlib.util
import warnings

from elastic_ai_torch.client import Library


def deregister() -> None:
    """Import torch._native now and take its CUDA kernels out, before anything else can be registered by it."""
    if importlib.util.find_spec("torch._native") is None:
        return
    import torch._native.registry as registry

    registry.deregister_op_overrides(disable_dispatch_keys=["CUDA"])


def check(library: Library) -> None:
    """At the first use of CUDA: an operator whose CUDA kernel is another's is told by name."""
    foreign = [name.partition(" ")[0].rstrip(".") for name in library.foreign() if name.startswith("aten::")]
    if foreign:
        warnings.warn(
            f"{len(foreign)} operators have CUDA kernels of another library, which cannot run on a leased GPU: "
            f"{', '.join(foreign[:5])}{' ...' if len(foreign) > 5 else ''}",
            stacklevel=2,
        )
