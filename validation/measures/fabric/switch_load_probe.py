"""Many ports send at the same time: what probes `incast` and `all-to-all` share, and the ends that serve them.

Each sender starts one tool for each of its receivers, all at once: iperf3 over TCP, ib_write_bw over RDMA. Each
receiver has one server for each of its senders. What a port's interface, driver and RDMA port count is read before and
after.

`stdout` of a sender: JSON with what was asked, each session (`peer`, `port`, `seconds` and `bytes` as the tool tells
them, over TCP those of the receiver, `retransmits` over TCP, `error`) and the counters `before` and `after`. `stdout`
of a receiver: the same with sessions of `peer`, `port`, `ended_s` (of its own clock) and `error`. The controller puts
all of them together.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from validation.base.counting import number_of
from validation.measures.fabric import soak_fabric_probe
from validation.measures.rdma import rdma_bandwidth_probe, rdma_perftest_probe
from validation.measures.tcp import tcp_bandwidth_probe
from validation.probes import ProbeDoc, rdma
from validation.probes.rdma_ports_qos import driver_counters
from validation.probes.rdma_ports_sysfs import SYSFS, read
from validation.probes.tool import Ran, Stopped, document, finish_tool, start_tool, stopped

STATISTICS = ("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped", "rx_missed_errors", "rx_fifo_errors")
LISTEN_TIMEOUT_S = 15.0
OVER_S = 60.0  # beyond its time, until a tool that does not end is killed
MESSAGE_BYTES = 1 << 20


@dataclass
class Asked:
    """What is asked of either end. `peers` and `ports` belong together: the other ends, and where each pair meets."""

    interface: str  # this node's fabric port
    address: str  # its address
    peers: list[str]
    ports: list[int]  # of a sender those at its peers, of a receiver its own
    seconds: int
    streams: int = 1  # TCP connections, or queue pairs, of each session
    transport: Literal["tcp", "roce", "ib", "pvrdma"] = "tcp"


def _tcp(args: Asked, peer: str, port: int) -> tcp_bandwidth_probe.Asked:
    return tcp_bandwidth_probe.Asked(
        args.address, peer, port, args.seconds, interval_s=args.seconds, streams=args.streams
    )


def _perftest(args: Asked, peer: str, port: int) -> rdma_bandwidth_probe.Asked:
    assert args.transport != "tcp"
    return rdma_bandwidth_probe.Asked(
        args.interface, args.address, peer, port, args.transport,
        op="write", size_bytes=MESSAGE_BYTES, seconds=args.seconds, qps=args.streams,
    )  # fmt: skip


def commands(args: Asked, serves: bool) -> list[list[str]]:
    """The tool of each session; rdma.Fault where there can be none."""
    ends = list(zip(args.peers, args.ports))  # Python 3.9 has no strict
    if args.transport == "tcp" and serves:
        every = [
            "-s",
            "-1",
            "-J",
            "-B",
            args.address,
            "-i",
            str(args.seconds),
        ]  # one interval: the whole is of interest
        return [["iperf3", *every, "-p", str(port)] for _, port in ends]
    if args.transport == "tcp":
        return [tcp_bandwidth_probe.command_for(_tcp(args, *end)) for end in ends]
    asked = [_perftest(args, *end) for end in ends]
    device = rdma_perftest_probe.look(asked[0])
    return [rdma_perftest_probe.command_for(one, device, None if serves else one.peer) for one in asked]


def counters(interface: str, sysfs: Path = SYSFS) -> dict[str, int]:
    """What the interface, its driver (pauses, discards) and its RDMA port count."""
    found = {**soak_fabric_probe.counters(interface, sysfs), **driver_counters(interface)}
    for name in STATISTICS:
        text = read(sysfs / "class/net" / interface / "statistics" / name)
        if text.isdigit():
            found[name] = int(text)
    return found


def _finish(started: Sequence[tuple[list[str], subprocess.Popen[bytes]]], limit_s: float) -> list[tuple[Ran, float]]:
    """How each tool ended and when, by the monotonic clock. Read at the same time: no pipe may run full."""
    found: list[tuple[Ran, float] | None] = [None] * len(started)

    def wait(at: int) -> None:
        ran = finish_tool(*started[at], timeout_s=limit_s)
        found[at] = ran, time.monotonic()

    threads = [threading.Thread(target=wait, args=(at,), daemon=True) for at in range(len(started))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [one for one in found if one is not None]


def _start(all_: Sequence[list[str]]) -> list[tuple[list[str], subprocess.Popen[bytes]]]:
    """Start all, or none: where one cannot be started, those before it are killed. FileNotFoundError, Stopped."""
    started: list[tuple[list[str], subprocess.Popen[bytes]]] = []
    try:
        for command in all_:
            started.append((command, start_tool(command)))
    except BaseException:
        for _, process in started:
            process.kill()
        raise
    return started


def _session(args: Asked, at: int, ran: Ran) -> dict[str, Any]:
    """A sender's session, as its tool tells it."""
    peer, port = args.peers[at], args.ports[at]
    found: dict[str, Any] = {"peer": peer, "port": port, "seconds": 0.0, "bytes": 0, "retransmits": None, "error": ""}
    if args.transport == "tcp":
        fault = tcp_bandwidth_probe.wrong(_tcp(args, peer, port), ran.stdout) if ran.returncode == 0 else ran.failure
        if fault:
            return {**found, "error": fault}
        end = tcp_bandwidth_probe.iperf3_report(ran.stdout)["end"]
        received, resent = end["sum_received"], end["sum_sent"].get("retransmits")
        return {**found, "seconds": received["seconds"], "bytes": received["bytes"], "retransmits": resent}
    asked = soak_fabric_probe.Asked(args.interface, args.address, peer, port, args.seconds, args.seconds, args.streams,
                              args.transport)  # fmt: skip
    seconds, moved, error = soak_fabric_probe.carried(asked, ran)
    return {**found, "seconds": seconds, "bytes": moved, "error": error}


