"""What the network ports of this node carried during a job: all interfaces and RDMA ports, before against after.

The first rank of each node reads them, and writes one line to the standard error output, beside NCCL's own log:

    elastic-ai port bytes {"host": ..., "ports": [{"port": ..., "way": ..., "ours": ..., "sent": ..., "received": ...}]}

`way`: "ethernet" by the interface's own counters, which have nothing of RDMA on adapters that do it themselves;
"rdma" by port_xmit_data and port_rcv_data, in bytes. `ours`: a port of the fabric that was named to the job, and what
that is made of (the ports below a VLAN or a bond are `below`). None: the port does not count, or its counter fell.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SYSFS = Path("/sys")
MARK = "elastic-ai port bytes "
WORD = 4  # bytes that port_xmit_data and port_rcv_data count by: InfiniBand specification, volume 1, 16.1.3.5
Reading = dict[tuple[str, str], tuple[int, int]]


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _represents(net: Path) -> bool:
    """Whether it stands for a function (pf0vf3) in the switch of an adapter, whose port has its own interface (p0)."""
    try:
        return "pf" in (net / "phys_port_name").read_text()
    except OSError:
        return False


def read(sysfs: Path = SYSFS) -> Reading:
    """(way, port) -> bytes sent and received since the port came up, of all that count."""
    found: dict[tuple[str, str], tuple[int | None, int | None]] = {}
    for net in sorted((sysfs / "class/net").glob("*")):
        if net.name != "lo" and not _represents(net):
            counts = (_number(net / "statistics/tx_bytes"), _number(net / "statistics/rx_bytes"))
            found["ethernet", net.name] = counts
    for port in sorted((sysfs / "class/infiniband").glob("*/ports/*")):
        counts = (_number(port / "counters/port_xmit_data"), _number(port / "counters/port_rcv_data"))
        found["rdma", f"{port.parents[1].name}:{port.name}"] = counts
    return {
        key: (sent * (WORD if key[0] == "rdma" else 1), received * (WORD if key[0] == "rdma" else 1))
        for key, (sent, received) in found.items()
        if sent is not None and received is not None
    }


def below(interface: str, sysfs: Path = SYSFS) -> set[str]:
    """Interfaces that an interface is made of, as a VLAN or a bond."""
    found: set[str] = set()
    wanted = [interface]
    while wanted:
        here = {path.name[6:] for path in (sysfs / "class/net" / wanted.pop()).glob("lower_*")} - found
        found |= here
        wanted += here
    return found


def grown(
    before: Reading, after: Reading, interfaces: Sequence[str], devices: Sequence[str], sysfs: Path = SYSFS
) -> Any:
    """The line's document. `interfaces`, `devices` (mlx5_0:1): the fabric's, that were named to the job."""
    ours = {("ethernet", one) for one in interfaces} | {("rdma", one) for one in devices}
    made_of = {("ethernet", lower) for one in interfaces for lower in below(one, sysfs)} - ours
    ports = []
    for way, port in sorted(set(before) | set(after) | ours):
        key = (way, port)
        told = key in before and key in after
        sent, received = ((after[key][i] - before[key][i]) if told else -1 for i in (0, 1))
        known = sent >= 0 and received >= 0  # else it came up, went, or began anew meanwhile
        ports.append({"port": port, "way": way, "ours": key in ours, "below": key in made_of,
                      "sent": sent if known else None, "received": received if known else None})  # fmt: skip
    return {"host": socket.gethostname(), "ports": ports}


def write(document: Any) -> None:
    """In one piece, on a line of its own."""
    sys.stderr.flush()
    os.write(2, f"\n{MARK}{json.dumps(document)}\n".encode())
