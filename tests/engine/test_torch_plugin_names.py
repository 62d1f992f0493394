"""Each name of torch.cuda that programs and libraries call, on a leased GPU: what it must answer, name by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.torch_engine import Server, run, server

PROGRAM = """
import ctypes, io, json, pickle, sys, warnings
import torch
warnings.simplefilter("ignore")
x = torch.arange(12., device="cuda").view(3, 4)
stream = torch.cuda.Stream()
def timed():
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record(); (x @ x.T).sum(); b.record(); b.synchronize()
    return a.elapsed_time(b) > 0 and b.query() and a.query()
def within(context, inside):
    with context:
        return inside()
def saved(**how):
    file = io.BytesIO(); torch.save(x, file, **how); file.seek(0)
    return torch.equal(torch.load(file), x)
def grew():
    before = torch.cuda.memory_allocated(); held = torch.zeros(1 << 18, device="cuda")
    return torch.cuda.memory_allocated() - before
answers = []
for expression in json.loads(sys.argv[1]):
    try:
        answers.append(["gives", repr(eval(expression))])
    except BaseException as fault:
        answers.append([type(fault).__name__, str(fault)])
print(json.dumps(answers))
"""


@dataclass(frozen=True)
class Gives:
    """The expression's repr."""

    text: str


@dataclass(frozen=True)
class Raises:
    """The class of the error, and what its text has."""

    kind: str
    text: str


