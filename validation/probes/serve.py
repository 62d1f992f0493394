"""The serving end of a two-ended measurement.

Prints {"ready": true} once the tool listens, found by looking at the kernel's socket table: connecting to it would
use up the only session that a one-shot server grants. Ends with its tool, or when the supervisor is told to.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from validation.probes import ProbeDoc, rdma, rdma_serve
from validation.probes.tool import Ran, document, finish_tool, group, start_tool

LISTEN_TIMEOUT_S = 10.0
_LISTEN = "0A"  # TCP_LISTEN in the kernel's tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this probe."""
    parser.add_argument("tool", choices=["iperf3", "sockperf", *rdma_serve.TOOLS])
    parser.add_argument("--bind", required=True, help="this node's fabric address")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--interval-s", type=float, default=1.0, help="iperf3: reporting interval")
    rdma_serve.add_arguments(parser)


def command_for(args: argparse.Namespace) -> list[str]:
    """The server's command line."""
    if args.tool == "iperf3":
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


def probe(args: argparse.Namespace) -> ProbeDoc:
    """Serve one measurement."""
    if args.tool in rdma_serve.TOOLS:
        return rdma.report("serve", args.tool, lambda: rdma_serve.serve(args, listens))
    command = command_for(args)

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts = {"bind": args.bind, "port": args.port}
        try:
            process = start_tool(command)
        except FileNotFoundError:
            return Ran(command, 127, "", f"{args.tool} is not installed on this node"), facts, None
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
        return ran, facts, f"{args.tool} does not listen on {args.bind}:{args.port}" + (f": {said}" if said else "")

    def version(ran: Ran) -> str:
        return group(r'"version":\s*"iperf ([^"]+)"', ran.stdout) or group(r"version #(\S+)", ran.stdout)

    return document("serve", args.tool, measure, version)
