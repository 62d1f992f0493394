"""Burn-in: everything that a node has to compute with, loaded at once for a given time."""

from __future__ import annotations

from validation.kinds.record import Kind, on_node
from validation.measures.compute import burn_in_parse
from validation.measures.gpu.kinds import gpus_of
from validation.measures.training.training_short_probe import ENTER
from validation.model import Job, Measurement, Node, Param, Topology

EMULATED_BYTES = 1 << 20  # emulated devices are small, and share their host's memory
OWN_S = 60.0  # what begins and ends take, at most: torch, exact products cold and hot


def asked(node: Node, topology: Topology, seconds: float) -> dict[str, Param]:
    """Parameters of a node's burn-in."""
    params: dict[str, Param] = {"seconds": seconds, "gpus": gpus_of(node, topology) or 0}
    if node.emulated_gpus:
        return {**params, "copy_bytes": EMULATED_BYTES}
    return {**params, "device": "cpu"} if node.virtual else params  # it sees its host's GPUs on the PCI buses


def _job(m: Measurement, topology: Topology) -> Job:
    """In the node's training container where it has one; of one machine by itself with the torch that was found."""
    node = topology.node(m.nodes[0])
    if topology.here is not None:
        unusable = {"device": "cpu"} if topology.here.gpu_trouble else {}
        return on_node(m, python=topology.here.torch_python, **unusable)
    return on_node(m, python="") if node.virtual or "gpu_servers" not in node.groups else on_node(m, enter=ENTER)


KINDS = (
    Kind(
        name="burn-in",
        title="Burn-in",
        measures="Loads every GPU of a node, or its processors, for the chosen time and compares each result with the "
        "right one.",
        tool="torch's matrix products; CUDA driver copies without torch; exact arithmetic on processors",
        more="explanation/measuring/burn-in.md",
        job=_job,
        parse=burn_in_parse.parse,
        repeat_by="probe",
        once=True,
    ),
)
