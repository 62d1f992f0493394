"""Storages on a leased GPU: what a wheel for processors lacks; other processes get copies by the host."""

from __future__ import annotations

import io
import warnings
from typing import Any

import torch

from elastic_ai_torch.refusals import refuse

_shared_said = False


def of_cuda(size: int, device: Any) -> Any:
    """A new storage of so many bytes on the device."""
    return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()


def bytes_of(storage: Any) -> Any:
    """The storage as a tensor of bytes."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def install() -> None:
    """Making, resizing, filling, reading elements; sharing with other processes."""
    storage = torch.UntypedStorage
    own_new, own_resize, own_share = storage.__new__, storage.resize_, storage._share_cuda_
    own_get, own_set, own_fill = storage.__getitem__, storage.__setitem__, storage.fill_

    def __new__(cls: Any, *arguments: Any, device: Any = None, **named: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            return own_new(cls, *arguments, **named, **({} if device is None else {"device": device}))
        given = arguments[0] if arguments else named.get("size", 0)
        if isinstance(given, int):
            return of_cuda(given, device)
        return torch.tensor(list(given), dtype=torch.uint8, device=device).untyped_storage()

    def resize_(self: Any, size: int) -> Any:
        if self.device.type != "cuda":
            return own_resize(self, size)
        torch.ops.elastic_ai.resize_storage_(bytes_of(self), size)
        return self

    def __getitem__(self: Any, index: Any) -> Any:
        if not self.is_cuda:
            return own_get(self, index)
        if not isinstance(index, int):
            refuse("a part of a storage", "take a part of the tensor instead")
        return bytes_of(self)[index].item()

    def __setitem__(self: Any, index: Any, value: int) -> None:
        if self.is_cuda:
            bytes_of(self)[index] = value
        else:
            own_set(self, index, value)

    def fill_(self: Any, value: int) -> Any:
        if not self.is_cuda:
            return own_fill(self, value)
        bytes_of(self).fill_(value)
        return self

    def _share_cuda_(self: Any, *arguments: Any, **named: Any) -> Any:
        if self.is_cuda:
            refuse(
                "CUDA IPC", "send the tensor itself by a queue of torch.multiprocessing: it is copied by this machine"
            )
        return own_share(self, *arguments, **named)

    own_write, own_read = storage._write_file, storage._set_from_file

    def _write_file(self: Any, *arguments: Any) -> None:
        own_write(self.cpu() if self.is_cuda else self, *arguments)

    def _set_from_file(self: Any, *arguments: Any) -> Any:
        if not self.is_cuda:
            return own_read(self, *arguments)
        host = storage(self.nbytes())
        own_read(host, *arguments)
        return self.copy_(host)

    storage._write_file, storage._set_from_file = _write_file, _set_from_file
    storage.__new__ = __new__
    storage.resize_ = resize_
    storage.__getitem__, storage.__setitem__, storage.fill_ = __getitem__, __setitem__, fill_
    storage._share_cuda_ = _share_cuda_
    _share_by_copies()


def rebuild(kind: Any, values: bytes, device: str, requires_grad: bool) -> Any:
    """In the process that receives: the same values on its own device of that number."""
    tensor = torch.load(io.BytesIO(values), weights_only=True).to(device)
    if kind is torch.nn.parameter.Parameter:
        return torch.nn.parameter.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


def _share_by_copies() -> None:
    """Queues and pipes of torch.multiprocessing send a CUDA tensor as its values."""
    from multiprocessing import reduction

    import torch.multiprocessing.reductions as theirs

    own_tensor = theirs.reduce_tensor

    def reduce_tensor(tensor: Any) -> Any:
        if not tensor.is_cuda or tensor.layout != torch.strided:
            return own_tensor(tensor)
        if tensor.requires_grad and not tensor.is_leaf:
            return own_tensor(tensor)  # torch's own error
        _say_copies()
        values = io.BytesIO()
        torch.save(tensor.detach().cpu(), values)  # not by shared memory: nobody here would keep it until it is read
        return rebuild, (type(tensor), values.getvalue(), str(tensor.device), tensor.requires_grad)

    theirs.reduce_tensor = reduce_tensor
    for kind in (*torch._tensor_classes, torch.Tensor, torch.nn.parameter.Parameter):
        reduction.register(kind, reduce_tensor)


def _say_copies() -> None:
    global _shared_said
    if not _shared_said:
        _shared_said = True
        warnings.warn(
            "a tensor on a leased GPU goes to another process as a copy: the two do not see each other's later writes",
            stacklevel=3,
        )
