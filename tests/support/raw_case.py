"""What probes would have reported for given samples: reports and raw logs in the form of the real tools, made here.

A run made from them can be read again from its raw logs, as a real one. Nothing here was measured.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from tests.support.collectives_documents import document_of
from tests.support.long_documents import document as long_of
from tests.support.switch_documents import switch_document
from tests.support.tool_documents import doc as tool_doc
from tests.support.turns_documents import document as turns_of
from validation.judging.run_data import RunData
from validation.kinds import parse
from validation.kinds.record import names
from validation.model import DENIED, REPORT, Measurement, Plan, RawLog, Result, RunInfo, Topology, VerdictDoc
from validation.model.load import load_json, read_results
from validation.probes import ProbeDoc
from validation.rules.fabric import load_fabric
from validation.run.catalogue import load_criteria
from validation.verdict.judge import judge

METRICS = {
    "path-mtu": "path_mtu_bytes",
    "tcp-bandwidth": "tcp_bandwidth_gbps",
    "tcp-latency": "tcp_rtt_us",
    "incast": "incast_gbps",
    "all-to-all": "all_to_all_port_gbps",
    "training-short": "images_per_s",
    "collectives": "all_reduce_busbw_gb_s",
}
"""The metric from which a report is made; what else a parser finds follows from it."""
NOTHING = json.dumps({DENIED: []}) + "\n"
"""What is kept of an attempt that came to no end: no report, and nothing was denied."""


def document(m: Measurement, values: Sequence[float], facts: dict[str, Any], like: Result) -> ProbeDoc:
    """The report of a measurement that gave `values` (some kinds: facts). `like` has the rest."""
    stdout, found, told = "", dict(facts), ""
    if m.kind in ("facts", "cabling", "rdma-ports", "gpu-health", "gpu-container"):
        stdout = json.dumps(facts)
        found = json.loads(stdout)
    elif m.kind == "bmc":
        stdout, found = json.dumps(facts), {"nodes": len(facts)}
    elif m.kind == "path-mtu":
        stdout, found = _ping(int(values[0])), {"path_mtu_bytes": int(values[0])}
    elif m.kind == "tcp-bandwidth":
        stdout, found = json.dumps(_iperf3(m, values)), {}
    elif m.kind == "tcp-latency":
        stdout, found = _sockperf(m, values)
    elif m.kind in ("incast", "all-to-all"):
        stdout, found = switch_document(m, values[0])["stdout"], {}
    elif m.kind == "training-short":
        found = _training(m, values)
        stdout = json.dumps(found) + "\n"
    elif m.kind == "training-turns":
        made = turns_of(m)
        stdout, found, told = made["stdout"], {}, made["stderr"]
    elif m.kind == "training-long":
        stdout, found = long_of(m)["stdout"], {}
    elif m.kind == "collectives":
        made = document_of(m)
        stdout, found = made["stdout"], made["facts"]
        told = made["stderr"]
    p = like.provenance
    return tool_doc(
        m.kind, stdout, found, tool=p.tool, tool_version=p.tool_version, command=list(p.command),
        stderr="warned of nothing\n" + (told or _told(m)), started=p.started, ended=p.ended, duration_s=p.duration_s,
    )  # fmt: skip


def _ping(mtu: int) -> str:
    text = ""
    for size, answered in ((mtu, True), (mtu + 1, False), (9000, mtu >= 9000)):
        text += f"$ ping -n -M do -c 1 -s {size - 28} 192.0.2.2\n"
        text += f"{size - 20} bytes from 192.0.2.2: icmp_seq=1 ttl=64 time=0.1 ms\n" if answered else ""
        text += f"1 packets transmitted, {int(answered)} received, 0% packet loss, time 0ms\n"
    return text


def _iperf3(m: Measurement, values: Sequence[float]) -> dict[str, Any]:
    interval, streams = float(str(m.params["interval_s"])), int(str(m.params["streams"]))

    def part(start: float, seconds: float, carried: int) -> dict[str, Any]:
        return {
            "start": start, "end": start + seconds, "seconds": seconds, "bytes": carried,
            "bits_per_second": carried * 8 / seconds, "omitted": False,
        }  # fmt: skip

    carried = [round(value * 1e9 * interval / 8) for value in values]
    start = {
        "test_start": {
            "protocol": "TCP", "reverse": 0, "duration": m.params["seconds"], "omit": m.params["omit_s"],
            "num_streams": streams,
        },
        "connected": [{"socket": 5 + i} for i in range(streams)],
        "cookie": m.id,
    }  # fmt: skip
    whole = part(0.0, interval * len(values), sum(carried))
    server = {
        "start": start,
        "intervals": [{"sum": part(i * interval, interval, n)} for i, n in enumerate(carried)],
        "end": {"sum_received": whole},
    }
    end = {"sum_sent": {**whole, "retransmits": 0}, "sender_tcp_congestion": "cubic"}
    return {"start": start, "end": end, "server_output_json": server}


def _sockperf(m: Measurement, values: Sequence[float]) -> tuple[str, dict[str, Any]]:
    ordered = sorted(values)
    middle, most = statistics.median(values), ordered[-1] + 1
    low, high = ordered[len(values) // 2], ordered[(len(values) - 1) // 2]
    text = "\n".join([
        "[ 0] IP = 192.0.2.2       PORT = 11999 # TCP",
        f"sockperf: [Total Run] RunTime={float(str(m.params['seconds'])):.3f} sec; Warm up time=400 msec",
        "sockperf: # dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0",
        f"sockperf: Summary: Round trip is {middle:.3f} usec",
        "sockperf: Total 2000 observations; each percentile contains 20.00 observations",
        f"sockperf: ---> <MAX> observation = {most:.3f}",
        f"sockperf: ---> percentile 99.000 = {most:.3f}",
        f"sockperf: ---> percentile 75.000 = {max(low, high):.3f}",
        f"sockperf: ---> percentile 50.000 = {middle:.3f}",
        f"sockperf: ---> percentile 25.000 = {min(low, high):.3f}",
        f"sockperf: ---> <MIN> observation = {ordered[0] - 0.1:.3f}",
        "",
    ])  # fmt: skip
    around = {"p50_around_us": [middle, middle], "p99_around_us": [most, most]}
    return text, {"observations": 2000, "block_medians_us": list(values), "p50_us": middle, "p99_us": most, **around}


def _training(m: Measurement, values: Sequence[float]) -> dict[str, Any]:
    ranks, batch, hosts = int(str(m.params["ranks"])), int(str(m.params["batch"])), list(names(m, "hosts"))
    return {
        "world_size": ranks, "hosts": hosts * int(str(m.params["ranks_per_node"])), "batch": batch,
        "warmup": m.params["warmup"], "steps": m.params["steps"], "loss_finite": True, "ranks_agree": True,
        "images_per_s": list(values), "step_s": [batch * ranks / value for value in values], "loss_first": 2.3,
        "loss_last": 0.2, "parameters": 109698, "threads": 1, "python": "3.11.2", "torch": "1.13.1",
        "horovod": "0.28.1", "allreduce_s": [0.2 * batch * ranks / value for value in values], "allreduce_kernels": [],
    }  # fmt: skip


def _told(m: Measurement) -> str:
    """What MPI says in its log of a job across nodes; see tests/data/carriers."""
    if len(names(m, "hosts")) < 2:
        return ""
    if m.params["transport"] == "tcp":
        return "[gpu1:7] mca: bml: Using tcp btl for send to [[1,1],2] on node gpu2\n"
    return "[1.1] [gpu1:7:0]  ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag(rc_mlx5/mlx5_0:1)\n"


def keep(run_dir: Path, m: Measurement, outputs: dict[str, str]) -> tuple[RawLog, ...]:
    """Raw logs of a measurement's first node: end of the name -> content."""
    logs = []
    for suffix, text in outputs.items():
        path = run_dir / "raw" / m.id / f"{m.nodes[0]}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        logs.append(RawLog(path=path.relative_to(run_dir).as_posix(), sha256=digest))
    return tuple(logs)


