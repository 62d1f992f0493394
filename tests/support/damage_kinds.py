"""Runs to be damaged: recorded outputs through the command line, and a measurement of nearly every kind.

The second has remoting, compute, operations and InfiniBand, from documents that are recorded or made here.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.support.asbuilt_documents import built, checked, converged
from tests.support.ib_documents import document as ib_document
from tests.support.ib_documents import healthy_port
from tests.support.raw_case import measured, reported
from tests.support.rdma_case import port_facts
from tests.support.remote_move_documents import move_document
from tests.support.remote_neighbours_documents import BESIDE
from tests.support.remote_pooled_documents import pooled_document
from tests.support.remote_shares_documents import shares_document
from tests.support.remote_train_documents import infer_document, train_document
from tests.support.remote_unchanged_documents import unchanged_document
from tests.support.remote_worlds_documents import MADE
from tests.support.remoting_documents import copybench, cut, isolated
from tests.support.remoting_documents import doc as remoting_doc
from tests.support.report_fixture import RUN
from tests.support.site import (
    FACTS,
    REAL_FACTS,
    hardware,
    healthy,
    plan_of,
    plugged,
    provenance,
    result,
    with_value,
    write_run,
)
from tests.support.tool_documents import doc as tool_doc
from tests.support.warm import COMMAND_PATH, command
from validation.measures.compute.exact import reference
from validation.model import Measurement, Platform, Result, Topology

WALK = Path(__file__).parents[1] / "data/walk"
RECORDED = Path(__file__).parents[1] / "data/kinds"
KEPT = ("run.json", "topology.json", "plan.json", "inventory.json", "built.json", "results.jsonl")
MEMORY_GB_S = 200.0
SUITES = ("preflight", "as-built", "compute", "remoting", "operations")


def walked_run(run_dir: Path) -> Path:
    """The run of tests/data/walk, accepted by profile `network` with a waiver of its one fault. Its day is today."""
    desk = run_dir.parent / f"{run_dir.name}-desk"
    shutil.copytree(WALK / "three-nodes", desk / "site")
    today = datetime.datetime.now(datetime.timezone.utc).date()
    waiver = {
        "criterion": "pf.stack", "subject": "client1", "who": "C. Customer", "when": today.isoformat(),
        "why": "updated at the next maintenance", "expires": (today + datetime.timedelta(days=60)).isoformat(),
    }  # fmt: skip
    (desk / "w.yml").write_text(json.dumps({"waivers": [waiver]}))
    chosen = ("--fabric", str(WALK / "tcp1.yml"), "--profile", "network", "--waivers", "w.yml")
    environment = {**os.environ, "PYTHONPATH": COMMAND_PATH}
    done = command(desk, ("validate", *chosen, "-i", "site"), environment, WALK / "play.py")
    assert done.returncode == 0, done.stderr
    (run,) = (desk / "runs").iterdir()
    run_dir.mkdir()
    for path in run.iterdir():
        if path.is_dir() and path.name in ("raw", "criteria", "reference"):
            shutil.copytree(path, run_dir / path.name)
        elif path.name in KEPT or path.suffix == ".yml":
            shutil.copy(path, run_dir / path.name)
    shutil.rmtree(desk)
    return run_dir


def site() -> Topology:
    """A client that is the head as well, and two GPU servers, on InfiniBand."""
    found = hardware(("client1", "gpu1", "gpu2"), platform=Platform(sockets=2, memory_channels=6, memory_mts=2666))
    head = found.nodes[0].model_copy(update={"groups": ("heads", "clients")})
    return found.model_copy(update={"nodes": (head, *found.nodes[1:])})


def kinds_run(run_dir: Path) -> Path:
    """What was planned was measured: nodes, InfiniBand, memory, remoting, the pool's use."""
    topo = site()
    plan = plan_of(topo, SUITES, "ib-edr", RUN.replace("tcp10", "ib-edr"))
    found = []
    for index, m in enumerate(plan.measurements):
        hour, minute = divmod(16 + index, 60)
        times = {key: f"2026-11-21T{10 + hour}:{minute:02d}:0{s}Z" for key, s in (("started", 0), ("ended", 4))}
        devices = tuple(str(e) for e in m.endpoints)
        like = result(m, run=plan.run, provenance=provenance(m.nodes, devices=devices, **times))
        found.append(_measured(run_dir, topo, m, like))
    return write_run(run_dir, topo, plan, found, judged=False)


