"""The process group "nccl" for one process: each collective is what it is for a world of one."""

from __future__ import annotations

import datetime
from typing import Any

import torch


def install() -> None:
    """When torch.distributed is loaded: now, or never needed (a build without it)."""
    if not torch.distributed.is_available():
        return
    import torch.distributed.distributed_c10d as c10d

    def done(result: Any) -> Any:
        future = torch.futures.Future()
        future.set_result(result)
        return torch._C._distributed_c10d._create_work_from_future(future)

    class Options:
        """What init_process_group sets."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            self.is_high_priority_stream = is_high_priority_stream
            self._timeout: Any = None
            self.global_ranks_in_group: list[int] = []
            self.group_name = ""
            self.config: Any = None

    class ProcessGroupNCCL(c10d.ProcessGroup):
        """A world of one process."""

        def __init__(self, store: Any, rank: int, size: int, options: Any = None) -> None:
            if size != 1:
                raise RuntimeError(
                    f'process group "nccl" of {size} processes: not yet on leased GPUs; '
                    "use one process, or run the program beside the GPUs (toolkit run --where server)"
                )
            super().__init__(rank, size)
            self._name = self._description = ""

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

        def _set_sequence_number_for_group(self) -> None:
            return None

        def size(self) -> int:
            return 1

        def allreduce(self, tensors: Any, opts: Any = None) -> Any:
            return done(tensors)

        allreduce_coalesced = broadcast = reduce = allreduce

        def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            for into, tensor in zip(outputs, inputs, strict=True):
                into[0].copy_(tensor)
            return done(outputs)

        def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            for into, tensor in zip(outputs[0], inputs, strict=True):
                into.copy_(tensor)
            return done(outputs)

        def _allgather_base(self, output: Any, tensor: Any, opts: Any = None) -> Any:
            output.view(-1).copy_(tensor.reshape(-1))
            return done([output])

        def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            for output, tensor in zip(outputs, inputs, strict=True):
                output.view(-1).copy_(tensor.reshape(-1))
            return done(outputs)

        # newer releases call the same by other names
        all_gather_single = _reduce_scatter_base = reduce_scatter_single = _allgather_base
        all_gather_single_coalesced = reduce_scatter_single_coalesced = allgather_into_tensor_coalesced
        reduce_scatter_tensor_coalesced = allgather_into_tensor_coalesced

        def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            for output, parts in zip(outputs, inputs, strict=True):
                output.copy_(parts[0])
            return done(outputs)

        scatter = reduce_scatter

        def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            for into, tensor in zip(outputs, inputs, strict=True):
                into[0].copy_(tensor)
            return done(outputs)

        def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            for output, tensor in zip(outputs, inputs, strict=True):
                output.copy_(tensor)
            return done(outputs)

        def alltoall_base(
            self, output: Any, tensor: Any, output_sizes: Any = None, input_sizes: Any = None, opts: Any = None
        ) -> Any:
            output.copy_(tensor)
            return done([output])

        all_to_all_single = alltoall_base

        def _start_coalescing(self, *_: Any) -> None:
            return None

        def _end_coalescing(self, *_: Any) -> Any:
            return done([])

        def abort(self) -> None:
            return None

        shutdown = abort

        def barrier(self, opts: Any = None) -> Any:
            torch.cuda.synchronize()
            return done([])

    ProcessGroupNCCL.Options = Options
    c10d.ProcessGroupNCCL = ProcessGroupNCCL
    c10d._NCCL_AVAILABLE = True
    c10d.default_pg_nccl_timeout = datetime.timedelta(minutes=10)
    torch.distributed.ProcessGroupNCCL = torch._C._distributed_c10d.ProcessGroupNCCL = ProcessGroupNCCL
