"""What others' machines print, from public bug reports, as the toolkit reads it: the whole input, the right value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support import gpu_tools_documents as made
from tests.support.node_modules import load
from tests.support.tool_documents import doc, values
from toolkit.lease.jobs.slurm_json import parse_jobs
from toolkit.lease.jobs.slurm_text import Held, parse_nodes
from toolkit.lease.pool import gpus_of
from toolkit.lease.pool_file import PoolDescription
from validation.kinds import parse
from validation.measures.gpu.tools import GpuToolsFacts
from validation.probes import kernel_log, smi

DATA = Path(__file__).parents[1] / "data/foreign"


def text(name: str) -> str:
    return (DATA / name).read_text()


def events(name: str) -> list[tuple[Any, ...]]:
    lines = [(1000 * at, line) for at, line in enumerate(text(name).splitlines())]
    return [(one["kind"], one["code"], one["address"]) for one in kernel_log.events(lines)]


def test_xids_of_mig_instances_are_their_gpus() -> None:
    assert events("xid-mig-instance.txt") == [("xid", 94, "0000:3b:00.0"), ("xid", 48, "0000:3b:00.0")]


def test_a_gpu_that_fell_off_the_bus_without_a_number_is_lost() -> None:
    assert events("xid-fallen-without-number.txt") == [("xid", 79, "0000:ab:00.0"), ("lost", None, "0000:dc:00.0")]


def test_gpus_of_types_that_begin_with_a_digit() -> None:
    first, second = parse_nodes(text("gres-type-digit.txt"))
    assert (first.gpus, first.gpu_class, first.serves) == (8, "2080ti", True)
    assert (second.gpus, second.gpu_types) == (14, (("1g.10gb", 7), ("h100", 7)))


def test_resources_whose_names_end_in_gpu_are_others() -> None:
    [node] = parse_nodes(text("gres-names-that-end-in-gpu.txt"))
    assert (node.gpus, node.gpu_class) == (2, "a100")


def test_jobs_with_parts_by_mps_hold_them() -> None:
    jobs = parse_jobs(text("mps-job.json").encode())
    assert [job.held for job in jobs] == [(Held("gpu1", 0, 50, 100),), (Held("gpu1", 0, 25, 100),)]
    [node] = parse_nodes(text("gres-names-that-end-in-gpu.txt"))
    assert [gpu.free for gpu in gpus_of([node], jobs, PoolDescription())] == [
        0,
        1,
    ]  # whole GPUs alone are given out there


def test_repairs_that_wait_are_named_with_their_gpu() -> None:
    gate: Any = load("plugins/plugin_utils/gpu_gate.py")
    said = {"rc": 0, "stdout": text("nvidia-smi-q-580.txt")}
    assert gate.driver_gate_faults(said, {"rc": 1}, True, {"fabric_manager": False}) == [
        "GPU 00000000:9A:00.0: a memory channel's repair waits for a reset of the GPU (Channel Repair Pending: Yes)",
        "GPU 00000000:9A:00.0: a TPC's repair waits for a reset of the GPU (TPC Repair Pending: Yes)",
        "GPU 00000000:9A:00.0: memory that cannot be repaired: replace the GPU (Unrepairable Memory: Yes)",
    ]


def test_mig_instances_are_no_gpus() -> None:
    assert len(smi.listed(text("nvidia-smi-L-mig.txt"))) == 2


def test_the_path_mtu_over_ipv6() -> None:
    samples, _ = parse("path-mtu", json.loads(text("path-mtu-ipv6.json")), {"mtu": 1500})
    assert [(one.metric, one.value) for one in samples] == [("path_mtu_bytes", 1500.0)]


def test_rates_of_an_iperf3_without_retransmits() -> None:
    samples, facts = parse("tcp-bandwidth", doc("tcp-bandwidth", text("iperf3-no-retransmits.json")))
    assert {one.metric for one in samples} == {"tcp_bandwidth_gbps"}
    assert round(facts["receiver_mean_gbps"], 3) == 14.938  # type: ignore[index,arg-type]
    twice = text("iperf3-no-retransmits.json") + "\n" + text("iperf3-no-retransmits.json")
    again, _ = parse("tcp-bandwidth", doc("tcp-bandwidth", twice))
    assert values(again, "tcp_bandwidth_gbps") == values(samples, "tcp_bandwidth_gbps")


def test_the_release_of_an_nvbandwidth_without_a_commit() -> None:
    facts = parse("gpu-tools", made.document(nvbandwidth=text("nvbandwidth-0.8-json.json")))[1]  # type: ignore[arg-type]
    assert isinstance(facts, GpuToolsFacts)
    tool = facts.tools[0]
    assert (tool.version, tool.addresses, len(tool.cells)) == ("v0.8", ("0008:06:00.0", "0009:06:00.0"), 8)
