"""elastic-ai-copybench: copies between this machine and its CUDA devices, and between the devices, with verified data.

Runs with any libcuda.so.1: a remoting engine's, the driver of real GPUs, the emulated one of a lab. Standard library
alone, so that it runs wherever a lease can be used. A table on stdout, line by line as it is measured; with --json one
document for programs on stdout instead, and progress on stderr.

Exit: 0 all data were right; 1 some were not; 2 a CUDA call failed or the arguments are wrong.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from validation.base.counting import number_of

HOST = "H"
SMALL_BYTES = 4
DEFAULT_BYTES = 64 << 20
#: As in validation/nvml, which a program that runs as a file by itself does not import.
EMULATED = "elasticAiEmulated"


#: Files of an RDMA port: of hardware; of Soft-RoCE, which has no others.
PACKETS = (
    ("counters/port_xmit_packets", "counters/port_rcv_packets"),
    ("hw_counters/sent_pkts", "hw_counters/rcvd_pkts"),
)


class CudaError(Exception):
    """A CUDA call failed; `code` is its CUresult."""

    def __init__(self, call: str, code: int, text: str) -> None:
        """Say which call failed and how."""
        super().__init__(f"{call} failed: {text} ({code})")
        self.call = call
        self.code = code


class Cuda:
    """The driver API by ctypes: `cuda.cuMemAlloc_v2(...)` raises CudaError unless it succeeds."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        """Load the library as the dynamic linker finds it; OSError when it does not."""
        self.library = ctypes.CDLL(library)

    def __getattr__(self, name: str) -> Any:
        """A function of the driver API that raises CudaError unless it succeeds."""
        function = getattr(self.library, name)

        def call(*arguments: Any) -> None:
            code = int(function(*arguments))
            if code:
                raise CudaError(name, code, self.error_name(code))

        setattr(self, name, call)
        return call

    def error_name(self, code: int) -> str:
        """CUDA_ERROR_..., or "unknown error"."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(text))
        return (text.value or b"unknown error").decode()


