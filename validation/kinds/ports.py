"""What is read on a node: its hardware and software, its GPUs, its RDMA ports, the InfiniBand fabric behind them."""

from __future__ import annotations

from validation.kinds.record import Kind, on_node
from validation.model import Job, Measurement, Topology
from validation.parsers import facts, gpu_container, gpu_health, ib_fabric, rdma_ports


def _facts(m: Measurement, topology: Topology) -> Job:
    return on_node(m, interfaces=[port.interface for port in topology.node(m.nodes[0]).ports])


def _gpus(m: Measurement, topology: Topology) -> Job:
    return on_node(m)


def _rdma(m: Measurement, topology: Topology) -> Job:
    """Ports that carry TCP only are left out."""
    return on_node(m, interfaces=[port.interface for port in topology.node(m.nodes[0]).ports if port.rdma])


KINDS = (
    Kind(
        name="facts",
        title="Hardware, software and settings of a node",
        job=_facts,
        parse=facts.parse,
        repeat_by="probe",
        once=True,
    ),
    Kind(
        name="gpu-health",
        title="Health of a node's GPUs",
        job=_gpus,
        parse=gpu_health.parse,
        repeat_by="probe",
        once=True,
    ),
    Kind(
        name="rdma-ports",
        title="RDMA ports: state, RoCE settings, counters",
        job=_rdma,
        parse=rdma_ports.parse,
        repeat_by="probe",
        once=True,
    ),
    Kind(
        name="ib-fabric",
        title="InfiniBand fabric: subnet manager, links, errors",
        job=_rdma,
        parse=ib_fabric.parse,
        repeat_by="probe",
        once=True,
    ),
    Kind(
        name="gpu-container",
        title="GPUs of a container, before and after a reload of systemd's units",
        job=_gpus,
        parse=gpu_container.parse,
        repeat_by="probe",
        once=True,
    ),
)