def _document(kind: str, args: Asked, work: Callable[[], tuple[list[list[str]], list[dict[str, Any]]]]) -> ProbeDoc:
    """`work`: the commands and the sessions that came of them."""
    tool = "iperf3" if args.transport == "tcp" else "perftest"

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        before = counters(args.interface)
        try:
            made, sessions = work()
        except rdma.Fault as fault:
            return Ran([tool], 0, "", ""), {"fault": fault.code}, str(fault)
        except FileNotFoundError as fault:
            return Ran([str(fault.filename)], 127, "", f"{fault.filename} is not installed on this node"), {}, None
        asked = {"address": args.address, "seconds": args.seconds, "streams": args.streams, "transport": args.transport}
        report = {**asked, "sessions": sessions, "before": before, "after": counters(args.interface)}
        ran = Ran(made[0], 0, json.dumps(report), "")
        bad = [one for one in sessions if one["error"]]
        words = (
            f"{len(bad)} of {number_of(len(sessions), 'session')} failed, with {bad[0]['peer']}: {bad[0]['error']}"
            if bad
            else None
        )
        return ran, {"sessions": len(sessions)}, words

    return document(kind, tool, measure, lambda _: "")


def send(kind: str, args: Asked) -> ProbeDoc:
    """All sessions of a sender at once."""

    def work() -> tuple[list[list[str]], list[dict[str, Any]]]:
        made = commands(args, False)
        ended = _finish(_start(made), args.seconds + OVER_S)
        if stopped():
            raise Stopped
        return made, [_session(args, at, ran) for at, (ran, _) in enumerate(ended)]

    return _document(kind, args, work)


def serve(kind: str, args: Asked, listens: Callable[[int, str | None, int], bool]) -> ProbeDoc:
    """One server for each sender; says that it is ready when all of them listen, and ends with the last."""
    begin = time.monotonic()

    def work() -> tuple[list[list[str]], list[dict[str, Any]]]:
        made = commands(args, True)
        started = _start(made)
        bound = args.address if args.transport == "tcp" else None
        waiting, until = dict(enumerate(started)), begin + LISTEN_TIMEOUT_S
        while waiting and time.monotonic() < until:
            for at in [at for at, (_, one) in waiting.items() if listens(one.pid, bound, args.ports[at])]:
                del waiting[at]
            if any(one.poll() is not None for _, one in waiting.values()):
                break
            time.sleep(0.02)
        if waiting:
            for _, one in started:
                one.kill()
        else:
            print(json.dumps({"ready": True}), flush=True)
        ended = _finish(started, args.seconds + 2 * OVER_S)
        if stopped():
            raise Stopped
        sessions = []
        for at, (ran, moment) in enumerate(ended):
            deaf = f"{made[at][0]} does not listen on {args.address}:{args.ports[at]}" if at in waiting else ""
            found = {"peer": args.peers[at], "port": args.ports[at], "ended_s": round(moment - begin, 3)}
            sessions.append({**found, "error": deaf or ran.failure or ""})
        # a server that was killed for another's sake comes after the one that is to blame
        return made, sorted(
            sessions, key=lambda one: args.ports.index(one["port"]) not in waiting
        ) if waiting else sessions

    return _document(kind, args, work)
