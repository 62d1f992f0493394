"""First light of RDMA between two ports: ibv_rc_pingpong, its data checked, at the fabric's RDMA MTU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from validation.probes import ProbeDoc, rdma

TOOL = "ibv_rc_pingpong"


@dataclass
class Asked(rdma.Ends):
    """What is asked of either end."""

    size_bytes: int = 4096
    iterations: int = 1000
    mtu: int = 0  # RDMA MTU that the port should have, bytes; 0: any


def command_for(args: Asked, device: rdma.Device, destination: str | None, mtu: int) -> list[str]:
    """The command line of the client, or of the server where there is no destination."""
    command = [TOOL, "-d", device.name, "-i", str(device.port), "-p", str(args.port), "-m", str(mtu)]
    command += ["-s", str(args.size_bytes), "-n", str(args.iterations), "-c"]
    command += [] if args.transport == "ib" else ["-g", str(device.gid_index)]
    return command + ([destination] if destination else [])


def look(args: Asked) -> tuple[rdma.Device, dict[str, Any]]:
    """The device to use and its MTU; rdma.Fault where device or MTU are not as they should be."""
    device = rdma.look(args.interface, args.address, args.transport)
    mtu, said = rdma.active_mtu(device)
    facts = {"active_mtu": mtu, "memlock": rdma.memlock(), "cm_mode": rdma.cm_mode(device)}
    if mtu == 0:
        last = said.strip().splitlines()[-1] if said.strip() else "no answer"
        raise rdma.Fault("tool", f"ibv_devinfo shows no MTU of {device.name}: {last}")
    if args.mtu and mtu != args.mtu:
        words = f"RDMA MTU of {device.name} on {args.interface} is {mtu}, {args.mtu} wanted"
        raise rdma.Fault("mtu", f"{words} (it follows from the port's MTU)")
    return device, facts


def measure(args: Asked) -> rdma.Session:
    """One run of the client."""
    asked = {"source": args.address, "destination": args.peer}
    try:
        device, facts = look(args)
    except rdma.Fault as fault:
        return rdma.failed(TOOL, fault, asked)
    command = command_for(args, device, args.peer, facts["active_mtu"])
    return rdma.run_on(device, command, {**asked, **facts}, {})


def probe(args: Asked) -> ProbeDoc:
    """Play ping-pong with the other end and report what the tool and the device's counters say."""
    return rdma.report("rdma-first-light", TOOL, lambda: measure(args))
