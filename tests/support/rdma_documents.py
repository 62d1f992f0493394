"""What RDMA probes print: recorded output with the facts of both ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support import tool_texts
from tests.support.tool_documents import doc as tool_doc

DATA = Path(__file__).parent.parent / "data" / "rdma"


TIME = "2026-11-22T01:00:00.000+00:00"


def end(number: int, **changes: Any) -> dict[str, Any]:
    """Facts of one end that carried plenty in both directions."""
    facts = {
        "device": "rxe_fab0", "rdma_port": 1, "gid_index": 1, "gid": f"::ffff:10.78.0.{number}",
        "roce_version": "RoCE v2", "link_layer": "Ethernet", "port_rate": "2.5 Gb/sec (1X SDR)", "memlock": "unlimited",
        "active_mtu": 4096, "counters": {"hw_counters/rcvd_pkts": 99999999, "hw_counters/sent_pkts": 99999999},
        "sent_packets": 99999999, "received_packets": 99999999,
    }  # fmt: skip
    return {**facts, **changes}


def doc(kind: str, text: str, facts: dict[str, Any] | None = None, **changes: Any) -> Any:
    facts = {**end(13), "op": "write", "cm": "socket", "peer": end(14), **(facts or {})}
    return tool_doc(kind, text, facts, tool_version="", started=TIME, ended=TIME, **changes)


def said(name: str) -> str:
    return (DATA / name).read_text()


WRITE = {"op": "write", "size_bytes": 65536, "iterations": 100, "qps": 2, "transport": "roce", "cm": "socket"}


UCX_TAG = {"ucx_test": "tag_bw", "size_bytes": 65536, "iterations": 1000, "transport": "roce"}


HARDWARE = {"device": "mlx5_0", "gid_index": 3, "sent_bytes": 10**12, "received_bytes": 10**12}


# What each recorded or constructed output says, read from it by eye.
EXPECTED = {
    "pingpong": {"rdma_pingpong_us": 21457.54, "rdma_retransmits": 30},
    "4.5-write_bw": {"rdma_write_bandwidth_gbps": 0.098837, "rdma_retransmits": 0},
    "4.5-read_bw-rdma_cm": {"rdma_read_bandwidth_gbps": 0.027293, "rdma_retransmits": 0},
    "4.5-send_bw": {"rdma_send_bandwidth_gbps": 0.058251, "rdma_retransmits": 0},
    "4.5-write_bw-bidirectional": {"rdma_write_bidirectional_gbps": 0.029067, "rdma_retransmits": 650},
    "4.5-write_bw-sweep": {"rdma_write_sweep_peak_gbps": 0.22, "rdma_retransmits": 1300},
    "4.5-write_lat": {
        "rdma_write_latency_us": 7660.5, "rdma_write_latency_p99_us": 41445.72, "rdma_retransmits": 68,
    },
    "4.5-read_lat": {"rdma_read_latency_us": 2028.37, "rdma_read_latency_p99_us": 26650.55, "rdma_retransmits": 0},
    "4.5-send_lat": {"rdma_send_latency_us": 3935.74, "rdma_send_latency_p99_us": 28943.25, "rdma_retransmits": 32},
    "ucx-1.13-put_lat": {"ucx_latency_us": 774.0, "rdma_retransmits": 0},
    "constructed-4.5-write_bw": {"rdma_write_bandwidth_gbps": 0.10, "rdma_retransmits": 0},
    "constructed-4.5-write_bw-cuda": {"rdma_gpu_write_gbps": 0.10, "rdma_retransmits": 0},
    "constructed-ucx-1.13-tag_bw": {"ucx_bandwidth_gbps": 11531.36 * 8 * 1024 * 1024 / 1e9, "rdma_retransmits": 0},
}  # fmt: skip


def _case(name: str) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """(kind, output, facts, parameters): recorded with it, or made up beside a constructed output."""
    if not name.startswith("constructed-"):
        recorded = json.loads(said(f"{name}.json"))
        if name.startswith("ucx"):
            recorded["facts"]["peer"]["stdout"] = said(f"{name}.server.out")
        return recorded["kind"], said(f"{name}.out"), recorded["facts"], recorded["params"]
    if name.endswith("tag_bw"):
        head, _, figures = said(f"{name}.out").partition("+--------------+")
        return "rdma-ucx", "+--------------+" + figures, {"peer": end(14, stdout=head)}, UCX_TAG
    if name.endswith("-cuda"):
        report = said(f"{name.removesuffix('-cuda')}.out")
        told = {"gpu": 1, "gpu_address": "0000:1a:00.0", "gpu_name": "Tesla V100-SXM2-16GB", "gpu_memory": "dmabuf"}
        other = {**told, "gpu": 0, "gpu_address": "0000:3b:00.0", "gpu_memory": "peermem"}
        texts = [tool_texts.cuda(e["gpu"], e["gpu_address"], e["gpu_memory"]) + report for e in (told, other)]
        return "rdma-gpu", texts[0], {**told, "peer": end(14, **other, stdout=texts[1])}, WRITE
    return "rdma-bandwidth", said(f"{name}.out"), {}, WRITE


CASES = {name: _case(name) for name in EXPECTED}


RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "data/rdma-ports/rxe-debian12-6.1.json").read_text()
)
