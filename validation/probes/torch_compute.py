"""The part of probe gpu_compute that needs torch: DeepBench's problems and exact products on each GPU of this node.

One process for each GPU, all of them at the same time, as they work in a training; without CUDA one for the processors.
A parent prints one JSON document. For each device: who it is, for each list and precision the problems that were taken
as `[place, iterations, [seconds of one iteration, a batch each], finite]`, or `[place, why not]`, the digests of exact
products, and what NVML said of clocks, power and temperature meanwhile.

Times are CUDA events around a batch of iterations after a warm-up; on processors the monotonic clock. Operands are
random, for power, and with it the clock, depends on them. Problems for inference are recorded in CUDA graphs: kernels
of some microseconds, launched one by one, would measure the processor that launches them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # python -I leaves out where the probes are

from validation.probes import deepbench, exact_products, processors
from validation.probes.gpu_watch import Watch, address

PR_SET_PDEATHSIG = 1
WARM_S = 2.0  # of products before anything counts: a GPU that idles takes a second or so to raise its clocks
MOST_ITERATIONS = 2000
TYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn"}
LEAST_CAPABILITY = {"fp32": (0, 0), "fp16": (5, 3), "tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9)}
GRAPH_RUNS = 10  # of a problem in one CUDA graph
FP8_MULTIPLE = 16  # what cuBLASLt asks of each dimension
BF16_FLAGS = {"avx512_bf16", "amx_bf16"}  # of /proc/cpuinfo: without them bf16 is converted word by word
Run = Callable[[], Any]


class Device:
    """One GPU, or the processors of this node."""

    def __init__(self, torch: Any, index: int | None) -> None:
        """`index` None: the processors."""
        self.torch, self.index = torch, index
        self.cuda = index is not None
        self.name = f"cuda:{index}" if self.cuda else "cpu"
        self.at = torch.device(self.name)
        if self.cuda:
            torch.cuda.set_device(self.at)
            torch.backends.cudnn.benchmark = True  # the fastest algorithm, as DeepBench takes it

    def seconds(self, run: Run, times: int) -> float:
        """Seconds that `times` runs took, from the first to the end of the last."""
        if not self.cuda:
            begin = time.perf_counter()
            for _ in range(times):
                run()
            return time.perf_counter() - begin
        events = [self.torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        for _ in range(times):
            run()
        events[1].record()
        events[1].synchronize()
        return float(events[0].elapsed_time(events[1])) / 1e3

    def graph(self, run: Run, runs: int = GRAPH_RUNS) -> Run:
        """A run of so many `run`s that were recorded once, without the processor's launches between them."""
        made = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(made):
            for _ in range(runs):
                run()
        return lambda: made.replay()

    def random(self, *shape: int, dtype: Any) -> Any:
        """Normally distributed numbers."""
        made = self.torch.randn(*shape, device=self.at, dtype=self.torch.float32)
        return made if dtype == self.torch.float32 else made.to(dtype)

    def supports(self, precision: str) -> str:
        """Why this device does not compute in that precision, "" where it does."""
        if not hasattr(self.torch, TYPES[precision]):
            return f"torch {self.torch.__version__} has no {TYPES[precision]}"
        if not self.cuda:
            if precision == "bf16" and not BF16_FLAGS & set(Path("/proc/cpuinfo").read_text().split()):
                return "these processors have no instructions for it"
            return "" if precision in ("fp32", "bf16") else "not taken on processors"
        capability = tuple(self.torch.cuda.get_device_capability(self.at))
        if capability < LEAST_CAPABILITY[precision]:
            return "compute capability {}.{}".format(*capability)
        return ""

    def use(self, precision: str) -> Any:
        """Take tensor cores for fp32 only where tf32 is asked; the type of the operands."""
        if self.cuda:
            self.torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            self.torch.backends.cudnn.allow_tf32 = precision == "tf32"
        return getattr(self.torch, TYPES[precision])


