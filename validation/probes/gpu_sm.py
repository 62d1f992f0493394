"""Copies by the processors of a GPU (SMs) instead of its copy engines: inside it, and to and from another's memory.

A GPU reads from another's memory or writes to it by peer access, as collectives do. What arrives is verified.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from validation.probes import gpu_kernel
from validation.probes.cuda import CudaError, Device
from validation.probes.gpu_host import Buffers, pattern
from validation.probes.gpu_together import TOGETHER_BYTES, Bench, peers

PIECE_BYTES, THREADS, BLOCKS_FOR_EACH_SM = 16, 512, 4  # with 2048 threads an SM of all architectures is full
SMS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
What = Literal["sm_local", "sm_read", "sm_write"]
PTX = """\
// copy.cu, sha256 25b861ad0b641e39d26f147f45df70ab2d8739af5423d6c059914ed6c40b8c85
// nvcc 13.0.88 -ptx -arch=compute_75 -fmad=false -O3; compiled by ptxas for sm_60 sm_61 sm_70 sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120; see tools/make_ptx.py

.version 6.0
.target sm_60
.address_size 64

	// .globl	copy

.visible .entry copy(
	.param .u64 copy_param_0,
	.param .u64 copy_param_1,
	.param .u64 copy_param_2
)
{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<13>;
	.reg .b64 	%rd<18>;


	ld.param.u64 	%rd8, [copy_param_0];
	ld.param.u64 	%rd9, [copy_param_1];
	ld.param.u64 	%rd10, [copy_param_2];
	mov.u32 	%r1, %ntid.x;
	cvt.u64.u32 	%rd1, %r1;
	mov.u32 	%r2, %ctaid.x;
	mul.wide.u32 	%rd11, %r2, %r1;
	mov.u32 	%r3, %tid.x;
	cvt.u64.u32 	%rd12, %r3;
	add.s64 	%rd17, %rd11, %rd12;
	setp.ge.u64 	%p1, %rd17, %rd10;
	@%p1 bra 	$L__BB0_3;

	mov.u32 	%r4, %nctaid.x;
	cvt.u64.u32 	%rd13, %r4;
	mul.lo.s64 	%rd3, %rd13, %rd1;
	cvta.to.global.u64 	%rd4, %rd8;
	cvta.to.global.u64 	%rd5, %rd9;

$L__BB0_2:
	shl.b64 	%rd14, %rd17, 4;
	add.s64 	%rd15, %rd4, %rd14;
	add.s64 	%rd16, %rd5, %rd14;
	ld.global.v4.u32 	{%r5, %r6, %r7, %r8}, [%rd15];
	st.global.v4.u32 	[%rd16], {%r5, %r6, %r7, %r8};
	add.s64 	%rd17, %rd17, %rd3;
	setp.lt.u64 	%p2, %rd17, %rd10;
	@%p2 bra 	$L__BB0_2;

$L__BB0_3:
	ret;

}
"""  # noqa: E501 - byte by byte
"""As engine/kernels/copy.ptx, by whose bytes an emulated GPU finds its own code."""


def plan(devices: int, access: Mapping[tuple[int, int], bool]) -> Iterator[tuple[What, int, int]]:
    """What is copied, from where to where: inside each GPU, and both ways to copy of each pair with peer access."""
    for gpu in range(devices):
        yield "sm_local", gpu, gpu
    for pair, given in sorted(access.items()):
        if given:
            yield "sm_read", *pair
            yield "sm_write", *pair


def copied_bytes(largest: int) -> int:
    """Of each copy."""
    return min(largest, TOGETHER_BYTES) // PIECE_BYTES * PIECE_BYTES


def copies_by_sms(bench: Bench, access: Mapping[tuple[int, int], bool]) -> str:
    """Cells of all of them; why there are none, where the first GPU that works does not take the code.

    access: whether the driver gives peer access from one GPU to another.
    """
    first = next((device for device in bench.devices if not device.broken), None)
    if first is None:
        return "no GPU works"
    try:
        kernels = {first.ordinal: gpu_kernel.loaded(first, PTX, b"copy")}
    except CudaError as fault:
        return str(fault)
    size = copied_bytes(bench.largest)
    buffers = Buffers(bench.cuda, bench.largest, pin=False)  # to verify with; nothing is timed with it
    try:
        for what, source, target in plan(len(bench.devices), access):
            counted = 2 * size if what == "sm_local" else size
            of = {
                "what": what, "source": source, "target": target, "access": source != target, "memory": "",
                "bytes": size, "counted": counted,
            }  # fmt: skip
            bench.cell(of, lambda of=of: _measured(bench, of, buffers, kernels))  # type: ignore[misc]
    finally:
        buffers.close()
    return ""


def _measured(
    bench: Bench, of: Mapping[str, Any], buffers: Buffers, kernels: dict[int, ctypes.c_void_p]
) -> dict[str, Any]:
    source, target = bench.devices[of["source"]], bench.devices[of["target"]]
    for device in (source, target):
        device.use()
    at = source if of["what"] == "sm_write" else target
    if at.ordinal not in kernels:
        kernels[at.ordinal] = gpu_kernel.loaded(at, PTX, b"copy")
    from_, to = bench.blocks[of["source"]][0], bench.blocks[of["target"]][1]
    buffers.fill(pattern(of["source"]))
    with peers(bench, [(of["source"], of["target"])] if source is not target else []):
        bench.clear(target, to, of["bytes"])
        took = bench.timed(at, _launch(at, kernels[at.ordinal], from_, to, of["bytes"]), bench.repeat, of["bytes"])
        return {**took, "verified": bench.same(target, to, buffers, of["bytes"])}


def _launch(
    at: Device, kernel: ctypes.c_void_p, from_: ctypes.c_uint64, to: ctypes.c_uint64, size: int
) -> Callable[[], None]:
    """What starts the copy on a GPU's stream."""
    sms, one, none = ctypes.c_int(), ctypes.c_uint(1), ctypes.c_uint(0)
    at.cuda.cuDeviceGetAttribute(ctypes.byref(sms), SMS, at.device)
    pieces = ctypes.c_uint64(size // PIECE_BYTES)
    most = -(-pieces.value // THREADS)
    blocks, threads = ctypes.c_uint(max(1, min(most, BLOCKS_FOR_EACH_SM * sms.value))), ctypes.c_uint(THREADS)
    values = (from_, to, pieces)
    given = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))

    def issue(_keep: Any = values) -> None:
        at.cuda.cuLaunchKernel(kernel, blocks, one, one, threads, one, one, none, at.stream, given, None)

    return issue
