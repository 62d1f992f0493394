"""Probes: programs that run ON a node, take one measurement each and print one JSON document.

They need Python 3.9 and its standard library, nothing else, so that a node carries no more than it must. A probe
wraps the field's standard tool, checks that the tool really did what was asked (several of them exit 0 whatever
happened) and hands its untouched output to the parsers, which run on the controller.

    python -m validation.probes NAME PARAMETERS

What the parsers find in the `stdout` and `facts` of each kind:

facts            stdout: the facts again as JSON. facts: as validation.facts.NodeFacts.
path-mtu         stdout: ping's output, one command after the other, each headed by "$ ping ...".
                 facts: path_mtu_bytes (int, found by probing; IP packet size), expected_bytes, source, destination.
tcp-bandwidth    stdout: the client's JSON of iperf3 with --get-server-output, so that `server_output_json` carries
                 the receiver's intervals. facts: source, destination, server_tool_version.
tcp-latency      stdout: sockperf's summary. facts: observations (int), block_medians_us (list of float, 20:
                 the observations in order of time, cut into blocks of equal count), p50_us, p99_us (full round trip),
                 p50_around_us, p99_around_us (percentiles half a percent below and above), source, destination.
ib-fabric        stdout: sminfo, ibnetdiscover --ports and ibqueryerrors, each headed by "$ sminfo ...".
                 facts: interfaces and devices (`mlx5_0/1`) of the ports that were asked through.
rdma-ports       stdout: ibv_devinfo's output, then the facts again as JSON. facts: as validation.facts.RdmaPortsFacts.
rdma-*           stdout: the tool's own (ibv_rc_pingpong, perftest, ucx_perftest). facts: device, rdma_port, gid_index,
                 gid, roce_version, link_layer, port_rate, memlock, counters (by how much each moved that did, by
                 "hw_counters/NAME"), sent_packets, received_packets, sent_bytes, received_bytes (as far as the device
                 counts them), fault (a code, where it failed), json (perftest's report, where it writes one),
                 active_mtu and cm_mode (first light); `peer`, added by the controller, holds the same of the serving
                 end.
remoting-copy    stdout: copybench's report. facts: servers, gpus (int), emulated, engine, engine_release.
remoting-isolate facts: attempts (each with name, breach and words, in their order), gone_s, uuid, total_bytes, server,
                 elsewhere, emulated, engine, engine_release. stdout: the same as JSON.
remoting-fraction facts: parts, uuids, total_bytes, taken_bytes, codes (CUresult at which filling ended), beyond (what
                 became of one part too many), memory_mib, server, emulated, engine, engine_release. stdout: the same.
utilisation      facts: leased_ratio, gpu_utilization_ratio, gpu_memory_ratio (lists of float, oldest first), each with
                 its _from_s (seconds since the oldest), days, step_s, emulated. stdout: the same as JSON.
training-short   stdout: mpirun's output, in it one line of JSON from rank 0. facts: that line's fields: world_size,
                 hosts (one per rank), batch, warmup, steps, step_s (list of float, slowest rank's time of each
                 step), images_per_s (list of float, whole job, one per measured step), losses (list of float, mean
                 of the ranks, one per step with warm-up), loss_first, loss_last, loss_finite, parameters, threads,
                 python, torch, horovod, and mpi (mpirun's version).
"""

from __future__ import annotations

from typing import Any, TypedDict


class ProbeDoc(TypedDict):
    """What a probe prints. Times are ISO 8601 in UTC; `error` None means that the tool did what was asked."""

    kind: str
    tool: str
    tool_version: str
    command: list[str]
    returncode: int
    stdout: str
    stderr: str
    facts: dict[str, Any]
    started: str
    ended: str
    duration_s: float
    error: str | None
