"""RDMA bandwidth and latency from this node to another one, with linux-rdma's perftest (ib_write_bw and its kin).

Both ends are given their device, port and GID. perftest prints text in every release; where its help has --out_json
that file is handed on as well, and the parser compares the two.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from validation.probes import ProbeDoc, rdma
from validation.probes.tool import run_tool

HELP_TIMEOUT_S = 20.0


@dataclass
class Asked(rdma.Ends):
    """What is asked of either end; `kind` and `test` are those of its subclasses."""

    kind: ClassVar[str]
    test: ClassVar[Literal["bw", "lat"]]

    op: Literal["write", "read", "send"] = "write"
    size_bytes: int = 65536  # of a message; 0: all powers of two to 8 MiB
    iterations: int = 0  # messages of each queue pair
    seconds: int = 0  # measured time, instead of iterations
    qps: int = 1  # queue pairs
    bidirectional: bool = False
    qp_timeout: int = 0  # ACK timeout 4.096 us x 2^N; 0: the tool's own (14)
    cm: Literal["socket", "rdma_cm"] = "socket"  # how the ends find each other


def tool_of(args: Asked) -> str:
    """The program's name, as ib_write_bw."""
    return f"ib_{args.op}_{args.test}"


def command_for(args: Asked, device: rdma.Device, destination: str | None) -> list[str]:
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


def look(args: Asked) -> rdma.Device:
    """The device to measure on; rdma.Fault where it cannot be used as asked."""
    device = rdma.look(args.interface, args.address, args.transport)
    mode = rdma.cm_mode(device)
    if args.cm == "rdma_cm" and args.transport != "ib" and mode and mode != "RoCE v2":
        raise rdma.Fault("gid-type", f"rdma_cm on {device.name} uses {mode}, not RoCE v2 (configfs default_roce_mode)")
    return device


def asked(args: Asked) -> dict[str, Any]:
    """Facts from the command line."""
    return {"source": args.address, "destination": args.peer, "op": args.op, "cm": args.cm}


def measure(args: Asked) -> rdma.Session:
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


def probe(args: Asked) -> ProbeDoc:
    """Measure and report perftest's output with what the device counted meanwhile."""
    return rdma.report(args.kind, tool_of(args), lambda: measure(args))
