"""The InfiniBand fabric behind this node's ports: its subnet manager, its links and their error counters.

Asked through infiniband-diags (sminfo, ibnetdiscover, ibqueryerrors), which need root or the right to
/dev/infiniband/umad*.

`stdout`: sminfo, ibnetdiscover --ports and ibqueryerrors, each headed by "$ sminfo ...". `facts`: interfaces and
devices (`mlx5_0/1`) of the ports that were asked through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from validation.probes import ProbeDoc, rdma_ports_sysfs
from validation.probes.tool import Ran, document, group, run_tool

TIMEOUT_S = 240.0
TOOLS = (["sminfo"], ["ibnetdiscover", "--ports"], ["ibqueryerrors", "--suppress", "PortXmitWait"])


@dataclass
class Asked:
    """What is asked of this probe."""

    interfaces: list[str]  # InfiniBand ports


def probe(args: Asked) -> ProbeDoc:
    """Ask all tools through every port."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        said = ["# ibnetdiscover --version\n" + run_tool(["ibnetdiscover", "--version"]).stdout]
        warnings: list[str] = []
        facts: dict[str, Any] = {"interfaces": args.interfaces, "devices": []}
        for interface in args.interfaces:
            found = rdma_ports_sysfs.find(interface)
            if found is None:
                return Ran([TOOLS[0][0]], 0, "\n".join(said), ""), facts, f"{interface} has no RDMA device"
            facts["devices"].append(f"{found[0]}/{found[1]}")
            for tool in TOOLS:
                command = [*tool, "-C", found[0], "-P", str(found[1])]
                ran = run_tool(command, timeout_s=TIMEOUT_S)
                said.append("$ " + " ".join(command) + "\n" + ran.stdout)
                warnings.append(ran.stderr)  # not among the output: a busy fabric makes the tools warn and try again
                # ibqueryerrors ends with 1 where it found errors; whether it came to its end its summary says
                if ran.failure and tool[0] != "ibqueryerrors":
                    return Ran(command, 0, "\n".join(said), ran.stderr), facts, f"{interface}: {ran.failure}"
        return Ran(command, 0, "\n".join(said), "".join(warnings)), facts, None

    return document("ib-fabric", "infiniband-diags", measure, lambda ran: group(r"BUILD VERSION: (\S+)", ran.stdout))