def matrix_product(device: Device, a: Any, b: Any, precision: str) -> Run:
    """A run of a x b. fp8 needs b column by column, and gives bf16."""
    torch = device.torch
    if precision != "fp8":
        out = torch.empty(a.shape[0], b.shape[1], device=device.at, dtype=a.dtype)
        return lambda: torch.mm(a, b, out=out)
    one = torch.tensor(1.0, device=device.at)
    rows, columns = a.contiguous(), b.t().contiguous().t()

    def run() -> Any:
        found = torch._scaled_mm(rows, columns, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return found[0] if isinstance(found, tuple) else found  # torch before 2.5

    return run


def gemm(device: Device, name: str, precision: str) -> Run:
    """A matrix product of DeepBench."""
    m, n, k, a_t, b_t = deepbench.gemm(name)
    if precision == "fp8" and any(size % FP8_MULTIPLE for size in (m, n, k)):
        raise ValueError(f"fp8 takes multiples of {FP8_MULTIPLE} only")
    dtype = device.use(precision)
    a = device.random(k, m, dtype=dtype).t() if a_t else device.random(m, k, dtype=dtype)
    b = device.random(n, k, dtype=dtype).t() if b_t else device.random(k, n, dtype=dtype)
    return matrix_product(device, a, b, precision)


def conv(device: Device, name: str, precision: str, forward: bool = False) -> Run:
    """A convolution, forward and both gradients; what it returns is all three. `forward`: that pass alone."""
    if precision == "fp8":
        raise ValueError("torch has no convolutions in fp8")
    torch, dtype = device.torch, device.use(precision)
    w, h, c, n, k, s, r, pad_w, pad_h, stride_w, stride_h = deepbench.conv(name)
    image = device.random(n, c, h, w, dtype=dtype).requires_grad_()
    filters = device.random(k, c, r, s, dtype=dtype).requires_grad_()
    stride, padding = (stride_h, stride_w), (pad_h, pad_w)
    if forward:
        return lambda: torch.nn.functional.conv2d(image, filters, stride=stride, padding=padding)
    with torch.no_grad():
        upstream = torch.randn_like(torch.nn.functional.conv2d(image, filters, stride=stride, padding=padding))

    def run() -> Any:
        out = torch.nn.functional.conv2d(image, filters, stride=stride, padding=padding)
        return (out, *torch.autograd.grad(out, (image, filters), upstream))

    return run


def rnn(device: Device, name: str, precision: str, forward: bool = False) -> Run:
    """A recurrent layer, forward and the gradients of input and weights. `forward`: that pass alone."""
    if precision == "fp8":
        raise ValueError("torch has no recurrent layers in fp8")
    torch, dtype = device.torch, device.use(precision)
    cell, hidden, batch, steps = deepbench.rnn(name)
    form = {"vanilla": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell]
    extra = {"nonlinearity": "relu"} if cell == "vanilla" else {}
    layer = form(hidden, hidden, **extra).to(device=device.at, dtype=dtype)
    given = device.random(steps, batch, hidden, dtype=dtype).requires_grad_()
    if device.cuda and "Cudnn" not in type(layer(given)[0].grad_fn).__name__:
        # A kernel or more for each step: how fast the processor launches them, which differs between healthy nodes
        raise ValueError(f"torch {torch.__version__} takes {precision} layers step by step, without cuDNN")
    if forward:
        layer.eval()  # else cuDNN's forward pass of a training, which keeps what the gradients need
        return lambda: layer(given)[0]
    upstream = device.random(steps, batch, hidden, dtype=dtype)
    weights = tuple(layer.parameters())

    def run() -> Any:
        out = layer(given)[0]
        return (out, *torch.autograd.grad(out, (given, *weights), upstream))

    return run


def maker(which: str) -> Callable[[Device, str, str], Run]:
    """What makes a problem of that list."""
    forward = which.endswith(deepbench.INFERENCE)
    of = which.removesuffix(deepbench.INFERENCE)
    if of in ("gemm", "sustained"):
        return gemm
    return functools.partial({"conv": conv, "rnn": rnn}[of], forward=forward)


def one(device: Device, which: str, name: str, precision: str, asked: dict[str, Any]) -> list[Any]:
    """Iterations, seconds of each batch's iteration and whether the result is finite; [why] where it cannot be run."""
    torch, inference = device.torch, which.endswith(deepbench.INFERENCE)
    try:
        single = maker(which)(device, name, precision)
        with torch.set_grad_enabled(not inference):
            device.seconds(single, 1)  # picks the algorithm
            run, runs = (device.graph(single), GRAPH_RUNS) if inference and device.cuda else (single, 1)
            device.seconds(run, 1)
            once = max(device.seconds(run, 1), 1e-7)
            times = max(1, min(MOST_ITERATIONS, math.ceil(asked["least_s"] / once)))
            device.seconds(run, max(1, times // 4))
            batches = [round(device.seconds(run, times) / times / runs, 10) for _ in range(asked["batches"])]
            made = single()
        parts = made if isinstance(made, tuple) else (made,)
        return [times * runs, batches, all(bool(torch.isfinite(part).all()) for part in parts)]
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as fault:
        why = str(fault).strip().splitlines()[0] if str(fault).strip() else type(fault).__name__
        return ["out of memory" if "out of memory" in why else why[:160]]
    finally:
        if device.cuda:
            with contextlib.suppress(RuntimeError):
                torch.cuda.empty_cache()


def lists(device: Device, asked: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Every list in every precision that the device has; which it has not, and why."""
    found: dict[str, Any] = {}
    without: dict[str, str] = {}
    for precision in asked["precisions"]:
        if why := device.supports(precision):
            without[precision] = why
            continue
        for which in asked["lists"]:
            names = deepbench.PROBLEMS[which]
            places = deepbench.chosen(which, asked["most"], not device.cuda)
            rows = [[at, *one(device, which, names[at], precision, asked)] for at in places]
            found.setdefault(which, {})[precision] = rows
        if device.cuda and "gemm" in asked["lists"]:
            shapes = [word.partition(":")[2] for word in asked["sustained"] if word.startswith(f"{precision}:")]
            rows = [[at, *one(device, "sustained", name, precision, asked)] for at, name in enumerate(shapes)]
            if rows:
                found.setdefault("sustained", {})[precision] = rows
    return found, without


def digest_of(result: Any) -> str:
    """SHA-256 of a tensor's bytes."""
    here = result.contiguous().cpu()
    written = ctypes.string_at(here.data_ptr(), here.numel() * here.element_size())  # without numpy
    return hashlib.sha256(written).hexdigest()


def exact(device: Device, precision: str, repeats: int) -> dict[str, Any]:
    """Digests of the exact product of a precision, and how often each came out."""
    torch = device.torch
    size = exact_products.GPU_SIZE if device.cuda else exact_products.CPU_SIZE
    left, right = exact_products.operands(precision)
    dtype = device.use(precision)
    rows = torch.arange(size, device=device.at)
    a = torch.tensor(left, dtype=torch.float32, device=device.at)[rows % exact_products.ROWS].to(dtype)
    b = torch.tensor(right, dtype=torch.float32, device=device.at)[:, rows % exact_products.COLUMNS].to(dtype)
    run = matrix_product(device, a, b, precision)
    digests: dict[str, int] = {}
    for _ in range(repeats):
        digest = digest_of(run())
        digests[digest] = digests.get(digest, 0) + 1
    return {"precision": precision, "size": size, "digests": digests}


def exactly(device: Device, asked: dict[str, Any], when: str) -> list[dict[str, Any]]:
    """Exact products in every precision that the device has."""
    found = []
    for precision in asked["precisions"] if asked["exact"] else ():
        if device.supports(precision):
            continue
        try:
            found.append({"when": when, **exact(device, precision, asked["exact"])})
        except (RuntimeError, TypeError) as fault:
            why = str(fault).strip().splitlines()[0]
            lacks = "out of memory" in why  # in releases of torch before 1.13 the error has no type of its own
            found.append({"when": when, "precision": precision, "why": why[:160], "no_memory": lacks})
    return found


def measured(asked: dict[str, Any], index: int | None) -> dict[str, Any]:
    """Everything of one device."""
    watch = Watch(address(index)) if index is not None else None  # before this process has a context on the GPU
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(1)
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        with contextlib.suppress(AttributeError, AssertionError):  # older than these settings
            setattr(torch.backends.cuda.matmul, name, False)
    device = Device(torch, index)
    report: dict[str, Any] = {"device": device.name, "name": processor(), "threads": torch.get_num_threads()}
    if watch is not None:
        about = torch.cuda.get_device_properties(device.at)
        report.update(name=about.name, memory_bytes=about.total_memory, threads=0)
        report["capability"] = f"{about.major}.{about.minor}"
        report["address"] = watch.address
        with watch:
            report["exact"] = exactly(device, asked, "cold")
            _warm(device)
            report["lists"], report["without"] = lists(device, asked)
            report["exact"] += exactly(device, asked, "hot")
        return {**report, **watch.who, "watch": watch.document()}
    report["exact"] = exactly(device, asked, "cold")
    report["lists"], report["without"] = lists(device, asked)
    report["exact"] += exactly(device, asked, "hot")
    return report


def _warm(device: Device) -> None:
    run = gemm(device, "4096x4096x4096NN", "fp32")
    until = time.monotonic() + WARM_S
    while time.monotonic() < until:
        device.seconds(run, 1)


def processor() -> str:
    """What /proc calls the processors."""
    return processors.model(Path("/proc/cpuinfo").read_text()) or "processor"


def every(
    asked: dict[str, Any], count: int, program: str = __file__, limit_s: float | None = None
) -> Iterator[dict[str, Any]]:
    """Reports of all GPUs, each from a process of its own; one that fails says so and harms no other.

    `limit_s`: after which one that has not ended, as with a kernel that never does, is killed.
    """
    words = [sys.executable, "-I", program, json.dumps(asked)]
    started = [
        subprocess.Popen([*words, str(index)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=with_parent)
        for index in range(count)
    ]
    said: list[tuple[bytes, bytes]] = [(b"", b"")] * count
    late: set[int] = set()
    until = None if limit_s is None else time.monotonic() + limit_s

    def read(at: int, process: subprocess.Popen[bytes]) -> None:
        try:
            said[at] = process.communicate(timeout=None if until is None else max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            late.add(at)
            process.kill()
            said[at] = process.communicate()

    readers = [threading.Thread(target=read, args=one) for one in enumerate(started)]
    for reader in readers:
        reader.start()
    for at, reader in enumerate(readers):
        reader.join()
        lines = said[at][1].decode("utf-8", "replace").strip().splitlines()
        try:
            yield json.loads(said[at][0])
        except ValueError:
            how = f"its process ended with {started[at].returncode}"
            how = f"its process had not ended after {limit_s:.0f} s" if at in late else how
            yield {"device": f"cuda:{at}", "fault": f"{how}: {lines[-1][:200]}" if lines else how}


def with_parent() -> None:
    """Ask the kernel for KILL when the parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    """All devices; with a number the GPU of that number."""
    with_parent()
    asked = json.loads(sys.argv[1])
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if len(sys.argv) > 2:
        print(json.dumps(measured(asked, int(sys.argv[2]))), flush=True)
        return
    torch: Any = importlib.import_module("torch")
    cuda = asked["device"] == "auto" and bool(torch.cuda.is_available())
    report = {
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda or ""),
        "cudnn": str(torch.backends.cudnn.version() or "") if cuda else "",
        "where": "cuda" if cuda else "cpu",
        "devices": list(every(asked, torch.cuda.device_count())) if cuda else [],
    }
    if not cuda and not asked["gpus"]:
        report["devices"] = [measured(asked, None)]
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
