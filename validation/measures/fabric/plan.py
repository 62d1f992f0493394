"""Transport: TCP bandwidth and latency of pairs of fabric ports, their RDMA, loads of switches, GPUs' copies."""

from __future__ import annotations

from validation.kinds import title
from validation.measures.fabric import switch_plan
from validation.measures.gpu.kinds import TOOL_LIMIT_S, copies_asked, gpus_of, load_asked, tools_asked
from validation.measures.rdma import plan as rdma_plan
from validation.model import Endpoint, Measurement, Param
from validation.plan.request import PORTS, Part, Request, Suite, on_one_node, pair_id, pair_rounds

BANDWIDTH_SECONDS, LAB_BANDWIDTH_SECONDS = 3, 2
OMIT_SECONDS = 1  # slow start; iperf3 takes whole seconds
# A busy node loses an interval or two, and eight are judged.
INTERVAL_SECONDS, LAB_INTERVAL_SECONDS = 0.25, 0.2
LATENCY_SECONDS = 1
LAB_OBSERVATIONS = 200  # 10 for each of the probe's 20 blocks; a host at 40 % left 648 in a second
EMULATED_OBSERVATIONS = 40  # 2 for each of the probe's 20 blocks; a busy host left 85 in a second
SOCKPERF_OWN_S = 2.3  # sockperf sleeps about 2.2 s around every run; measured with 3.7
BANDWIDTH_PORT = 5201  # iperf3's own
LATENCY_PORT = 11111  # sockperf's own


def plan(request: Request) -> Part:
    """All bandwidth rounds, then all latency rounds: a loaded link would spoil the latency of its neighbours."""
    part = Part()
    link = request.topology.lab_link
    streams = 1 if link is not None and link.rate_gbps <= 10 else request.fabric.tcp_streams
    in_lab = link is not None and not link.emulated
    seconds = request.options.get("seconds", LAB_BANDWIDTH_SECONDS if in_lab else BANDWIDTH_SECONDS)
    latency_seconds = request.options.get("latency_seconds", LATENCY_SECONDS)
    bandwidth: dict[str, Param] = {
        "seconds": seconds,
        "omit_s": OMIT_SECONDS,
        "interval_s": LAB_INTERVAL_SECONDS if in_lab else INTERVAL_SECONDS,
        "streams": streams,
        "port": BANDWIDTH_PORT,
    }
    latency: dict[str, Param] = {"seconds": latency_seconds, "port": LATENCY_PORT}
    if link is not None:  # round trips of milliseconds, as on a busy host, leave less than the usual 1000
        latency["min_observations"] = EMULATED_OBSERVATIONS if link.emulated else LAB_OBSERVATIONS
    for kind, params, estimated in (
        ("tcp-bandwidth", bandwidth, seconds + OMIT_SECONDS + 0.2),
        ("tcp-latency", latency, latency_seconds + SOCKPERF_OWN_S),
    ):
        criteria = request.serving(kind)
        if not criteria:
            continue

        def measurement(
            source: Endpoint,
            destination: Endpoint,
            kind: str = kind,
            params: dict[str, Param] = params,
            estimated: float = estimated,
            criteria: tuple[str, ...] = criteria,
        ) -> Measurement:
            return Measurement(
                id=pair_id(kind, source, destination),
                suite="transport",
                kind=kind,
                nodes=(source.node, destination.node),
                endpoints=(source, destination),
                params=params,
                criteria=criteria,
                estimated_s=estimated,
                timeout_s=4 * estimated + 30,
            )

        part.rounds += pair_rounds(request.topology, request.fabric, PORTS, measurement, part)
    rdma_plan.plan(request, part)
    if part.rounds:
        switch_plan.plan(request, part)
    pairs = any(criterion.suite == "transport" and criterion.scope == "pair" for criterion in request.criteria)
    if part.rounds or not pairs or sum(bool(node.ports) for node in request.topology.nodes) < 2:
        _gpu_copies(request, part)  # else the inventory has a mistake, which these would hide
        _after_copies(request, part)
    return part


def _gpu_copies(request: Request, part: Part) -> None:
    """Each node with GPUs by itself, all at the same time; virtual nodes share a host, so there one after another."""
    criteria, topology = request.serving("gpu-copies"), request.topology
    found = []
    for node in topology.nodes:
        gpus = gpus_of(node, topology)
        if gpus is None or not criteria:
            continue
        if topology.here is not None and topology.here.gpu_trouble:
            part.leave_out(f"copies of GPUs: {topology.here.gpu_trouble}", *criteria)
            continue
        emulated = topology.here is not None and topology.here.emulated
        params, estimated = copies_asked(node, gpus, bool(request.options.get("quick")), emulated)
        if request.options.get("anyway"):
            params = {**params, "anyway": True}
        found.append(
            on_one_node(
                node,
                "transport",
                "gpu-copies",
                criteria,
                estimated_s=estimated,
                timeout_s=round(5 * estimated + 60, 1),
                params=params,
            )
        )
    part.rounds += [[m] for m in found] if topology.virtual else [found] if found else []
    part.excused = part.excused or topology.here is not None


def _after_copies(request: Request, part: Part) -> None:
    """What follows our copies on the same nodes, where the run is not to be quick: all GPUs at once, NVIDIA's tools."""
    topology, quick = request.topology, bool(request.options.get("quick"))
    nodes = [topology.node(m.nodes[0]) for one in part.rounds if one[0].kind == "gpu-copies" for m in one]
    anyway: dict[str, Param] = {"anyway": True} if request.options.get("anyway") else {}
    for kind in ("gpu-load", "gpu-tools"):
        criteria, found = request.serving(kind), []
        if quick and nodes and criteria:
            part.leave_out(f"{title(kind)}: only where the run is not to be quick", *criteria)
        for node in nodes if criteria and not quick else ():
            gpus = gpus_of(node, topology) or 0
            emulated = topology.here is not None and topology.here.emulated
            params, estimated = (load_asked if kind == "gpu-load" else tools_asked)(node, gpus, emulated)
            found.append(
                on_one_node(
                    node,
                    "transport",
                    kind,
                    criteria,
                    estimated_s=estimated,
                    timeout_s=round(5 * estimated + 60, 1) if kind == "gpu-load" else 2 * TOOL_LIMIT_S + 60,
                    params={**params, **anyway},
                )
            )
        part.rounds += [[m] for m in found] if topology.virtual else [found] if found else []


SUITE = Suite(
    "transport",
    30,
    plan,
    numbers={
        "seconds": "measured seconds of each TCP bandwidth measurement",
        "latency_seconds": "seconds of each TCP latency measurement",
    },
)