NOT = "not on a leased GPU: "
SPARSE = Raises("NotImplementedError", NOT + "sparse tensors")
TABLE: list[tuple[str, Gives | Raises]] = [
    ("torch.cuda.is_available()", Gives("True")),
    ("torch.cuda.device_count()", Gives("2")),
    ("torch.backends.cuda.is_built()", Gives("True")),
    ("torch.cuda.is_initialized()", Gives("True")),
    ("torch.cuda._is_in_bad_fork()", Gives("False")),
    ("torch.cuda.current_device()", Gives("0")),
    ("(torch.cuda.set_device(1), torch.cuda.current_device(), torch.zeros(1, device='cuda').device.index, "
     "torch.cuda.set_device(0))", Gives("(None, 1, 1, None)")),
    ("within(torch.cuda.device(1), torch.cuda.current_device)", Gives("1")),
    ("torch.cuda.current_device()", Gives("0")),
    ("torch.cuda.set_device(2)", Raises("AcceleratorError", "invalid device ordinal")),
    ("torch.zeros(1, device='cuda:7')", Raises("AcceleratorError", "invalid device ordinal")),
    # pinned memory and copies
    ("torch.ones(3).pin_memory().is_pinned()", Gives("True")),
    ("torch.ones(3).is_pinned()", Gives("False")),
    ("torch.empty(3, pin_memory=True).is_pinned()", Gives("True")),
    ("torch.ones(3).pin_memory().to('cuda', non_blocking=True).sum().item()", Gives("3.0")),
    # addresses
    ("x.data_ptr() == x.data_ptr() != 0", Gives("True")),
    ("x[1:].data_ptr() - x.data_ptr()", Gives("16")),
    ("x.data_ptr() != torch.zeros(3, device='cuda').data_ptr()", Gives("True")),
    ("torch.utils.dlpack.to_dlpack(x)", Raises("BufferError", NOT + "DLPack")),
    ("torch.to_dlpack(x)", Raises("BufferError", NOT + "DLPack")),
    ("x.__dlpack__()", Raises("BufferError", NOT + "DLPack")),
    ("torch.from_dlpack(x)", Raises("BufferError", NOT + "DLPack")),
    ("torch.from_dlpack(x.cpu()).sum().item()", Gives("66.0")),
    ("x.__cuda_array_interface__", Raises("RuntimeError", NOT + "__cuda_array_interface__")),
    ("x.cpu().__cuda_array_interface__", Raises("AttributeError", "")),
    ("x.numpy()", Raises("TypeError", "can't convert cuda:0 device type tensor to numpy")),
    # memory, counted here
    ("grew()", Gives(str(1 << 20))),
    ("torch.cuda.memory_allocated() > 0", Gives("True")),
    ("torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()", Gives("True")),
    ("torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()", Gives("True")),
    ("torch.cuda.max_memory_reserved() >= torch.cuda.memory_reserved()", Gives("True")),
    ("(torch.cuda.reset_peak_memory_stats(), torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated())",
     Gives("(None, 0)")),
    ("torch.cuda.reset_max_memory_allocated()", Gives("None")),
    ("torch.cuda.reset_accumulated_memory_stats()", Gives("None")),
    ("torch.cuda.memory_stats()['num_ooms']", Gives("0")),
    ("torch.cuda.memory_stats(1)['allocated_bytes.all.current'] >= 0", Gives("True")),
    ("'CUDA OOMs: 0' in torch.cuda.memory_summary()", Gives("True")),
    ("torch.cuda.mem_get_info()[1] == torch.cuda.get_device_properties(0).total_memory", Gives("True")),
    ("torch.cuda.mem_get_info()[0] == torch.cuda.mem_get_info()[1] - torch.cuda.memory_reserved()", Gives("True")),
    ("torch.cuda.empty_cache()", Gives("None")),
    ("torch.cuda.ipc_collect()", Gives("None")),
    ("torch.cuda.get_allocator_backend()", Gives("'native'")),
    ("(torch.cuda.set_per_process_memory_fraction(0.5), torch.cuda.get_per_process_memory_fraction())",
     Gives("(None, 0.5)")),
    # properties, the server's
    ("torch.cuda.get_device_properties(0).name", Gives("'Emulated GPU (processors)'")),
    ("torch.cuda.get_device_name(1)", Gives("'Emulated GPU (processors)'")),
    ("torch.cuda.get_device_capability()", Gives("(8, 0)")),
    ("torch.cuda.get_device_properties(0).no_such_thing", Raises("AttributeError", "the server did not tell")),
    ("len(torch.cuda.get_device_properties(0).uuid.bytes)", Gives("16")),
    ("str(torch.cuda.get_device_properties(0)).startswith('_CudaDeviceProperties(name=')", Gives("True")),
    ("torch.cuda.get_device_properties(5)", Raises("AssertionError", "Invalid device id")),
    ("torch.cuda.is_bf16_supported()", Gives("True")),
    ("torch.cuda.get_arch_list()", Gives("[]")),
    ("torch.cuda.get_gencode_flags()", Gives("''")),
    ("torch.cuda.can_device_access_peer(0, 1)", Gives("True")),
    ("torch.version.cuda is not None and float(torch.version.cuda) >= 12", Gives("True")),
    ("torch.backends.cudnn.version() >= 90000", Gives("True")),
    ("torch.backends.cudnn.is_available()", Gives("True")),
    ("torch.backends.cudnn.is_acceptable(x)", Gives("True")),
    ("within(torch.backends.cudnn.flags(enabled=True, benchmark=True), lambda: torch.backends.cudnn.benchmark)",
     Gives("True")),
    ("torch.cuda.nccl.version()", Gives("(0, 0, 0)")),
    ("torch.backends.cuda.cufft_plan_cache.size", Gives("0")),
    ("torch.backends.cuda.cufft_plan_cache[1].clear()", Gives("None")),
    # waiting, streams, events
    ("torch.cuda.synchronize()", Gives("None")),
    ("torch.cuda.synchronize(1)", Gives("None")),
    ("timed()", Gives("True")),
    ("within(torch.cuda.stream(stream), lambda: torch.cuda.current_stream() == stream)", Gives("True")),
    ("within(stream, lambda: torch.cuda.current_stream() == stream)", Gives("True")),
    ("torch.cuda.current_stream() == torch.cuda.default_stream() != stream", Gives("True")),
    ("stream.device.index", Gives("0")),
    ("(stream.wait_stream(torch.cuda.current_stream()), stream.synchronize(), stream.query())",
     Gives("(None, None, True)")),
    ("x.record_stream(stream)", Gives("None")),
    ("isinstance(stream, torch.Stream) and isinstance(torch.cuda.Event(), torch.Event)", Gives("True")),
    ("stream.cuda_stream", Raises("RuntimeError", NOT + "cuda_stream")),
    ("torch.cuda.Event().cuda_event", Raises("RuntimeError", NOT + "cuda_event")),
    ("torch.cuda.Event(interprocess=True)", Raises("RuntimeError", NOT)),
    ("torch.cuda.ExternalStream(7)", Raises("RuntimeError", NOT)),
    ("torch.cuda.Event().elapsed_time(torch.cuda.Event())", Raises("ValueError", "enable_timing")),
    # random numbers
    ("[(torch.cuda.manual_seed_all(5), torch.rand(1, device='cuda').item())[1] for _ in range(2)]"
     ".__eq__([(torch.manual_seed(5), torch.rand(1, device='cuda').item())[1]] * 2)", Gives("True")),
    ("(lambda s: torch.rand(1, device='cuda').item() == (torch.cuda.set_rng_state(s), "
     "torch.rand(1, device='cuda').item())[1])(torch.cuda.get_rng_state())", Gives("True")),
    ("len(torch.cuda.get_rng_state_all())", Gives("2")),
    ("(lambda inside: inside == torch.rand(1, device='cuda').item())"
     "(within(torch.random.fork_rng([0]), lambda: torch.rand(1, device='cuda').item()))", Gives("True")),
    ("(torch.cuda.manual_seed(7), torch.cuda.initial_seed())", Gives("(None, 7)")),
    ("len(torch.cuda.default_generators)", Gives("2")),
    ("(torch.cuda.default_generators[0].manual_seed(3).initial_seed(), torch.cuda.initial_seed())", Gives("(3, 3)")),
    # accelerators
    ("str(torch.accelerator.current_accelerator())", Gives("'cuda'")),
    ("torch.accelerator.device_count()", Gives("2")),
    ("torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()", Gives("True")),
    ("torch.accelerator.empty_cache()", Gives("None")),
    ("torch.accelerator.synchronize()", Gives("None")),
    ("torch.get_device_module('cuda') is torch.cuda", Gives("True")),
    # autocast
    ("torch.is_autocast_enabled('cuda')", Gives("False")),
    ("str(torch.get_autocast_dtype('cuda'))", Gives("'torch.float16'")),
    ("str(within(torch.autocast('cuda', torch.bfloat16), lambda: (x @ x.T).dtype))", Gives("'torch.bfloat16'")),
    ("torch.amp.GradScaler('cuda').is_enabled()", Gives("True")),
    # graphs, pools, other allocators
    ("torch.cuda.CUDAGraph()", Raises("RuntimeError", NOT + "torch.cuda.CUDAGraph")),
    ("torch.cuda.graph_pool_handle()", Raises("RuntimeError", NOT + "torch.cuda.graph_pool_handle")),
    ("torch.cuda.make_graphed_callables(torch.nn.Linear(4, 2).cuda(), (x,))", Raises("RuntimeError", NOT)),
    ("torch.cuda.is_current_stream_capturing()", Gives("False")),
    ("torch.cuda.MemPool()", Raises("RuntimeError", NOT + "torch.cuda.MemPool")),
    ("torch.cuda.memory.CUDAPluggableAllocator('a', 'b', 'c')", Raises("RuntimeError", NOT)),
    ("torch.cuda.memory_snapshot()", Raises("RuntimeError", NOT)),
    ("torch.cuda.memory._record_memory_history()", Raises("RuntimeError", NOT)),
    ("torch.cuda.caching_allocator_alloc(16)", Raises("RuntimeError", NOT)),
    ("torch.cuda.current_blas_handle()", Raises("RuntimeError", NOT)),
    ("torch.cuda.cudart().cudaHostRegister(1, 2, 3)", Raises("RuntimeError", NOT + "torch.cuda.cudart()")),
    ("torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())", Gives("None")),
    ("torch.cuda.cudart().cudaMemGetInfo(0) == torch.cuda.mem_get_info(0)", Gives("True")),
    ("torch._C._cuda_clearCublasWorkspaces()", Gives("None")),
    ("torch._C._cuda_of_a_later_release(1)", Raises("RuntimeError", NOT + "torch._C._cuda_of_a_later_release")),
    ("torch._C._cuda_of_a_later_release is torch._C._cuda_of_a_later_release", Gives("True")),
    ("torch._C._no_such_name", Raises("AttributeError", "_no_such_name")),
    ("torch.cuda.tunable.is_enabled()", Gives("False")),
    ("(torch.cuda.set_sync_debug_mode('warn'), torch.cuda.get_sync_debug_mode(), torch.cuda.set_sync_debug_mode(0))",
     Gives("(None, 1, None)")),
    # profiling
    ("(torch.cuda.nvtx.range_push('a'), torch.cuda.nvtx.range_push('b'), torch.cuda.nvtx.range_pop(), "
     "torch.cuda.nvtx.range_pop(), torch.cuda.nvtx.mark('c'))", Gives("(0, 1, 1, 0, None)")),
    ("within(torch.cuda.nvtx.range('a'), lambda: 1)", Gives("1")),
    ("within(torch.autograd.profiler.emit_nvtx(), lambda: x.sum().item())", Gives("66.0")),
    ("within(torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA, "
     "torch.profiler.ProfilerActivity.CPU]), lambda: x.sum().item())", Gives("66.0")),
    # other kinds of tensors
    ("x.to_sparse()", SPARSE),
    ("torch.sparse_coo_tensor([[0], [1]], [1.], device='cuda')", SPARSE),
    ("torch.sparse_coo_tensor([[0], [1]], [1.]).cuda()", SPARSE),
    ("torch.eye(3, device='cuda').to_sparse_csr()", SPARSE),
    ("torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)", Raises("NotImplementedError", NOT + "quantised tensors")),
    ("torch.quantize_per_tensor(x.cpu(), 0.1, 0, torch.qint8).cuda()",
     Raises("NotImplementedError", NOT + "quantised tensors")),
    ("torch.nested.nested_tensor([x[0], x[1]])", Raises("NotImplementedError", NOT + "nested tensors")),
    # storages, files
    ("x.untyped_storage()[5]", Gives("0")),
    ("x.untyped_storage().nbytes()", Gives("48")),
    ("x.untyped_storage().tolist()[7]", Gives("63")),
    ("torch.UntypedStorage(5, device='cuda').fill_(3).tolist()", Gives("[3, 3, 3, 3, 3]")),
    ("torch.UntypedStorage([1, 2], device='cuda').tolist()", Gives("[1, 2]")),
    ("(lambda t: (t.untyped_storage().resize_(0).nbytes(), t.untyped_storage().resize_(16).nbytes()))"
     "(torch.zeros(4, device='cuda'))", Gives("(0, 16)")),
    ("str(x.untyped_storage().clone().device)", Gives("'cuda:0'")),
    ("x.untyped_storage()._share_cuda_()", Raises("RuntimeError", NOT + "CUDA IPC")),
    ("x.is_shared()", Gives("True")),
    ("saved()", Gives("True")),
    ("saved(_use_new_zipfile_serialization=False)", Gives("True")),
    ("torch.equal(pickle.loads(pickle.dumps(x)), x)", Gives("True")),
    # types of old
    ("x.type()", Gives("'torch.cuda.FloatTensor'")),
    ("isinstance(x, torch.cuda.FloatTensor), isinstance(x, torch.cuda.HalfTensor), "
     "isinstance(x.cpu(), torch.cuda.FloatTensor)", Gives("(True, False, False)")),
    ("torch.cuda.FloatTensor", Gives("<class 'torch.cuda.FloatTensor'>")),
    ("torch.cuda.FloatTensor([1, 2]).tolist()", Gives("[1.0, 2.0]")),
    ("tuple(torch.cuda.LongTensor(2, 3).shape)", Gives("(2, 3)")),
    ("x.type(torch.cuda.HalfTensor).type()", Gives("'torch.cuda.HalfTensor'")),
    ("x.cpu().type('torch.cuda.LongTensor').tolist()[0]", Gives("[0, 1, 2, 3]")),
    ("(torch.set_default_tensor_type('torch.cuda.FloatTensor'), torch.zeros(1).is_cuda, "
     "torch.set_default_tensor_type(torch.FloatTensor), torch.zeros(1).is_cuda)", Gives("(None, True, None, False)")),
    # torch.compile, TorchScript
    ("list(torch.compile(torch.nn.Linear(4, 2).cuda()).state_dict())", Gives("['_orig_mod.weight', '_orig_mod.bias']")),
    ("torch.compile(lambda a: a.sum() + 1)(x).item()", Gives("67.0")),
    ("torch.compile(mode='max-autotune')(lambda a: a.sum() + 1)(x).item()", Gives("67.0")),
    ("torch.compile(lambda a: a.sum() + 1, backend='aot_eager')(x).item()", Gives("67.0")),
    ("torch.nn.DataParallel(torch.nn.Linear(4, 2).cuda())(x).shape", Gives("torch.Size([3, 2])")),
    # printing copies once
    ("str(x[:1])", Gives("\"tensor([[0., 1., 2., 3.]], device='cuda:0')\"")),
    ("f'{x.sum():.1f}'", Gives("'66.0'")),
]  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[list[str]]]:
    """All expressions of the table in one program."""
    folder: Path = tmp_path_factory.mktemp("plugin-names")
    with server(folder, "--devices", "2") as one:
        yield asked(one)


def asked(one: Server) -> list[list[str]]:
    """Of a program with both devices of the server: an address that comes twice is its next device."""
    twice = one.environment()["ELASTIC_AI_TORCH_SERVERS"]
    tokens = one.folder / "two"
    tokens.write_text((one.folder / "token").read_text() * 2)
    more = {"ELASTIC_AI_TORCH_SERVERS": f"{twice},{twice}", "ELASTIC_AI_TOKEN_FILE": str(tokens)}
    expressions = json.dumps([expression for expression, _ in TABLE])
    done = run(PROGRAM, "remote", one, expressions, **more)
    listed: list[list[str]] = done.result()
    return listed


@pytest.mark.parametrize("row", range(len(TABLE)), ids=[expression[:60] for expression, _ in TABLE])
def test_each_name_answers_as_the_table_says(answers: list[list[str]], row: int) -> None:
    expression, expected = TABLE[row]
    kind, text = answers[row]
    if isinstance(expected, Gives):
        assert (kind, text) == ("gives", expected.text), expression
    else:
        assert kind == expected.kind, f"{expression}: {text}"
        assert expected.text in text, expression
