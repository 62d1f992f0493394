"""The ways that NCCL takes, from its own log at level INFO, of 2.4 and later.

It tells of each connection between two ranks the transport, of each network the devices, and of its TCP connections
(bootstrap, OOB, and data where there is no RDMA) the interface.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from validation.measures.collectives.facts import NcclChannels, NcclPath

# `Channel 02/0 : 0[0] -> 8[0] [send] via NET/IB/1(3)/GDRDMA`, `Channel 00 : 0[17000] -> 1[18000] via P2P/IPC`,
# and before 2.5 `Ring 00 : 15 -> 0 [send] via NET/Socket/0`, `via direct shared memory`
CHANNEL = re.compile(
    r"NCCL INFO (?:Channel|Ring) \d+(?:/\d+)? : (\d+)(?:\[[0-9a-f]+\])? -> (\d+)(?:\[[0-9a-f]+\])?"
    r"(?: \[(?:send|receive)\])? via (.+?)\s*$"
)
SOCKETS = re.compile(r"NCCL INFO (?:Bootstrap ?: Using |NET/Socket ?: Using |NET/IB ?: Using .*\bOOB )(.*)")
INTERFACE = re.compile(r"(?:\[\d+\])?([\w.-]+):[^\s<]*<\d+>")
DEVICES = re.compile(r"NCCL INFO NET/IB ?: Using (.*?)(?:; OOB|$)")
DEVICE = re.compile(r"\[\d+\]([\w.-]+:\d+)/(?:IB|RoCE)")
SETTING = re.compile(r"NCCL INFO (NCCL_[A-Z0-9_]+) set (?:by environment )?to ([^\s<]+?)\.?\s*$")
NVLS = re.compile(r"NCCL INFO .*(?:NVLS comm 0x|Connected NVLS)")


def nccl_path(log: str, hosts: Sequence[str]) -> NcclPath:
    """What the log tells; `hosts` of each rank say which connections leave a node."""
    channels: Counter[tuple[str, bool, bool]] = Counter()
    devices: dict[str, None] = {}
    sockets: dict[str, None] = {}
    settings: dict[str, None] = {}
    for line in log.splitlines():
        if "NCCL INFO" not in line:
            continue
        sockets |= dict.fromkeys(INTERFACE.findall(found[1]) if (found := SOCKETS.search(line)) else ())
        devices |= dict.fromkeys(DEVICE.findall(found[1]) if (found := DEVICES.search(line)) else ())
        settings |= {f"{found[1]}={found[2]}": None} if (found := SETTING.search(line)) else {}
        channel = CHANNEL.search(line)
        if channel and max(int(channel[1]), int(channel[2])) < len(hosts):
            across = hosts[int(channel[1])] != hosts[int(channel[2])]
            channels[_transport(channel[3]), "GDRDMA" in channel[3], across] += 1
    return NcclPath(
        devices=tuple(sorted(devices)),
        sockets=tuple(sorted(sockets)),
        channels=tuple(
            NcclChannels(transport=transport, gdr=gdr, across=across, count=count)
            for (transport, gdr, across), count in sorted(channels.items())
        ),
        settings=tuple(sorted(settings)),
        nvls=NVLS.search(log) is not None,
    )


def _transport(via: str) -> str:
    """`NET/IB` of NET/IB/0/GDRDMA, P2P of P2P/CUMEM, SHM of SHM/direct/direct and of direct shared memory."""
    if "shared memory" in via:
        return "SHM"
    return "/".join(via.split("/")[:2]) if via.startswith("NET/") else via.split("/", maxsplit=1)[0]