def _measured(run_dir: Path, topo: Topology, m: Measurement, like: Result) -> Result:
    if m.kind == "facts":
        own = [{"interface": port.interface, "address": port.address} for port in topo.node(m.nodes[0]).ports]
        return measured(run_dir, m, like, {**FACTS, **REAL_FACTS, "state": {**FACTS["state"], "addresses": own}})
    if m.kind == "rdma-ports":
        ports = port_facts(topo, m, lambda facts, _: healthy_port(facts, 1 + topo.nodes.index(topo.node(m.nodes[0]))))
        return measured(run_dir, m, like, ports)
    if m.kind in ("path-mtu", "tcp-bandwidth", "tcp-latency"):
        made = with_value(m, 4092) if m.kind == "path-mtu" else healthy(m, link_gbps=80)
        return measured(run_dir, m, like.model_copy(update={"samples": made.samples}))
    return reported(run_dir, m, like, _document(m))


def _document(m: Measurement) -> Any:
    p: dict[str, Any] = dict(m.params)
    if m.kind == "ib-fabric":
        return ib_document()
    if m.kind == "cabling":
        ends = {port.interface: ("leaf1", "Eth1/1") for port in site().node(m.nodes[0]).ports}
        found = plugged(ends)
        return tool_doc("cabling", json.dumps(found), found)
    if m.kind == "as-built":
        return checked(m.nodes[0], site().node(m.nodes[0]).groups)
    if m.kind == "converged":
        return converged(map(built, m.nodes))
    if m.kind == "memory-bandwidth":
        return _memory(p)
    if m.kind == "exact-compute":
        turns = [{"cpu": cpu, "turns": 50, "digests": {reference(): 50}} for cpu in (0, 1)]
        report = json.dumps({"cpus": 2, "seconds": p["seconds"], "processors": turns})
        return tool_doc(m.kind, report, {"cpus": 2, "turns": 100}, tool="probes")
    if m.kind == "remoting-copy":
        report = copybench(sync_latency_us=[[50.0] * p["latency_count"]] * 2)
        for pair in report["pairs"]:
            pair.update(
                bytes=p["size_bytes"], bandwidth_gb_s=[1.0] * p["repeat"], latency_us=[80.0] * p["latency_count"]
            )
        return remoting_doc(m.kind, {"servers": list(p["servers"]), "gpus": 2}, json.dumps(report))
    if m.kind == "remoting-isolate":
        made = isolated()
        text = json.dumps(made["facts"]).replace("from gpu2", f"from {p['elsewhere']}")
        return {**made, "facts": {**json.loads(text), "server": p["server"], "elsewhere": p["elsewhere"]}}
    if m.kind == "remoting-fraction":
        parts, memory_mib = list(p["parts"]), 256
        sizes = [int(Fraction(part) * memory_mib) << 20 for part in parts]
        more = {"uuids": ["GPU-0"] * len(parts), "codes": [2] * len(parts), "memory_mib": memory_mib}
        return cut(server=p["server"], parts=parts, total_bytes=sizes, taken_bytes=sizes, **more)
    if m.kind == "remoting-train":
        return train_document(p)
    if m.kind == "remoting-infer":
        return infer_document(p)
    if m.kind == "remoting-shares":
        return shares_document(p)
    if m.kind in (*MADE, *BESIDE):
        return {**MADE, **BESIDE}[m.kind](p)
    if m.kind == "remoting-unchanged":
        return unchanged_document(p)
    if m.kind == "remoting-move":
        return move_document(p)
    if m.kind == "remoting-pooled":
        return pooled_document(p)
    if m.kind == "utilisation":
        return tool_doc(m.kind, facts={
            "leased_ratio": [0.5, 0.25, 1.0], "gpu_utilization_ratio": [0.1, 0.2, 0.3], "gpu_memory_ratio": [],
            "leased_ratio_from_s": 45, "days": p["days"], "step_s": 15, "emulated": False})  # fmt: skip
    recorded = json.loads((RECORDED / f"{m.kind}.json").read_text())
    asked = json.loads(json.dumps(p))  # as a plan is written: its lists are tuples here
    assert recorded["params"] == asked, f"{m.kind}: the recording has {recorded['params']}, and the plan asks for {p}"
    return recorded["document"]


def _memory(p: dict[str, Any]) -> Any:
    """Two processors that carry the same in each window."""
    carried = int(MEMORY_GB_S * 1e9 * p["window_s"] / 2)
    window = {
        "late_s": 0.0,
        "seconds": p["window_s"],
        "end_s": p["window_s"],
        "bytes": carried,
        "gb_s": MEMORY_GB_S / 2,
    }
    windows = [{"window": number, **window} for number in range(p["repeats"])]
    copies = [{"cpu": cpu, "verified": True, "windows": windows} for cpu in (0, 1)]
    sizes = {"block_bytes": 16 << 20, "cpus": 2, "array_bytes": 256 << 20, "cache_bytes": 32 << 20}
    stdout = json.dumps({**sizes, "operations": ["copy"], "copy": copies})
    return tool_doc("memory-bandwidth", stdout, sizes, tool="probes")
