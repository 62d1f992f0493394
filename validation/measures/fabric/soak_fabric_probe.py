"""Traffic from one fabric port to another for a given time, session after session, while the nodes burn in.

Over TCP by iperf3, over RDMA by ib_write_bw; the other end is `serve`, which begins anew after each session. A session
that fails is told and the next one is tried, so that one lost link does not end the whole. A server that is not back
yet is asked again for a while. What this port's interface and its RDMA port count is read before and after.

`stdout`: JSON with each session (`at_s` from the begin, `seconds` and `bytes` as the tool tells them, `error`).
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from validation.base.counting import number_of
from validation.measures.rdma import rdma_bandwidth_probe, rdma_perftest_probe
from validation.measures.tcp import tcp_bandwidth_probe
from validation.probes import ProbeDoc, rdma, rdma_ports_sysfs
from validation.probes.tool import Ran, Stopped, document, run_tool, stopped

SYSFS = Path("/sys")
COUNTERS = ("carrier_changes", "statistics/rx_errors", "statistics/tx_errors", "statistics/rx_crc_errors")
BACK_S = 15.0  # how long a server may take to be back
PAUSE_S = 1.0
EARLY_S = 3.0  # a session that fails so early may have met no server
MESSAGE_BYTES = 1 << 20
ROW = re.compile(r"^ +(\d+) +(\d+) +[\d.]+ +([\d.]+)\b", re.MULTILINE)  # of ib_write_bw: the average is third


@dataclass
class Asked:
    """What is asked of either end."""

    interface: str  # this node's fabric port
    address: str  # its address
    peer: str  # the other end's
    port: int  # where the two tools find each other
    seconds: float  # in all
    session_s: int  # of each session
    streams: int = 4  # TCP connections, or queue pairs
    transport: Literal["tcp", "roce", "ib", "pvrdma"] = "tcp"


def perftest(args: Asked) -> rdma_bandwidth_probe.Asked:
    """What either end of ib_write_bw is asked for."""
    assert args.transport != "tcp"
    return rdma_bandwidth_probe.Asked(
        args.interface, args.address, args.peer, args.port, args.transport,
        op="write", size_bytes=MESSAGE_BYTES, seconds=args.session_s, qps=args.streams,
    )  # fmt: skip


def server_command(args: Asked) -> list[str]:
    """The serving end's; rdma.Fault where there can be none."""
    if args.transport == "tcp":
        return ["iperf3", "-s", "-J", "-B", args.address, "-p", str(args.port), "-i", str(args.session_s)]
    asked = perftest(args)
    return rdma_perftest_probe.command_for(asked, rdma_perftest_probe.look(asked), None)


def client_command(args: Asked) -> list[str]:
    """One session's; rdma.Fault where there can be none."""
    if args.transport == "tcp":
        return tcp_bandwidth_probe.command_for(tcp(args))
    asked = perftest(args)
    return rdma_perftest_probe.command_for(asked, rdma_perftest_probe.look(asked), args.peer)


def tcp(args: Asked) -> tcp_bandwidth_probe.Asked:
    """What iperf3's client is asked for."""
    return tcp_bandwidth_probe.Asked(
        args.address, args.peer, args.port, args.session_s, interval_s=args.session_s, streams=args.streams
    )


def carried(args: Asked, ran: Ran) -> tuple[float, int, str]:
    """Seconds and bytes of a session as its tool tells them, and what is wrong with it, in words."""
    if args.transport == "tcp":
        fault = tcp_bandwidth_probe.wrong(tcp(args), ran.stdout) if ran.returncode == 0 else ran.failure
        if fault:
            return 0.0, 0, fault
        received = tcp_bandwidth_probe.iperf3_report(ran.stdout)["end"]["sum_received"]
        return float(received["seconds"]), int(received["bytes"]), ""
    if known := rdma.explain(ran):
        return 0.0, 0, str(known)
    rows = ROW.findall(ran.stdout)
    if len(rows) != 1:
        return 0.0, 0, f"ib_write_bw printed {number_of(len(rows), 'figure')}, exactly one is expected"
    size, messages, gbps = int(rows[0][0]), int(rows[0][1]), float(rows[0][2])
    sent = size * messages
    return (sent * 8 / gbps / 1e9, sent, "") if gbps > 0 and sent else (0.0, 0, "ib_write_bw moved no data")


def session(args: Asked) -> tuple[float, int, str]:
    """One session, again where it seems to have met no server."""
    until = time.monotonic() + BACK_S
    while True:
        begin = time.monotonic()
        try:
            found = carried(args, run_tool(client_command(args), timeout_s=3 * args.session_s + 60))
        except rdma.Fault as fault:
            found = 0.0, 0, str(fault)
        if stopped():
            raise Stopped
        early = time.monotonic() - begin < EARLY_S
        if not found[2] or not early or time.monotonic() > until:
            return found
        time.sleep(PAUSE_S)


def counters(interface: str, sysfs: Path = SYSFS) -> dict[str, int]:
    """What the interface and its RDMA port count."""
    net, found = sysfs / "class/net" / interface, {}
    for name in COUNTERS:
        text = rdma_ports_sysfs.read(net / name)
        if text.isdigit():
            found[name.rpartition("/")[2]] = int(text)
    where = rdma_ports_sysfs.find(interface, sysfs)
    if where is not None:
        folder = sysfs / "class/infiniband" / where[0] / "ports" / str(where[1])
        found |= rdma_ports_sysfs.counters(folder)
    return found


def probe(args: Asked) -> ProbeDoc:
    """Session after session until the time is over."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        before, begin = counters(args.interface), time.monotonic()
        sessions: list[dict[str, Any]] = []
        while time.monotonic() - begin < args.seconds - args.session_s / 2 or not sessions:
            at = time.monotonic() - begin
            seconds, moved, error = session(args)
            sessions.append({"at_s": round(at, 3), "seconds": round(seconds, 6), "bytes": moved, "error": error})
        took = round(time.monotonic() - begin, 3)
        report = {"seconds": args.seconds, "session_s": args.session_s, "took_s": took, "sessions": sessions,
                  "before": before, "after": counters(args.interface)}  # fmt: skip
        ran = Ran(["soak-fabric"], 0, json.dumps(report), "")
        if all(one["error"] for one in sessions):
            return ran, {}, f"no session came to its end: {sessions[-1]['error']}"
        return ran, {"sessions": len(sessions)}, None

    return document("soak-fabric", "iperf3" if args.transport == "tcp" else "perftest", measure, lambda _: "")