class Device:
    """A device with its primary context and two blocks of memory."""

    def __init__(self, cuda: Cuda, ordinal: int) -> None:
        """Take the context of device number `ordinal`."""
        self.cuda = cuda
        device, count = ctypes.c_int(), ctypes.c_size_t()
        name, uuid = ctypes.create_string_buffer(128), (16 * ctypes.c_byte)()
        cuda.cuDeviceGet(ctypes.byref(device), ordinal)
        cuda.cuDeviceGetName(name, 128, device)
        cuda.cuDeviceGetUuid_v2(uuid, device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(count), device)
        digits = bytes(b & 0xFF for b in uuid).hex()
        self.name = name.value.decode(errors="replace")
        self.uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
        self.memory_bytes = count.value
        self.context = ctypes.c_void_p()
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device)
        self.use()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        self.free_bytes = free.value
        self.block = ctypes.c_uint64()
        self.second = ctypes.c_uint64()  # for copies within the device

    def allocate(self, block_bytes: int) -> None:
        """Take both blocks; CudaError when they do not fit."""
        self.use()
        for block in (self.block, self.second):
            self.cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(block_bytes))

    def use(self) -> None:
        """Make its context current."""
        self.cuda.cuCtxSetCurrent(self.context)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parsed command line."""
    parser = argparse.ArgumentParser("elastic-ai-copybench", description=(__doc__ or "").split("\n\n", 1)[1])
    help_bytes = "of each copy: 1048576, 64M, 1G (default 64M, or what fits twice in the smallest device)"
    parser.add_argument("--bytes", type=_size, help=help_bytes)
    parser.add_argument(
        "--repeat", type=int, default=5, help="timed copies of each pair, after one untimed (default 5)"
    )
    parser.add_argument("--latency-count", type=int, default=200, help=f"copies of {SMALL_BYTES} bytes (default 200)")
    parser.add_argument("--label", default="", help="passed through to the document")
    parser.add_argument("--json", action="store_true", help="one document with all figures, for programs")
    found = parser.parse_args(given)
    if (found.bytes is not None and found.bytes < SMALL_BYTES) or found.repeat < 1 or found.latency_count < 1:
        parser.error(f"--bytes is at least {SMALL_BYTES}, the counts at least 1")
    return found


def _size(text: str) -> int:
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    digits = text[:-1] if factor > 1 else text
    if not digits.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}': give bytes, as 1048576, 64M or 1G")
    return int(digits) * factor


def pattern(seed: str, length: int) -> bytes:
    """Bytes that differ for each seed and do not repeat in step with chunks of a copy (SHAKE-128, a prime's length)."""
    block = hashlib.shake_128(seed.encode()).digest(1048573)
    return (block * (length // len(block) + 1))[:length]


class Bench:
    """Copies between all endpoints, timed and verified. Bandwidths in GB/s (10^9 byte/s), latencies in microseconds."""

    def __init__(self, cuda: Cuda, options: argparse.Namespace) -> None:
        """Find all devices and take memory on each; CudaError when that fails."""
        self.cuda = cuda
        self.options = options
        self.wrong: list[str] = []
        cuda.cuInit(0)
        count = ctypes.c_int()
        cuda.cuDeviceGetCount(ctypes.byref(count))
        self.devices = [Device(cuda, i) for i in range(count.value)]
        fits = min(d.free_bytes for d in self.devices) // 2 // 4096 * 4096
        self.bytes: int = options.bytes or min(DEFAULT_BYTES, fits)
        for device in self.devices:
            device.allocate(self.bytes)
        self.back = ctypes.create_string_buffer(self.bytes)

    def copy(self, source: int | None, target: int | None, host: Any, length: int) -> None:
        """One copy, to its end; None is the host. A driver returns from one inside its GPUs before that has ended."""
        size = ctypes.c_size_t(length)
        if source is None and target is not None:
            self.cuda.cuMemcpyHtoD_v2(self.devices[target].block, host, size)
        elif target is None and source is not None:
            self.cuda.cuMemcpyDtoH_v2(host, self.devices[source].block, size)
        elif source is not None and source == target:
            self.cuda.cuMemcpyDtoDAsync_v2(self.devices[source].second, self.devices[source].block, size, None)
            self.cuda.cuCtxSynchronize()
        elif source is not None and target is not None:
            a, b = self.devices[source], self.devices[target]
            self.cuda.cuMemcpyPeerAsync(b.block, b.context, a.block, a.context, size, None)
            self.cuda.cuCtxSynchronize()

    def pair(self, source: int | None, target: int | None) -> dict[str, Any]:
        """All figures of one ordered pair of endpoints."""
        names = [HOST if e is None else str(e) for e in (source, target)]
        length = self.bytes
        data = pattern("->".join(names), length)
        outgoing = ctypes.create_string_buffer(data, length)
        at = source if source is not None else target
        assert at is not None
        self.devices[at].use()
        if source is not None:
            self.copy(None, source, outgoing, length)
        written = None
        if target is not None:  # what was there before must not pass for what was copied
            self.devices[target].use()
            written = self.devices[target].second if source == target else self.devices[target].block
            self.cuda.cuMemsetD8_v2(written, 0, ctypes.c_size_t(length))
        else:
            ctypes.memset(self.back, 0, length)
        host = outgoing if source is None else self.back
        self.copy(source, target, host, length)
        times = []
        for _ in range(self.options.repeat):
            began = time.perf_counter()
            self.copy(source, target, host, length)
            times.append(time.perf_counter() - began)
        small = []
        for _ in range(self.options.latency_count):
            began = time.perf_counter()
            self.copy(source, target, host, SMALL_BYTES)
            small.append((time.perf_counter() - began) * 1e6)
        if written is not None:
            self.cuda.cuMemcpyDtoH_v2(self.back, written, ctypes.c_size_t(length))
        right = ctypes.string_at(self.back, length) == data
        if not right:
            self.wrong.append(f"{names[0]} -> {names[1]}")
        return {
            "source": names[0],
            "target": names[1],
            "bytes": length,
            "bandwidth_gb_s": [round(length / t / 1e9, 4) for t in times],
            "latency_us": [round(t, 2) for t in small],
            "verified": right,
        }

    def sync_latency(self, ordinal: int) -> list[float]:
        """Round trips of cuCtxSynchronize with nothing to wait for."""
        self.devices[ordinal].use()
        found = []
        for _ in range(self.options.latency_count):
            began = time.perf_counter()
            self.cuda.cuCtxSynchronize()
            found.append(round((time.perf_counter() - began) * 1e6, 2))
        return found

    def run(self, told: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """The document; `told` hears of each pair as soon as it is measured."""
        ends: list[int | None] = [None, *range(len(self.devices))]
        pairs = []
        before = rdma_packets()
        for source in ends:
            for target in ends:
                if source is None and target is None:
                    continue
                pairs.append(self.pair(source, target))
                told(pairs[-1])
        known = servers(self.cuda)
        after = rdma_packets()
        return {
            "tool": "elastic-ai-copybench",
            "label": self.options.label,
            "host": os.uname().nodename,
            "emulated": hasattr(self.cuda.library, EMULATED) or any(server["emulated"] for server in known),
            "devices": [{"name": d.name, "uuid": d.uuid, "memory_bytes": d.memory_bytes} for d in self.devices],
            "servers": known,
            "rdma_packets": {
                port: [there - here for here, there in zip(before[port], after[port])]
                for port in sorted(before.keys() & after.keys())
            },
            "pairs": pairs,
            "sync_latency_us": [self.sync_latency(i) for i in range(len(self.devices))],
            "verified": not self.wrong,
            "wrong": self.wrong,
        }


def servers(cuda: Cuda) -> list[dict[str, Any]]:
    """What the reference engine's servers say of themselves; nothing with another library."""
    if not hasattr(cuda.library, "elasticAiServerInfo"):
        return []
    text = ctypes.create_string_buffer(1 << 20)
    cuda.elasticAiServerInfo(text, ctypes.c_size_t(len(text)))
    found: list[dict[str, Any]] = json.loads(text.value)
    return found


def rdma_packets(root: Path = Path("/sys/class/infiniband")) -> dict[str, list[int]]:
    """Packets that each RDMA port of this machine has sent and received, as DEVICE/PORT: by the port's own counters."""
    found = {}
    for port in root.glob("*/ports/*"):
        for names in PACKETS:
            try:
                counts = [int((port / name).read_text()) for name in names]
            except (OSError, ValueError):
                continue
            found[f"{port.parents[1].name}/{port.name}"] = counts
    return found


HEADING = f"{'FROM':5} {'TO':3} {'GB/S':>9} {'LATENCY US':>12}  DATA"


def row(pair: dict[str, Any]) -> str:
    """A pair's line of the table, with the medians."""
    rate, wait = (sorted(pair[key])[len(pair[key]) // 2] for key in ("bandwidth_gb_s", "latency_us"))
    return f"{pair['source']:5} {pair['target']:3} {rate:9.3f} {wait:12.1f}  {'right' if pair['verified'] else 'WRONG'}"


def opening(bench: Bench) -> str:
    """Who is who in the table."""
    place = {d.get("uuid"): s.get("server", "") for s in servers(bench.cuda) for d in s.get("devices", [])}
    lines = [f"H is this machine, {os.uname().nodename}; the others are the devices:"]
    for number, device in enumerate(bench.devices):
        where = f", at {place[device.uuid]}" if place.get(device.uuid) else ""
        lines.append(f"  {number}  {device.name}, {device.memory_bytes >> 20} MiB{where}")
    return "\n".join([*lines, "", HEADING])


def ending(document: dict[str, Any], options: argparse.Namespace) -> str:
    """What it comes to."""
    size = document["pairs"][0]["bytes"]
    amount = f"{size / 2**20:g} MiB" if size >= 1 << 20 else number_of(size, "byte")
    lines = [
        f"\n{number_of(len(document['pairs']), 'pair')}. Medians of {number_of(options.repeat, 'copy')} of "
        f"{amount} (10^9 byte/s)"
        f" and of {options.latency_count} of {SMALL_BYTES} bytes.",
        f"data were wrong after: {', '.join(document['wrong'])}" if document["wrong"] else "all data were right",
    ]
    return "\n".join([*lines, *(["Emulated devices: not a GPU's figures."] if document["emulated"] else [])])


def main(given: list[str] | None = None) -> int:
    """Run it; the exit code."""
    options = arguments(given)
    try:
        bench = Bench(Cuda(), options)
        if not options.json:
            print(opening(bench), flush=True)
        document = bench.run(lambda pair: print(row(pair), file=sys.stderr if options.json else sys.stdout, flush=True))
    except CudaError as e:
        print(f"elastic-ai-copybench: {e}", file=sys.stderr)
        return 2
    except OSError as e:
        print(f"elastic-ai-copybench: no CUDA driver library: {e}", file=sys.stderr)
        return 2
    print(json.dumps(document) if options.json else ending(document, options))
    return 1 if document["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
