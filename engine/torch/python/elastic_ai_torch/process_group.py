"""The process group "nccl" on leased GPUs: what torch asks of it, as collectives for whoever carries them."""

from __future__ import annotations

import datetime
from contextlib import suppress
from typing import Any

import torch

from elastic_ai_torch.client import Client
from elastic_ai_torch.collective import Carrier, Collective
from elastic_ai_torch.collectives_alone import CollectivesAlone
from elastic_ai_torch.collectives_here import CollectivesHere
from elastic_ai_torch.collectives_there import CollectivesThere, meet
from elastic_ai_torch.process_group_options import Options

TIMEOUT = datetime.timedelta(minutes=10)


def install(client: Client) -> None:
    """When torch.distributed is loaded: now, or never needed (a build without it)."""
    if not torch.distributed.is_available():
        return
    import torch.distributed.distributed_c10d as c10d

    class WorkNCCL(c10d.Work):
        """A collective on its way. Torch's own work of a future does not raise its error."""

        def __init__(self, future: Any) -> None:
            super().__init__()
            self._future = future

        def wait(self, timeout: Any = None) -> bool:
            self._future.wait()
            return True

        def synchronize(self) -> None:
            self._future.wait()

        def get_future(self) -> Any:
            return self._future

        def is_completed(self) -> bool:
            if not self._future.done():
                return False
            with suppress(RuntimeError):  # exception() tells it
                self._future.wait()  # so that what the program asks from now on comes after it
            return True

        def is_success(self) -> bool:
            return self.is_completed() and self.exception() is None

        def exception(self) -> Any:
            try:
                self._future.value()
            except RuntimeError as fault:
                return fault
            return None

        def result(self) -> Any:
            return self._future.value()

    work_of = WorkNCCL

    class ProcessGroupNCCL(c10d.ProcessGroup):
        """Of the processes that torch's launcher started, each with a GPU of the lease."""

        def __init__(self, store: Any, rank: int, size: int, options: Any = None) -> None:
            super().__init__(rank, size)
            self._rank, self._size, self._store = rank, size, store
            self._name = self._description = ""
            self.options = options or Options()
            self._timeout = self.options._timeout or TIMEOUT
            # Now, with all ranks: a first message between two of them must not wait for the others.
            self._here: Carrier = CollectivesAlone() if size == 1 else CollectivesHere(store, rank, size, self._timeout)
            self._there: Carrier | None = None
            self._met = size == 1
            self._together: list[Any] | None = None

        def setGroupName(self, name: str) -> None:
            self._name = name

        def getGroupName(self) -> str:
            return self._name

        def setGroupDesc(self, text: str) -> None:
            self._description = text

        def getGroupDesc(self) -> str:
            return self._description

        def getBackendName(self) -> str:
            return "nccl"

        def _get_backend_name(self) -> str:
            return "nccl"

        def getRank(self) -> int:
            return self._rank

        def getSize(self) -> int:
            return self._size

        rank, size = getRank, getSize

        def _set_sequence_number_for_group(self) -> None:
            return None

        def _set_default_timeout(self, timeout: datetime.timedelta) -> None:
            self._timeout = timeout

        def _carrier(self, one: Collective) -> Carrier:
            """The servers, where they know each other. All ranks ask at the same collective; a message between two of
            them may come before it, and goes by this machine."""
            if any(not tensor.is_cuda for tensor in (*one.outputs, *one.inputs)):
                return self._here
            if not self._met and one.name not in ("send", "recv"):
                self._met = True
                self._there = meet(client, self._store, self._rank, self._size, self._timeout, one)
            return self._there or self._here

        def _run(self, one: Collective) -> Any:
            for tensor in (*one.outputs, *one.inputs):
                if tensor.layout != torch.strided:
                    raise RuntimeError(f'process group "nccl": a tensor of layout {tensor.layout} is not carried')
                if not tensor.is_contiguous():
                    raise ValueError("Tensors must be contiguous")
            future = self._carrier(one).start(one)
            if self._together is not None:
                self._together.append(future)
            return work_of(future)

        def allreduce(self, tensors: Any, opts: Any = None) -> Any:
            return self._run(Collective("allreduce", list(tensors), operation=_operation(opts)))

        allreduce_coalesced = allreduce

        def broadcast(self, tensors: Any, opts: Any = None) -> Any:
            return self._run(Collective("broadcast", list(tensors), root=opts.rootRank if opts else 0))

        def reduce(self, tensors: Any, opts: Any = None) -> Any:
            root = opts.rootRank if opts else 0
            return self._run(Collective("reduce", list(tensors), operation=_operation(opts), root=root))

        def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            works = [
                self._run(Collective("allgather", list(into), [tensor]))
                for into, tensor in zip(outputs, inputs, strict=True)
            ]
            return _all_of(works, outputs)

        def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            works = [
                self._run(Collective("allgather", [row[i] for row in outputs], [tensor]))
                for i, tensor in enumerate(inputs)
            ]
            return _all_of(works, outputs)

        def _allgather_base(self, output: Any, tensor: Any, opts: Any = None) -> Any:
            return self._run(Collective("_allgather_base", [output], [tensor]))

        def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            return _all_of([self._allgather_base(o, i) for o, i in zip(outputs, inputs, strict=True)], outputs)

        def _reduce_scatter_base(self, output: Any, tensor: Any, opts: Any = None) -> Any:
            return self._run(Collective("_reduce_scatter_base", [output], [tensor], _operation(opts)))

        def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            works = [self._reduce_scatter_base(o, i, opts) for o, i in zip(outputs, inputs, strict=True)]
            return _all_of(works, outputs)

        def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            works = [
                self._run(Collective("reduce_scatter", [output], list(parts), _operation(opts)))
                for output, parts in zip(outputs, inputs, strict=True)
            ]
            return _all_of(works, outputs)

        def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            parts = list(inputs[0]) if inputs else []
            return self._run(Collective("scatter", list(outputs), parts, root=opts.rootRank if opts else 0))

        def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            into = list(outputs[0]) if outputs else []
            return self._run(Collective("gather", into, list(inputs), root=opts.rootRank if opts else 0))

        def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            return self._run(Collective("alltoall", list(outputs), list(inputs)))

        def alltoall_base(
            self, output: Any, tensor: Any, output_sizes: Any = None, input_sizes: Any = None, opts: Any = None
        ) -> Any:
            sizes = list(output_sizes or []), list(input_sizes or [])
            return self._run(Collective("alltoall_base", [output], [tensor], sizes=sizes))

        # newer releases call the same by other names
        all_gather_single, reduce_scatter_single, all_to_all_single = (
            _allgather_base, _reduce_scatter_base, alltoall_base,
        )  # fmt: skip
        all_gather_single_coalesced = allgather_into_tensor_coalesced
        reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

        def send(self, tensors: Any, rank: int, tag: int = 0) -> Any:
            return self._run(Collective("send", inputs=list(tensors), root=rank, tag=tag))

        def recv(self, tensors: Any, rank: int, tag: int = 0) -> Any:
            return self._run(Collective("recv", list(tensors), root=rank, tag=tag))

        def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
            raise RuntimeError("ProcessGroupNCCL does not support recvAnysource")

        def _start_coalescing(self, *_: Any) -> None:
            self._together = []

        def _end_coalescing(self, *_: Any) -> Any:
            works, self._together = [work_of(future) for future in self._together or []], None
            return _all_of(works, [])

        def abort(self) -> None:
            if self._there is not None:
                self._there.close()
            self._here.close()

        shutdown = abort

        def barrier(self, opts: Any = None) -> Any:
            torch.cuda.synchronize()
            work = self._run(Collective("barrier"))
            if isinstance(self._there, CollectivesThere):
                work.wait()
                torch.cuda.synchronize()
            return work

    def _all_of(works: list[Any], result: Any) -> Any:
        """One work that is done when all are."""
        if len(works) == 1:
            return works[0]
        if not works:
            future = torch.futures.Future()
            future.set_result(result)
            return work_of(future)
        return work_of(torch.futures.collect_all([work.get_future() for work in works]).then(_checked))

    def _checked(done: Any) -> Any:
        return [future.wait() for future in done.value()]

    def _operation(opts: Any) -> str:
        """Its name; torch's own options hold it by an object that no dictionary finds."""
        if opts is None:
            return "SUM"
        kind = getattr(opts.reduceOp, "op", opts.reduceOp)
        return str(kind).rpartition(".")[2]

    ProcessGroupNCCL.Options = Options
    c10d.ProcessGroupNCCL = ProcessGroupNCCL
    c10d._NCCL_AVAILABLE = True
    c10d.default_pg_nccl_timeout = TIMEOUT
    torch.distributed.ProcessGroupNCCL = torch._C._distributed_c10d.ProcessGroupNCCL = ProcessGroupNCCL
