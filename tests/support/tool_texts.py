"""What tools print for given figures, in the forms of their recordings in tests/data. Constructed, not measured.

Each function takes the parameters that its probe was given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from validation.probes.train_networks import PRODUCTS

Params = Mapping[str, Any]
LINE = "-" * 87
TESTS = {"write": "RDMA_Write", "read": "RDMA_Read", "send": "Send"}
UCX = {"put_lat": ("transport", "put latency"), "put_bw": ("transport", "put bandwidth"),
       "tag_bw": ("protocol", "tag match bandwidth")}  # fmt: skip
SWITCH_GUID = "0xb8599f0300fc0000"


def ping(asked: Params) -> str:
    """The asked size passes, one byte more does not."""
    here, there, mtu = asked["source"], asked["destination"], asked["mtu"]
    said = []
    for size, passes in ((mtu - 28, True), (mtu - 27, False)):
        said.append(f"$ ping -n -M do -I {here} -c 3 -W 1 -i 0.05 -s {size} {there}")
        said.append(f"PING {there} ({there}) from {here} : {size}({size + 28}) bytes of data.")
        if passes:
            said += [f"{size + 8} bytes from {there}: icmp_seq={n} ttl=64 time=0.0{n}1 ms" for n in (1, 2, 3)]
        said += ["", f"--- {there} ping statistics ---"]
        words = "3 received, 0% packet loss" if passes else "0 received, +3 errors, 100% packet loss"
        said.append(f"3 packets transmitted, {words}, time 110ms\n")
    return "\n".join([*said, *["ping: local error: message too long, mtu=" + str(mtu)] * 3]) + "\n"


def iperf3(asked: Params, gbps: float) -> str:
    """Intervals that differ by some thousandths."""
    step, streams = asked["interval_s"], asked["streams"]
    intervals = []
    for index in range(round(asked["seconds"] / step)):
        rate = gbps * 1e9 * (1 + 0.002 * math.sin(index))
        carried = int(rate * step / 8)
        part = {"start": index * step, "end": (index + 1) * step, "seconds": step, "bytes": carried}
        intervals.append({"sum": {**part, "bits_per_second": carried * 8 / step, "omitted": False}})
    omitted = {"start": 0, "end": asked["omit_s"], "seconds": asked["omit_s"], "bytes": 0, "bits_per_second": 0}
    whole = sum(part["sum"]["bytes"] for part in intervals)
    total = {"start": 0, "end": asked["seconds"], "seconds": asked["seconds"], "bytes": whole}
    total["bits_per_second"] = whole * 8 / asked["seconds"]
    test = {
        "protocol": "TCP",
        "num_streams": streams,
        "omit": asked["omit_s"],
        "duration": asked["seconds"],
        "reverse": 0,
    }
    start = {"connected": [{"socket": 5 + n} for n in range(streams)], "cookie": "constructed", "test_start": test}
    server = {
        "start": start,
        "intervals": [{"sum": {**omitted, "omitted": True}}, *intervals],
        "end": {"sum_received": total},
    }
    end = {"sum_sent": {**total, "retransmits": 0}, "sum_received": total, "sender_tcp_congestion": "cubic"}
    return json.dumps({"start": {**start, "version": "iperf 3.12"}, "intervals": [], "end": end,
                       "server_output_json": server})  # fmt: skip


def _head(asked: Params, name: str, machine: Any, gid_index: int) -> list[str]:
    ib = machine.layer == "InfiniBand"
    lines = [LINE, f"                    {name} Test",
             f" Dual-port       : OFF\t\tDevice         : {machine.device}",
             f" Number of qps   : {asked.get('qps', 1)}\t\tTransport type : IB",
             " Connection type : RC\t\tUsing SRQ      : OFF", " Mtu             : 4096[B]",
             f" Link type       : {'IB' if ib else 'Ethernet'}"]  # fmt: skip
    lines += [] if ib else [f" GID index       : {gid_index}"]
    return [*lines, f" rdma_cm QPs\t : {'ON' if asked['cm'] == 'rdma_cm' else 'OFF'}",
            f" Data ex. method : {'rdma_cm' if asked['cm'] == 'rdma_cm' else 'Ethernet'}", LINE]  # fmt: skip


OF_OP = {"write": 1.0, "send": 0.996, "read": 0.985}


def perftest_bandwidth(asked: Params, machine: Any, gid_index: int, gbps: float) -> str:
    """About `gbps` one way, and nearly as much the other way where both are measured."""
    both = bool(asked.get("bidirectional"))
    name = f"{TESTS[asked['op']]} {'Bidirectional ' if both else ''}BW"
    said = _head(asked, name, machine, gid_index)
    said.append(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]")
    for size in (asked["size_bytes"],) if asked["size_bytes"] else tuple(2**power for power in range(1, 24)):
        # no more than 4 million messages per second, and of each operation a figure of its own
        average = min(gbps * OF_OP[asked["op"]], size * 8e-3 * 4) * (1.98 if both else 1)
        rate = average / (8e-3 * size)
        messages = asked["iterations"] or math.ceil(1.5 * average * 1e9 / (8 * size))
        figure = f"{average:.6f}" if average < 0.1 else f"{average:.2f}"
        said.append(f" {size:<10} {messages:<10}  {figure:<18} {figure:<18}  {rate:.6f}")
    return "\n".join([*said, LINE]) + "\n"


def cuda(number: int, address: str, memory: str, name: str = "Tesla V100-SXM2-16GB") -> str:
    """What perftest says of the GPU that it was told, the last of those that it lists, before its report."""
    _, bus, device = address.upper().removesuffix(".0").split(":")
    listed = [f"CUDA device {n}: PCIe address is {n:02X}:00" for n in range(number)]
    said = ["initializing CUDA", "Listing all CUDA devices in system:", *listed,
            f"CUDA device {number}: PCIe address is {bus}:{device}", "", f"Picking device No. {number}",
            f"[pid = 4711, dev = {number}] device name = [{name}]", "creating CUDA Ctx",
            "making it the current CUDA Ctx", "CUDA device integrated: 0"]  # fmt: skip
    at = "address at 0x7f1c00000000 aligned at 0x7f1c00000000 with aligned size 16777216"
    said += [f"using DMA-BUF for GPU buffer {at}"] * (memory == "dmabuf")
    said += ["allocated GPU buffer of a 16777216 address at 0x55d0c8d5f6b8 for type CUDA_MEM_DEVICE"]
    return "\n".join(said) + "\n"


def perftest_latency(asked: Params, machine: Any, gid_index: int, us: float) -> str:
    """Around `us`."""
    said = _head(asked, f"{TESTS[asked['op']]} Latency", machine, gid_index)
    said.append(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
                "99% percentile[usec]   99.9% percentile[usec] ")  # fmt: skip
    figures = (us * 0.97, us * 3, us, us * 1.01, us * 0.05, us * 1.2, us * 2)
    said.append(
        f" {asked['size_bytes']}       {asked['iterations']}          " + "   ".join(f"{f:.2f}" for f in figures)
    )
    return "\n".join([*said, LINE]) + "\n"


def pingpong(asked: Params, us: float, here: str, there: str) -> str:
    """ibv_rc_pingpong between two GIDs, `us` for an exchange."""
    count, size = asked["iterations"], asked["size_bytes"]
    seconds, moved = us * count / 1e6, 2 * size * count
    return (
        f"  local address:  LID 0x0000, QPN 0x000011, PSN 0xa38fc6, GID {here}\n"
        f"  remote address: LID 0x0000, QPN 0x000011, PSN 0x01f185, GID {there}\n"
        f"{moved} bytes in {seconds:.2f} seconds = {moved * 8 / us / count:.2f} Mbit/sec\n"
        f"{count} iters in {seconds:.2f} seconds = {us:.2f} usec/iter\n"
    )


def ucx_server(asked: Params) -> str:
    """The serving end names what is measured."""
    level, test = UCX[asked["ucx_test"]]
    rows = {"API:": f"{level} layer", "Test:": test, "Message size:": asked["size_bytes"]}
    body = "".join("| " + f"{name:<13} {value}".ljust(105) + "|\n" for name, value in rows.items())
    edge = "+" + "-" * 106 + "+\n"
    return f"Waiting for connection...\n{edge}{body}{edge}"


def ucx(asked: Params, us: float, gbps: float) -> str:
    """The measuring end has the figures: a latency of `us`, or `gbps`."""
    latency, size = asked["ucx_test"].endswith("_lat"), asked["size_bytes"]
    rate = 1e6 / us if latency else gbps * 1e9 / 8 / size
    bandwidth, time_us = rate * size / 2**20, 1e6 / rate
    word = " latency" if latency else "overhead"
    return (
        f"|              |              |       {word} (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |\n"
        f"Final:   {asked['iterations']}  {time_us:.3f}  {time_us:.3f}  {time_us:.3f}  {bandwidth:.2f}  {bandwidth:.2f}"
        f"  {rate:.0f}  {rate:.0f}\n"
    )


def infiniband(asked: Params, guids: Mapping[str, str], speed: str, device: str) -> str:
    """One switch, a port of it for each node (name -> GUID), the first of which runs the subnet manager."""
    links = []
    for number, (node, guid) in enumerate(guids.items(), 1):
        mine, other = f"{number:>5} {1:>2} {guid}", f"{99:>5} {number:>2} {SWITCH_GUID}"
        links.append(f"CA {mine} 4x {speed} - SW {other} ( '{node} {device}' - 'switch1' )")
        links.append(f"SW {other} 4x {speed} - CA {mine} ( 'switch1' - '{node} {device}' )")
    master = next(iter(guids.values()))
    outputs = {
        "sminfo": f"sminfo: sm lid 1 sm guid {master}, activity count 70 priority 14 state 3 SMINFO_MASTER",
        "ibnetdiscover": "\n".join(links),
        "ibqueryerrors": f"\n## Summary: {len(guids) + 1} nodes checked, 0 bad nodes found\n"
        f"##          {2 * len(guids)} ports checked, 0 ports have errors beyond threshold",
    }
    text = "# ibnetdiscover --version\nBUILD VERSION: 44.0\n"
    return text + "".join(
        f"$ {tool} -C {device} -P 1\n{said}\n" for tool, said in outputs.items() for _ in asked["interfaces"]
    )


def ucx_log(nodes: Sequence[str], lane: str) -> str:
    """What UCX says on each node of the connections that it made: within the node, and over `lane` to the others."""
    said = []
    for node in nodes if lane else ():
        start = f"[1795243071.5] [{node}:4711 :0]     ucp_worker.c:1855 UCX  INFO  0x55d0c0"
        said += [
            f"{start} self cfg#0 tag(self/memory cma/memory)",
            f"{start} intra-node cfg#1 tag(sysv/memory cma/memory)",
        ]
        said += [f"{start} inter-node cfg#2 tag({lane})"] if len(nodes) > 1 else []
    return "".join(line + "\n" for line in said)


def training(asked: Params, hosts: Sequence[str], images_per_s: float) -> str:
    """Rank 0's report of ranks that all train at the same rate; `hosts` one for each rank."""
    each = asked["batch"] * asked["ranks"]
    steps = [round(each / images_per_s * (1 + 0.004 * math.sin(5 * n)), 6) for n in range(asked["steps"])]
    losses = [round(2.3 * 0.98**n, 4) for n in range(asked["warmup"] + asked["steps"])]
    report = {
        "world_size": asked["ranks"], "hosts": list(hosts), "batch": asked["batch"], "warmup": asked["warmup"],
        "steps": asked["steps"], "step_s": steps, "images_per_s": [round(each / s, 3) for s in steps], "losses": losses,
        "loss_first": losses[0], "loss_last": losses[-1], "loss_finite": True, "ranks_agree": True,
        "parameters": 109698, "threads": 1, "python": "3.10.12", "torch": "2.4.1", "horovod": "0.28.1",
        **_trained(asked, hosts, steps),
    }  # fmt: skip
    return json.dumps(report) + "\n"


