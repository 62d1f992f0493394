"""RDMA ports of this node: device, state, link layer, rate, MTU, GIDs, counters, and with them the RoCE settings.

Read from sysfs and configfs; only the active MTU needs a tool (ibv_devinfo). `brief` reads state and counters alone:
the second reading of a run, from which growth is told.

`stdout`: ibv_devinfo's output, then the facts again as JSON. `facts`: as RdmaPortsFacts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from validation.probes import ProbeDoc, rdma_ports_qos, rdma_ports_sysfs
from validation.probes.tool import Ran, document, group, run_tool

TIMEOUT_S = 20.0


@dataclass
class Asked:
    """What is asked of this probe."""

    interfaces: list[str]  # fabric ports with RDMA
    brief: bool = False  # state and counters only


def active_mtu(said: str) -> int | None:
    """The RDMA path MTU of a port, bytes, from ibv_devinfo's `active_mtu: 4096 (5)`."""
    found = group(r"^\s*active_mtu:\s+(\d+)", said)
    return int(found) if found else None


def port(interface: str, brief: bool, said: list[str]) -> dict[str, Any]:
    """One port; what ibv_devinfo printed is added to `said`."""
    found = rdma_ports_sysfs.state(interface)
    if not found["device"]:
        return found
    found["counters"].update(rdma_ports_qos.driver_counters(interface))
    if brief:
        return found
    command = ["ibv_devinfo", "-d", found["device"], "-i", str(found["port"])]
    ran = run_tool(command, timeout_s=TIMEOUT_S)
    said.append("$ " + " ".join(command) + "\n" + ran.stdout + ran.stderr)
    found["active_mtu_bytes"] = active_mtu(ran.stdout) if ran.returncode == 0 else None
    found["active_mtu_unread"] = ran.failure or ""
    if found["link_layer"] == "Ethernet":
        found["qos"] = rdma_ports_qos.roce(interface, found["device"], found["port"])
    return found


def probe(args: Asked) -> ProbeDoc:
    """Look at every RDMA port of this node."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        said: list[str] = []
        facts: dict[str, Any] = {
            "type": "rdma-ports",
            "ports": [port(name, args.brief, said) for name in args.interfaces],
        }
        if not args.brief:
            facts["memlock"] = rdma_ports_qos.memlock()
            facts["policy"] = rdma_ports_qos.policy()
        text = "\n".join([*said, json.dumps(facts, indent=1, sort_keys=True)])
        return Ran(["rdma-ports", *args.interfaces], 0, text, ""), facts, None

    return document("rdma-ports", "probes", measure, lambda ran: "")
