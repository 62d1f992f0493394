"""RDMA bandwidth and latency from this node to another one, with linux-rdma's perftest (ib_write_bw and its kin).

Both ends are given their device, port and GID. perftest prints text in every release; where its help has --out_json
that file is handed on as well, and the parser compares the two.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from validation.probes import ProbeDoc, rdma
from validation.probes.tool import run_tool

OPERATIONS = ("write", "read", "send")
HELP_TIMEOUT_S = 20.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this probe."""
    rdma.add_arguments(parser)
    add_test_arguments(parser)


def add_test_arguments(parser: argparse.ArgumentParser) -> None:
    """What is measured; the same on both ends."""
    parser.add_argument("--op", choices=OPERATIONS, default="write")
    parser.add_argument("--size-bytes", type=int, default=65536, help="of a message; 0: all powers of two to 8 MiB")
    parser.add_argument("--iterations", type=int, default=0, help="messages of each queue pair")
    parser.add_argument("--seconds", type=int, default=0, help="measured time, instead of --iterations")
    parser.add_argument("--qps", type=int, default=1, help="queue pairs")
    parser.add_argument("--bidirectional", type=int, choices=[0, 1], default=0)
    parser.add_argument("--qp-timeout", type=int, default=0, help="ACK timeout 4.096 us x 2^N; 0: the tool's own (14)")
    parser.add_argument("--cm", choices=["socket", "rdma_cm"], default="socket", help="how the ends find each other")
    parser.add_argument("--test", choices=["bw", "lat"], default="bw", help=argparse.SUPPRESS)


def tool_of(args: argparse.Namespace) -> str:
    """The program's name, as ib_write_bw."""
    return f"ib_{args.op}_{args.test}"


def command_for(args: argparse.Namespace, device: rdma.Device, destination: str | None) -> list[str]:
    """The command line of the client, or of the server where there is no destination."""
    command = [tool_of(args), "-d", device.name, "-i", str(device.port), "-p", str(args.port), "-F"]
    # rdma_cm finds the GID by itself, from the address
    command += ["-R"] if args.cm == "rdma_cm" else ["-x", str(device.gid_index)]
    command += ["-s", str(args.size_bytes)] if args.size_bytes else ["-a"]
    command += ["-D", str(args.seconds)] if args.seconds else ["-n", str(args.iterations)]
    command += ["-u", str(args.qp_timeout)] if args.qp_timeout else []
    if args.test == "bw":
        command += ["--report_gbits", "-q", str(args.qps)] + (["-b"] if args.bidirectional else [])
    return command + ([destination] if destination else [])


def knows_json(tool: str) -> bool:
    """True where this release can write its report as JSON."""
    return "--out_json_file" in run_tool([tool, "--help"], timeout_s=HELP_TIMEOUT_S).stdout


def look(args: argparse.Namespace) -> rdma.Device:
    """The device to measure on; rdma.Fault where it cannot be used as asked."""
    device = rdma.look(args.interface, args.address, args.transport)
    mode = rdma.cm_mode(device)
    if args.cm == "rdma_cm" and args.transport != "ib" and mode and mode != "RoCE v2":
        raise rdma.Fault("gid-type", f"rdma_cm on {device.name} uses {mode}, not RoCE v2 (configfs default_roce_mode)")
    return device


def asked(args: argparse.Namespace) -> dict[str, Any]:
    """Facts from the command line."""
    return {"source": args.address, "destination": args.peer, "op": args.op, "cm": args.cm}


def measure(args: argparse.Namespace) -> rdma.Session:
    """One run of the client."""
    try:
        device = look(args)
    except rdma.Fault as fault:
        return rdma.failed(tool_of(args), fault, asked(args))
    command = command_for(args, device, args.peer)
    with tempfile.TemporaryDirectory(prefix="elastic-ai-") as folder:
        report = Path(folder, "report.json")
        if knows_json(command[0]):
            command[-1:-1] = ["--out_json", f"--out_json_file={report}"]
        session = rdma.run_on(device, command, asked(args), {})
        if report.exists():
            session.facts["json"] = report.read_text(errors="replace")
    return session


def probe(args: argparse.Namespace) -> ProbeDoc:
    """Measure and report perftest's output with what the device counted meanwhile."""
    args.test = "lat" if args.name == "rdma-latency" else "bw"
    return rdma.report(args.name, tool_of(args), lambda: measure(args))
