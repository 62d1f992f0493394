"""Collectives by this machine: tensors come here, gloo carries them between the ranks' processes, and they go back.

For leases whose servers do not know each other, and for tensors that are here anyway.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

from elastic_ai_torch.collective import Collective

ENDED = 'process group "nccl": a rank has ended or cannot be reached; all have to start again'
#: Those that read what they write.
_IN_PLACE = ("allreduce", "broadcast", "reduce")
#: What a process that ends waits for its groups at most. One that a rank still keeps waiting ends no sooner.
END_S = 2.0


class CollectivesHere:
    """Torch's own gloo between the processes of the ranks."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        """All ranks meet at the store that torch made for them."""
        import torch.distributed.distributed_c10d as c10d

        self._gloo = c10d.ProcessGroupGloo(c10d.PrefixStore("here", store), rank, size, timeout=timeout)
        if not _open:
            atexit.unregister(_end_all)
            atexit.register(_end_all)  # after the client's own, so that it comes before it
        _open.add(self)

    def start(self, one: Collective) -> Any:
        """Begins it: the future of its outputs, which are in their places when it is done."""
        outputs = [_host(tensor, one.name in _IN_PLACE) for tensor in one.outputs]
        here = Collective(
            one.name, outputs, [_host(t, True) for t in one.inputs], one.operation, one.root, one.tag, one.sizes
        )
        work = here.plain().on(self._gloo)

        def put_back() -> Any:
            with torch.no_grad():
                for tensor, host in zip(one.outputs, outputs, strict=True):
                    if tensor is not host:
                        tensor.detach().copy_(host)
            return one.outputs

        return _finished(work, put_back)

    def close(self) -> None:
        """As the ranks' processes end. Waits for what is begun."""
        self._gloo = None
        _open.discard(self)


#: Of this process.
_open: weakref.WeakSet[CollectivesHere] = weakref.WeakSet()
os.register_at_fork(after_in_child=_open.clear)  # where their threads are not


def _end_all() -> None:
    """gloo's threads have to be gone before Python ends: one that then lets go of a tensor aborts the program."""
    until = time.monotonic() + END_S
    closing = [threading.Thread(target=one.close, daemon=True) for one in list(_open)]
    for one in closing:
        one.start()
    for one in closing:
        one.join(max(0.0, until - time.monotonic()))


def _host(tensor: Any, read: bool) -> Any:
    if not tensor.is_cuda:
        return tensor
    return tensor.detach().cpu() if read else torch.empty(tensor.shape, dtype=tensor.dtype)


def _finished(work: Any, put_back: Callable[[], Any]) -> Any:
    """A future that is done when the work is, and what follows it."""
    future = torch.futures.Future()

    def end(done: Callable[[], Any]) -> None:
        try:
            done()
            future.set_result(put_back())
        except Exception as fault:
            future.set_exception(RuntimeError(f"{ENDED} ({str(fault).splitlines()[0]})"))

    try:
        theirs = work.get_future()
    except RuntimeError:  # gloo's messages and reduce_scatter have none
        threading.Thread(target=end, args=(work.wait,), daemon=True).start()
    else:
        theirs.add_done_callback(lambda done: end(done.value))
    return future
