"""What nccl-tests and torch print of collective operations. Constructed: the forms are the tools', the figures are not.

Forms: NVIDIA/nccl-tests 2.20.0 and older, as in its issues 29, 44, 71, 107 and 293.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from validation.kinds import parse
from validation.measures.collectives.bounds import LEAST_BYTES, Layout, ceiling
from validation.measures.collectives.plan import SIZES
from validation.model import Measurement, Result
from validation.probes.collectives_rank import OPS, factor
from validation.probes.port_bytes import MARK

H100 = "NVIDIA H100 80GB HBM3"
BEST = {"all_reduce": 478.9, "all_gather": 361.4, "reduce_scatter": 362.9, "all_to_all": 340.0, "send_recv": 350.0}
LATENCY_US = 25.0


def microseconds(op: str, size: int, ranks: int, best: float) -> float:
    """What a message takes at `best` GB/s of bus bandwidth, and the latency."""
    return LATENCY_US + factor(op, ranks) * size / best / 1e3


def table(
    op: str = "all_reduce",
    hosts: Sequence[str] = ("gpu1",) * 8,
    sizes: Sequence[int] = SIZES,
    best: float | None = None,
    devices: Sequence[int] | None = None,
    model: str = H100,
    wrong: str = "0",
) -> str:
    """One program's output; `devices`: the number of each rank's GPU in its host."""
    ranks = len(hosts)
    step = sizes[1] // sizes[0] if len(sizes) > 1 else 2
    place = devices or [list(hosts[:i]).count(host) for i, host in enumerate(hosts)]
    lines = [
        "# nccl-tests version 2.20.0 (b4d5bee) nccl-headers=22707 nccl-library=22707",
        f"# Collective test starting: {op}_perf",
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: {step}(factor) warmup iters: 2 iters: 5 "
        "agg iters: 1 validation: 1 graph: 0 unalign: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {i:2} Group  0 Pid {1000 + i:6} on {host:>10} device {at:2} [0000:{0x17 + at:02x}:00] {model}"
            for i, (host, at) in enumerate(zip(hosts, place, strict=True))
        ),
        "#",
        "#                                                              out-of-place                       in-place",
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong  time",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)          (us)",
    ]
    total = 0.0
    for size in sizes:
        us = microseconds(op, size, ranks, best or BEST[op])
        algbw = size / us / 1e3
        busbw = algbw * factor(op, ranks)
        total += busbw
        half = f"{us:8.2f}  {algbw:6.2f}  {busbw:6.2f}"
        lines.append(f"{size:12} {size // 4:13}     float     sum      -1 {half}  {wrong:>6} {half}     N/A")
    bad = "0 OK" if wrong in ("0", "N/A") else f"{wrong} FAILED"
    lines += [f"# Out of bounds values : {bad}"]
    lines += [f"# Avg bus bandwidth    : {total / len(sizes):.4g}", "#", f"# Collective test concluded: {op}_perf"]
    return "\n".join(lines) + "\n"


def document(stdout: str, tool: str, stderr: str = "", **changes: Any) -> dict[str, Any]:
    """What the probe says."""
    return {
        "kind": "collectives", "tool": tool, "tool_version": "2.20.0", "command": ["mpirun"], "returncode": 0,
        "stdout": stdout, "stderr": stderr, "facts": {"tool": tool, "nccl_tests": "/usr/local/bin"},
        "started": "", "ended": "", "duration_s": 30.0, "error": None, **changes,
    }  # fmt: skip


def all_tables(stderr: str = "", **changes: Any) -> dict[str, Any]:
    """All five programs of nccl-tests; `changes` of each table."""
    return document("".join(f"== {op}\n{table(op, **changes)}" for op in OPS), "nccl-tests", stderr)


def torch_document(
    hosts: Sequence[str] = ("gpu1",) * 8,
    sizes: Sequence[int] = SIZES,
    backend: str = "nccl",
    best: Mapping[str, float] = BEST,
    stderr: str = "",
    model: str = H100,
    ops: Sequence[str] = OPS,
    **changes: Any,
) -> dict[str, Any]:
    """The rank program's report, by NCCL on GPUs or by Gloo on processors; `changes` of it."""
    n, rows = len(hosts), []
    for op in ops:
        for size in (asked // (4 * n) * 4 * n for asked in sizes):
            seconds = [round(microseconds(op, size, n, best[op]) * 1e-6 * (1 + at / 1e4), 9) for at in range(6)]
            rates = [round(factor(op, n) * size / s / 1e9, 9) for s in seconds]
            row = {"op": op, "bytes": size, "iterations": 5, "seconds": seconds, "busbw_gb_s": rates, "wrong": 0}
            rows.append(row)
    place = [list(hosts[:i]).count(host) for i, host in enumerate(hosts)]
    devices = [f"GPU 0000:{0x17 + at:02x}:00.0 {model}" if backend == "nccl" else "cpu x86_64" for at in place]
    report = {
        "world_size": n, "backend": backend, "hosts": list(hosts), "devices": devices, "repeats": 6, "rows": rows,
        "left_out": {}, "nccl": "2.27.7" if backend == "nccl" else "", "torch": "2.9.0", "python": "3.11.2",
    }  # fmt: skip
    return document(json.dumps({**report, **changes}) + "\n", "torch", stderr)


def nccl_log(
    hosts: Sequence[str],
    rdma: bool = True,
    socket: str = "fab0",
    devices: Sequence[str] = ("mlx5_0:1",),
    gdr: bool = False,
    inside: str = "P2P/CUMEM",
    net: str = "",
    settings: Sequence[str] = (),
) -> str:
    """What NCCL says at level INFO of one ring over the ranks, in the forms of NVIDIA/nccl's issues 1189 and 1357."""
    way = net or ("IB" if rdma else "Socket")
    lines = [f"Bootstrap : Using {socket}:10.78.0.13<0>", f"Using network {way}"]
    if rdma:
        found = " ".join(f"[{i}]{device}/RoCE" for i, device in enumerate(devices))
        lines.append(f"NET/IB : Using {found} [RO]; OOB {socket}:10.78.0.13<0>")
    else:
        lines.append(f"NET/Socket : Using [0]{socket}:10.78.0.13<0>")
    lines += settings
    for rank, host in enumerate(hosts):
        to = (rank + 1) % len(hosts)
        pair = f"Channel 00/0 : {rank}[{rank % 8}] -> {to}[{to % 8}]"
        over = f" [send] via NET/{way}/0{'/GDRDMA' if gdr else ''}"
        lines.append(pair + (f" via {inside}" if host == hosts[to] else over))
    return "".join(f"gpu1:4711:4799 [0] NCCL INFO {line}\n" for line in lines)


def port_lines(hosts: Sequence[str], rdma: bool) -> str:
    """What the ports of each node carried: of several nodes more than any job needs, inside a node next to nothing."""
    sent = 1 << 50 if len(hosts) > 1 else 4096
    ports = [("ethernet", "fab0", 0 if rdma else sent), *([("rdma", "mlx5_0:1", sent)] if rdma else [])]
    told = [
        {"port": port, "way": way, "ours": True, "sent": carried, "received": carried} for way, port, carried in ports
    ]
    lines = [json.dumps({"host": host, "ports": told}) for host in hosts]
    return "".join(f"\n{MARK}{line}\n" for line in lines)


TESTS = all_tables()
TESTS_PARAMS = {"ranks": 8, "ranks_per_node": 8, "repeats": 6, "sizes": tuple(map(str, SIZES))}


def document_of(
    m: Measurement, scale: float = 1.0, gpus: bool | None = None, port_gb_s: float = 1.25, **changes: Any
) -> dict[str, Any]:
    """What a healthy job prints: of a plan for hardware by NCCL, else by Gloo (or as `gpus` says); `changes` of it.

    Across nodes three quarters of what a port of `port_gb_s` for each node allows.
    """
    each, names = int(str(m.params["ranks_per_node"])), list(m.params["hosts"])  # type: ignore[arg-type]
    sizes = [int(size) for size in m.params["sizes"]]  # type: ignore[union-attr,arg-type]
    by_nccl = sizes[-1] > LEAST_BYTES if gpus is None else gpus
    best = {op: rate * (0.6 if each == 2 else 1.0) for op, rate in BEST.items()}
    if len(names) > 1:
        top = {op: ceiling(op, Layout(each, len(names), "", port_gb_s)) for op in OPS}
        best = {op: 0.75 * (found[0] if found else port_gb_s) for op, found in top.items()}
    best = {op: rate * scale for op, rate in best.items()}
    hosts = [name for name in names for _ in range(each)]
    model = changes.pop("model", "NVIDIA H100 NVL" if each == 2 else H100)
    rdma = m.params["transport"] != "tcp"
    variant = m.params.get("variant")
    more: dict[str, Any] = {"inside": "NET/IB/0"} if variant == "isolated" else {}
    if variant:
        best = {op: rate if variant == "nvls-off" else scale * 0.7 * port_gb_s / each for op, rate in best.items()}
        changes = {"ops": ("all_reduce",), **changes}
    told = {"stderr": (nccl_log(hosts, rdma, **more) if by_nccl else "") + port_lines(names, rdma), **changes}
    return torch_document(hosts, sizes, "nccl" if by_nccl else "gloo", best, model=model, **told)


def healthy_collectives(m: Measurement, scale: float = 1.0, gpus: bool | None = None, **changes: Any) -> Result:
    """What a healthy job measures."""
    from tests.support.site import result  # which stands on this module

    samples, facts = parse("collectives", document_of(m, scale, gpus, **changes), m.params)  # type: ignore[arg-type]
    return result(m, samples, facts=facts)