def _trained(asked: Params, hosts: Sequence[str], steps: Sequence[float]) -> dict[str, Any]:
    """What rank 0 tells of networks, devices and where the time goes, of what was asked for."""
    gpu, precision = asked["device"] == "gpu", asked["precision"]
    local = [list(hosts[:at]).count(name) for at, name in enumerate(hosts)]
    rate = asked["batch"] * asked["steps"] / sum(steps)
    return {
        "model": asked["model"], "precision": precision, "framework": "horovod", "cannot": "",
        "devices": [f"GPU 0000:{0x17 + n:02x}:00.0 GPU" if gpu else "cpu x86_64" for n in local],
        "products": {PRODUCTS[precision]: 54}, "tf32": precision == "tf32",
        "rank_images_per_s": [round(rate, 3)] * len(hosts), "rank_compute_s": [round(0.8 * steps[0], 7)] * len(hosts),
        "input_s": [1e-06 for _ in steps], "compute_s": [round(0.8 * s, 7) for s in steps],
        "allreduce_s": [round(0.15 * s if len(hosts) > 1 else 0.0, 7) for s in steps],
        "allreduce_kernels": [0.21, 0.2, 0.22, 0.2, 0.21] if gpu and len(hosts) > 1 else [],
        **({"watch": [watched(n) for n in local], "others": [[0, 0] for _ in hosts]} if gpu else {}),
    }  # fmt: skip


