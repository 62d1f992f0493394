"""UCX over verbs between two ports, with ucx_perftest: the layer on which MPI and NCCL-class software stand.

At the level `uct` the transport is named and nothing else can be taken; at the level `ucp` UCX chooses among
the transports it is given, as it does for MPI. In both cases the device's counters prove what was used.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from validation.probes import ProbeDoc, rdma

TOOL = "ucx_perftest"
TRANSPORT = "rc_verbs"
UCP_TRANSPORTS = "rc,ud,self"


@dataclass
class Asked(rdma.Ends):
    """What is asked of either end."""

    ucx_test: Literal["put_lat", "put_bw", "tag_lat", "tag_bw"] = "put_lat"
    size_bytes: int = 8
    iterations: int = 1000
    warmup: int = 10


def command_for(args: Asked, device: rdma.Device, destination: str | None) -> list[str]:
    """The command line of the client, or of the server where there is no destination."""
    command = [TOOL] + ([destination] if destination else [])
    command += ["-p", str(args.port), "-t", args.ucx_test, "-s", str(args.size_bytes), "-n", str(args.iterations)]
    command += ["-w", str(args.warmup)]
    if args.ucx_test.startswith("put_"):  # uct: one transport on one device; large messages need zero copy there
        command += ["-d", f"{device.name}:{device.port}", "-x", TRANSPORT]
        command += ["-D", "zcopy"] if args.size_bytes > 4096 else []
    return command


def environment(args: Asked, device: rdma.Device) -> dict[str, str]:
    """What UCX is told by its variables."""
    chosen = {"UCX_NET_DEVICES": f"{device.name}:{device.port}", "UCX_LOG_LEVEL": "warn"}
    if args.transport != "ib":
        chosen["UCX_IB_GID_INDEX"] = str(device.gid_index)
    if not args.ucx_test.startswith("put_"):
        chosen["UCX_TLS"] = UCP_TRANSPORTS
    return {**os.environ, **chosen}


def measure(args: Asked) -> rdma.Session:
    """One run of the client."""
    asked = {"source": args.address, "destination": args.peer}
    try:
        device = rdma.look(args.interface, args.address, args.transport)
    except rdma.Fault as fault:
        return rdma.failed(TOOL, fault, asked)
    return rdma.run_on(device, command_for(args, device, args.peer), asked, environment(args, device))


def probe(args: Asked) -> ProbeDoc:
    """Run the client and report what the tool and the device's counters say."""
    return rdma.report("rdma-ucx", TOOL, lambda: measure(args))
