"""A lab and real machines with RDMA ports, and what their transport measures."""

from __future__ import annotations

from tests.support.engine_case import (
    node,
    plan_of,
)
from validation.model import LabLink, Measurement, Plan, Port, Topology

TRANSPORT = ("transport",)


def vm_lab(gpus: int = 2, emulated: bool = True) -> Topology:
    """Head and client as containers without RDMA, GPU servers as virtual machines."""
    light = tuple(
        node(name, i, ports=(Port(interface="fab0", address=f"10.78.0.{i}", prefix=24, rdma=False),))
        for i, name in ((11, "head"), (12, "client1"))
    )
    heavy = tuple(node(f"gpu{i}", 12 + i, virtual="qemu", emulated=emulated) for i in range(1, gpus + 1))
    return Topology(site="lab", nodes=light + heavy, lab_link=LabLink(rate_gbps=1, rtt_max_us=1000, emulated=emulated))


LAB = vm_lab()


PLAN = plan_of(LAB, TRANSPORT, "roce40")


def rdma(plan: Plan) -> list[Measurement]:
    return [m for m in plan.measurements if m.kind.startswith("rdma-") and m.endpoints]