def measured(run_dir: Path, m: Measurement, like: Result, facts: dict[str, Any] | None = None) -> Result:
    """`like` with the raw logs that give its samples or its facts (`facts` if they are given), as read from them."""
    metric = METRICS.get(m.kind)
    printed = facts or (like.facts if isinstance(like.facts, dict) else like.facts.model_dump())
    doc = document(m, [s.value for s in like.samples if s.metric == metric], printed, like)
    return reported(run_dir, m, like, doc)


def reported(run_dir: Path, m: Measurement, like: Result, doc: ProbeDoc) -> Result:
    """The result of a probe's report, at the time of `like`, with the raw logs from which it can be read again."""
    p = like.provenance
    at = {"started": p.started, "ended": p.ended, "duration_s": p.duration_s}
    samples, read = parse(m.kind, cast(ProbeDoc, {**doc, **at}), m.params)
    rest = {key: value for key, value in {**doc, **at}.items() if key not in ("stdout", "stderr")}
    rest[DENIED] = [d.model_dump() for d in like.denied]
    outputs = {"out": doc["stdout"], "err": doc["stderr"], REPORT: json.dumps(rest)}
    number = f"{like.attempt}." if like.attempt > 1 else ""
    logs = keep(run_dir, m, {f"{number}{name}": text for name, text in outputs.items()})
    tool = {"tool": doc["tool"], "tool_version": doc["tool_version"], "command": tuple(doc["command"])}
    provenance = p.model_copy(update={"raw": logs, **tool})
    return like.model_copy(update={"samples": tuple(samples), "facts": read, "provenance": provenance})


def judged_as_it_stands(run_dir: Path) -> VerdictDoc:
    """The judge alone on results that were edited for a test: whether they follow from the raw logs is not asked."""
    info = load_json(run_dir / "run.json", RunInfo)
    return judge(
        RunData(
            info,
            load_json(run_dir / "topology.json", Topology),
            load_json(run_dir / "plan.json", Plan),
            load_fabric(str(run_dir / "fabric.yml")),
            load_criteria(run_dir / "criteria"),
            read_results(run_dir / "results.jsonl", info.run)[0],
        )
    )
