"""What cannot be had of a GPU that is elsewhere: one sentence each, at the line that asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

#: What to do instead, for all that needs the GPU's own machine.
INSTEAD = "run the program beside the GPU (toolkit run --where server)"
ADDRESS = f"the memory is not on this machine and has no address here; take .cpu() first, or {INSTEAD}"

_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


def refuse(name: str, reason: str = "") -> NoReturn:
    """RuntimeError: not on a leased GPU: NAME."""
    raise RuntimeError(f"not on a leased GPU: {name}; {reason or INSTEAD}")


def refusal(name: str, reason: str = "") -> Callable[..., NoReturn]:
    """A function of its own (dynamo tells functions apart) that refuses."""

    def refused(*_: Any, **__: Any) -> NoReturn:
        refuse(name, reason)

    refused.__name__ = refused.__qualname__ = name
    return refused


def unknown_names(module: Any) -> None:
    """Every name _cuda*, _nccl* that torch's C module lacks is a function that says "not on a leased GPU: NAME".

    torch brings a few new ones with each release; each name is the same object each time.
    """
    before = getattr(module, "__getattr__", None)

    def missing(name: str) -> Any:
        if name.startswith(("_cuda_", "_nccl_", "_gds_")):
            stand_in = refusal(f"torch._C.{name}")
            setattr(module, name, stand_in)
            return stand_in
        if before is not None:
            return before(name)
        raise AttributeError(f"module 'torch._C' has no attribute {name!r}")

    module.__getattr__ = missing


def refuse_class(base: Any, name: str, reason: str = "") -> None:
    """Making an object of the class, or of one that derives from it, refuses."""

    def new(*_: Any, **__: Any) -> NoReturn:
        refuse(name, reason)

    base.__new__ = staticmethod(new)


def install() -> None:
    """Graphs, pools, allocators, addresses for other libraries."""
    core = torch._C
    graphs = "CUDA graphs; take the graph out, the program runs the same without it"
    for holder, name, said in (
        (core, "_CUDAGraph", "torch.cuda.CUDAGraph"),
        (core, "_MemPool", "torch.cuda.MemPool"),
        (core, "_cuda_CUDAAllocator", "torch.cuda.memory.CUDAPluggableAllocator"),
    ):
        base = getattr(holder, name, None)
        if isinstance(base, type):
            try:
                refuse_class(base, said, graphs.partition("; ")[2] if "Graph" in said else "")
            except TypeError:  # the C class of a wheel with CUDA: the subclass in Python is what programs make
                _refuse_subclasses(base, said)
    torch.cuda.graphs._graph_pool_handle = refusal("torch.cuda.graph_pool_handle")
    torch.cuda.memory.CUDAPluggableAllocator.__init__ = refusal("torch.cuda.memory.CUDAPluggableAllocator")
    torch.cuda.current_blas_handle = refusal("torch.cuda.current_blas_handle", "the handle is of the server's process")
    torch.cuda.current_solver_handle = refusal(
        "torch.cuda.current_solver_handle", "the handle is of the server's process"
    )
    for name in ("caching_allocator_alloc", "caching_allocator_delete"):
        for module in (torch.cuda, torch.cuda.memory):
            setattr(module, name, refusal(f"torch.cuda.{name}", ADDRESS))
    torch.cuda.get_stream_from_external = refusal("torch.cuda.get_stream_from_external")
    _addresses()


def _refuse_subclasses(base: Any, name: str) -> None:
    for derived in base.__subclasses__():
        refuse_class(derived, name)


def _addresses() -> None:
    """DLPack and the array interface of CUDA hand out an address: refused, with the error that each protocol knows."""
    tensor = torch.Tensor
    own_dlpack, own_interface = tensor.__dlpack__, tensor.__cuda_array_interface__

    def __dlpack__(self: Any, *arguments: Any, **named: Any) -> Any:
        if self.device.type == "cuda":
            raise BufferError(f"not on a leased GPU: DLPack; {ADDRESS}")
        return own_dlpack(self, *arguments, **named)

    def __cuda_array_interface__(self: Any) -> Any:
        if self.device.type == "cuda":
            refuse("__cuda_array_interface__", ADDRESS)
        return own_interface.fget(self)

    own_import = torch.from_dlpack

    def from_dlpack(ext_tensor: Any, **named: Any) -> Any:
        place = getattr(ext_tensor, "__dlpack_device__", None)
        if place is not None and int(place()[0]) in _DLPACK_CUDA:
            raise BufferError(f"not on a leased GPU: DLPack; {ADDRESS}")
        return own_import(ext_tensor, **named)

    from_dlpack.__doc__ = own_import.__doc__
    torch.from_dlpack = torch.utils.dlpack.from_dlpack = from_dlpack
    tensor.__dlpack__ = __dlpack__
    tensor.__cuda_array_interface__ = property(__cuda_array_interface__)
    for name in ("_to_dlpack", "_to_dlpack_versioned"):
        own = getattr(torch._C, name, None)
        if own is not None:
            guarded = _guarded_export(own, name)
            setattr(torch._C, name, guarded)
            for module in (torch, torch.utils.dlpack):
                for public, value in list(vars(module).items()):
                    if value is own:
                        setattr(module, public, guarded)


def _guarded_export(own: Callable[..., Any], name: str) -> Callable[..., Any]:
    def export(tensor: Any, *arguments: Any, **named: Any) -> Any:
        if getattr(tensor, "is_cuda", False):
            raise BufferError(f"not on a leased GPU: DLPack; {ADDRESS}")
        return own(tensor, *arguments, **named)

    export.__name__ = export.__qualname__ = name
    return export
