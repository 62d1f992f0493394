"""The serving end of a two-ended measurement.

Prints {"ready": true} once the tool listens, found by looking at the kernel's socket table: connecting to it would
use up the only session that a one-shot server grants. Ends with its tool, or when the supervisor is told to.
"""

from __future__ import annotations

import ipaddress
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.measures.fabric import soak_fabric_probe, switch_load_probe
from validation.measures.rdma import rdma_serving_probe
from validation.probes import ProbeDoc, asked, rdma
from validation.probes.tool import Ran, Stopped, document, finish_tool, group, start_tool, stopped

LISTEN_TIMEOUT_S = 10.0
MANY = frozenset({"incast", "all-to-all"})  # kinds in which a receiver has several senders
_LISTEN = "0A"  # TCP_LISTEN in the kernel's tables


@dataclass
class Asked:
    """What is asked of this probe."""

    tool: str  # iperf3, sockperf, or the kind of a measurement whose ends are alike
    asked: dict[str, Any]  # of iperf3 and sockperf the fields of `Tcp`, else of the measurement's own probe at this end


@dataclass
class Tcp:
    """What is asked of iperf3 and sockperf."""

    bind: str  # this node's fabric address
    port: int
    interval_s: float = 1.0  # iperf3: reporting interval


def command_for(tool: str, args: Tcp) -> list[str]:
    """The server's command line."""
    if tool == "iperf3":
        # -J makes the client's --get-server-output carry the receiver's intervals as data.
        return ["iperf3", "-s", "-1", "-J", "-B", args.bind, "-p", str(args.port), "-i", f"{args.interval_s:g}"]
    # A session that was cut off leaves its address in TIME_WAIT on this side; iperf3 reuses it by itself.
    return ["sockperf", "server", "--tcp", "--uc-reuseaddr", "-i", args.bind, "-p", str(args.port)]


def _kernel_address(address: str, port: int) -> str:
    """An IPv4 or IPv6 address and port as /proc/net/tcp{,6} writes them: 32-bit words in the machine's byte order."""
    packed = ipaddress.ip_address(address).packed
    words = [packed[i : i + 4] for i in range(0, len(packed), 4)]
    ordered = [word[::-1] if sys.byteorder == "little" else word for word in words]
    return "".join(word.hex().upper() for word in ordered) + f":{port:04X}"


def _sockets(pid: int) -> set[str]:
    """Inodes of the sockets that a process holds open."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            target = os.readlink(link)  # noqa: PTH115  # Path.readlink would try to follow socket:[n]
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    return inodes


def listens(pid: int, address: str | None, port: int) -> bool:
    """True when process `pid` itself listens on `address`:`port`, or on any address where `address` is None."""
    local = f":{port:04X}" if address is None else _kernel_address(address, port)
    tables = ["tcp", "tcp6"] if address is None else ["tcp6" if ":" in address else "tcp"]
    inodes: set[str] = set()
    for table in tables:
        try:
            rows = [line.split() for line in Path("/proc/net", table).read_text().splitlines()[1:]]
        except OSError:
            continue
        inodes |= {row[9] for row in rows if row[1].endswith(local) and row[3] == _LISTEN}
    return bool(inodes) and bool(inodes & _sockets(pid))


def soak(args: soak_fabric_probe.Asked) -> ProbeDoc:
    """Serve session after session until this end is told to stop; ready as soon as the first server listens."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts = {"bind": args.address, "port": args.port}
        try:
            command = soak_fabric_probe.server_command(args)
        except rdma.Fault as fault:
            return Ran(["soak-fabric"], 0, "", ""), facts, str(fault)
        bound = args.address if args.transport == "tcp" else None
        ready = False
        while not stopped():
            try:
                process = start_tool(command)
            except FileNotFoundError:
                return Ran(command, 127, "", f"{command[0]} is not installed on this node"), facts, None
            until = time.monotonic() + LISTEN_TIMEOUT_S
            while not ready and process.poll() is None and time.monotonic() < until:
                if listens(process.pid, bound, args.port):
                    print(json.dumps({"ready": True}), flush=True)
                    ready = True
                time.sleep(0.02)
            if not ready:
                process.kill()
                said = finish_tool(command, process)
                return said, facts, f"{command[0]} does not listen on {args.address}:{args.port}"
            if finish_tool(command, process).returncode:
                time.sleep(0.2)  # a server that cannot start again must not keep a processor
        raise Stopped

    return document("serve", "soak-fabric", measure, lambda _: "")


def probe(what: Asked) -> ProbeDoc:
    """Serve one measurement."""
    tool = what.tool
    if tool == "soak-fabric":
        return soak(asked.make(soak_fabric_probe.Asked, what.asked))
    if tool in MANY:
        return switch_load_probe.serve("serve", asked.make(switch_load_probe.Asked, what.asked), listens)
    if tool in rdma_serving_probe.ENDS:
        end = asked.make(rdma_serving_probe.ENDS[tool], what.asked)
        return rdma.report("serve", tool, lambda: rdma_serving_probe.serve(tool, end, listens))
    args = asked.make(Tcp, what.asked)
    command = command_for(tool, args)

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts = {"bind": args.bind, "port": args.port}
        try:
            process = start_tool(command)
        except FileNotFoundError:
            return Ran(command, 127, "", f"{tool} is not installed on this node"), facts, None
        until = time.monotonic() + LISTEN_TIMEOUT_S
        while process.poll() is None and time.monotonic() < until:
            if listens(process.pid, args.bind, args.port):
                print(json.dumps({"ready": True}), flush=True)
                return finish_tool(command, process), facts, None
            time.sleep(0.01)
        if process.poll() is None:
            process.kill()
        ran = finish_tool(command, process)
        said = group(r"ERROR: (.+)", ran.stdout)  # sockperf exits with 0 even so
        return ran, facts, f"{tool} does not listen on {args.bind}:{args.port}" + (f": {said}" if said else "")

    def version(ran: Ran) -> str:
        return group(r'"version":\s*"iperf ([^"]+)"', ran.stdout) or group(r"version #(\S+)", ran.stdout)

    return document("serve", tool, measure, version)
