"""What is read on a node: its hardware and software, its GPUs, its RDMA ports, the InfiniBand fabric behind them."""

from __future__ import annotations

from validation.kinds.record import Kind, on_node
from validation.measures.gpu import container, health
from validation.measures.node import facts as node_facts
from validation.measures.rdma import ib_fabric
from validation.measures.rdma import ports as rdma_ports
from validation.model import Job, Measurement, Topology


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
        measures="Reads hardware, software and settings of a node.",
        tool="sysfs, procfs, package managers and the tools of each component",
        more="explanation/measuring/nodes.md",
        job=_facts,
        parse=node_facts.parse,
        repeat_by="probe",
        once=True,
    ),
    Kind(
        name="gpu-health",
        title="Health of a node's GPUs",
        measures="Reads state, errors and settings of each GPU, and the driver's messages in the kernel log.",
        tool="NVML; /dev/kmsg or the journal",
        more="explanation/measuring/nodes.md",
        job=_gpus,
        parse=health.parse,
        repeat_by="probe",
        once=True,
    ),
    Kind(
        name="rdma-ports",
        title="RDMA ports: state, RoCE settings, counters",
        measures="Reads state, RoCE settings and counters of each RDMA port, before the load and after it.",
        tool="sysfs, configfs, dcb, ethtool and ibv_devinfo",
        more="explanation/measuring/nodes.md",
        job=_rdma,
        parse=rdma_ports.parse,
        repeat_by="probe",
        once=True,
    ),
    Kind(
        name="ib-fabric",
        title="InfiniBand fabric: subnet manager, links, errors",
        measures="Reads subnet manager, links and error counters of an InfiniBand fabric, before the load and after "
        "it.",
        tool="sminfo, ibnetdiscover and ibqueryerrors",
        more="explanation/measuring/nodes.md",
        job=_rdma,
        parse=ib_fabric.parse,
        repeat_by="probe",
        once=True,
    ),
    Kind(
        name="gpu-container",
        title="GPUs of a container, before and after a reload of systemd's units",
        measures="Counts the GPUs that a container sees before and after a reload of systemd.",
        tool="Docker, the NVIDIA container toolkit and systemctl",
        more="explanation/measuring/nodes.md",
        job=_gpus,
        parse=container.parse,
        repeat_by="probe",
        once=True,
    ),
)
