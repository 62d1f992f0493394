"""What stands side by side on the page, in order: the criteria whose values tell fabrics apart."""

from __future__ import annotations

from dataclasses import dataclass

RATE = "tn.short"
"""Criterion under which the rates of the training jobs stand: it judges their spread."""


@dataclass(frozen=True)
class Part:
    """A section: `criteria` are (id, what its row is called)."""

    key: str
    title: str
    lead: str
    criteria: tuple[tuple[str, str], ...]


PARTS = (
    Part(
        "latency",
        "Latency",
        "Between two fabric ports, and of a CUDA call to a GPU over the network.",
        (
            ("tr.netlat", "TCP round trip"),
            ("tr.rdmalat", "RDMA latency"),
            ("tr.remotelat", "Remote GPU to GPU"),
            ("rm.roundtrip", "CUDA call, there and back"),
        ),
    ),
    Part(
        "bandwidth",
        "Bandwidth",
        "Between two fabric ports, and of copies from a client's memory to GPUs over the network.",
        (("tr.tcpbw", "TCP bandwidth"), ("tr.rdmabw", "RDMA bandwidth"), ("rm.copy", "Copies to a GPU")),
    ),
    Part(
        "training",
        "Training: rates and scaling efficiency",
        "Scaling efficiency = rate of N ranks / (N \u00d7 rate of one rank).",
        (
            (RATE, "Rate of the job"),
            ("tn.intra", "Efficiency in a node"),
            ("tn.inter", "Efficiency across nodes"),
            ("tn.rdma", "RDMA over TCP"),
        ),
    ),
    Part(
        "remote",
        "Remote over native",
        "What GPUs over the network reach of the same GPUs in the machine.",
        (
            ("rm.ratio", "Remote / native, one GPU"),
            ("rm.layout", "L4, L2R2, R4 / N4"),
            ("rm.fraction", "Fractions / whole GPU"),
            ("rm.scale", "All GPUs of the pool"),
        ),
    ),
)
MARKS = {
    "tr.netlat": "TCP",
    "tr.tcpbw": "TCP",
    "tr.rdmalat": "RDMA",
    "tr.rdmabw": "RDMA",
    "tn.rdma": "RDMA",
    "tr.remotelat": "Remote",
    "rm.ratio": "Remote",
    "rm.roundtrip": "CUDA",
    "rm.copy": "Copies",
    RATE: "Rate",
    "tn.intra": "Efficiency",
    "tn.inter": "Efficiency",
    "rm.layout": "L4,",
    "rm.fraction": "Fractions",
    "rm.scale": "All",
}
"""The word of a criterion before a case, where the chart has no room for the name of its row."""
