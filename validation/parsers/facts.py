"""Facts of a node. A component that is not installed is "", never absent: absent means that nobody looked."""

from __future__ import annotations

from collections.abc import Mapping

from validation.model import Scalar
from validation.parsers.common import Parsed, ParseError, count, plain
from validation.probes import ProbeDoc

COMPONENTS = (
    *("os", "kernel", "python", "openmpi", "docker", "horovod", "torch", "probes"),
    *("driver", "fabric_manager", "cuda", "cudnn", "nccl", "ofed", "container_toolkit", "dcgm", "slurm"),
    "stack_release",
)
LISTS = ("fabric_ports", "rdma_devices", "rdma_ports", "pci", "stand_ins", "not_applicable", "drift", "reboot_pending")
HARDWARE = (
    *("virt", "lab", "model", "gpu_count", "gpu_model", "nic_model"),
    *("fabric_ports", "rdma_devices", "rdma_ports", "pci"),
)


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """No samples; the facts, with every key there and of its type."""
    facts = plain(doc["facts"])
    missing = [key for key in dict.fromkeys((*HARDWARE, *COMPONENTS, *LISTS)) if key not in facts]
    if missing:
        raise ParseError(f"facts: {', '.join(missing)} missing or of a wrong type")
    for key in LISTS:
        if not isinstance(facts[key], list):
            raise ParseError(f"facts: {key} is no list")
    count(facts["gpu_count"], "facts: gpu_count")
    texts = [key for key in (*HARDWARE, *COMPONENTS) if key not in ("gpu_count", *LISTS)]
    for key in texts:
        if not isinstance(facts[key], str):
            raise ParseError(f"facts: {key} is no text")
    for key in ("virt", "os", "kernel"):
        if not facts[key]:
            raise ParseError(f"facts: {key} is empty; every node has one")
    return [], facts