def watched(number: int, **changes: Any) -> dict[str, Any]:
    """What a sampler saw of a healthy GPU that trained."""

    def span(least: float, median: float, most: float) -> dict[str, float]:
        return {"least": least, "median": median, "most": most}

    return {
        "address": f"0000:{0x17 + number:02x}:00.0", "uuid": "", "said": "", "samples": 120, "seconds": 24.0,
        "sm_mhz": span(1380, 1455, 1530), "memory_mhz": span(877, 877, 877), "power_w": span(180, 245, 290),
        "temperature_c": span(41, 58, 63), "utilisation_percent": span(82, 97, 100), "sm_max_mhz": 1530.0,
        "memory_max_mhz": 877.0, "power_limit_w": 300.0, "reasons": {}, "reason_s": {},
        "course": [[0.2 * at, 90.0, 50.0 + at, 240.0, 1455.0] for at in range(4)], **changes,
    }  # fmt: skip


def copybench(asked: Params, client: str, gpus: Mapping[str, int]) -> str:
    """Copies between a client and the GPUs of servers (name -> how many), all bytes right."""
    servers = [
        {"host": name, "devices": [{"uuid": f"GPU-{name}-{n}"} for n in range(count)]} for name, count in gpus.items()
    ]
    devices = [device["uuid"] for server in servers for device in server["devices"]]  # type: ignore[attr-defined]
    ends = ["H", *map(str, range(len(devices)))]
    pairs = [
        {
            "source": a, "target": b, "bytes": asked["size_bytes"], "verified": True,
            "bandwidth_gb_s": [4.2] * asked["repeat"], "latency_us": [31.5] * asked["latency_count"],
        }
        for a in ends for b in ends if (a, b) != ("H", "H")
    ]  # fmt: skip
    return json.dumps({
        "tool": "elastic-ai-copybench", "host": client, "emulated": False, "verified": True, "wrong": [],
        "devices": [{"name": "GPU", "uuid": uuid, "memory_bytes": 16 << 30} for uuid in devices], "servers": servers,
        "pairs": pairs, "sync_latency_us": [[28.0] * 20 for _ in devices],
    }) + "\n"  # fmt: skip
