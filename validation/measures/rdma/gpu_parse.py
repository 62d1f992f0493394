"""RDMA between the memory of two GPUs: perftest's figures, and that it did use the GPUs that were found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from validation.kinds.parsing import Parsed, ParseError, once
from validation.measures.rdma import perftest, tools_output
from validation.model import Scalar
from validation.probes import ProbeDoc

_LISTED = r"^CUDA device (\d+): PCIe address is ([0-9A-Fa-f]+):([0-9A-Fa-f]+)$"
_PICKED = r"^Picking device No\. (\d+)$"
_ALLOCATED = r"^allocated .*GPU buffer"
_DMABUF = r"^using DMA-BUF for GPU buffer"
"""What perftest prints of CUDA before its report (linux-rdma/perftest, src/cuda_memory.c)."""


def parse(doc: ProbeDoc, params: Mapping[str, Scalar]) -> Parsed:
    """`rdma_gpu_OP_gbps`, in facts the GPUs; no sample where an end says that it has no GPU to use (`no_gpu`)."""
    facts, text = doc["facts"], doc["stdout"]
    peer = tools_output.peer_of(facts)
    ends = ((facts, text, "this end"), (peer, str(peer.get("stdout", "")), "the serving end"))
    samples, result = perftest.bandwidth(doc, params)
    for end, said, who in ends:
        _used(end, said, who)
    if any("gpu" not in end for end, _, _ in ends):
        return [], result
    op = str(params.get("op", facts["op"]))
    name = f"rdma_{op}_bandwidth_gbps"
    return [s.model_copy(update={"metric": f"rdma_gpu_{op}_gbps"}) if s.metric == name else s for s in samples], result


def _used(end: Mapping[str, Any], said: str, who: str) -> None:
    """ParseError unless the tool used the GPU that its end names, or none where it names none."""
    picked = re.findall(_PICKED, said, re.MULTILINE)
    if "gpu" not in end:
        if picked or not (isinstance(end.get("no_gpu"), str) and end["no_gpu"]):
            raise ParseError(f"perftest: {who} names no GPU, and no reason for it")
        return
    if picked != [str(end["gpu"])]:
        raise ParseError(f"perftest: {who} picked GPU {', '.join(picked) or 'none'} instead of {end['gpu']}")
    if not re.search(_ALLOCATED, said, re.MULTILINE):
        raise ParseError(f"perftest: {who} took no memory of a GPU")
    if (end["gpu_memory"] == "dmabuf") != bool(re.search(_DMABUF, said, re.MULTILINE)):
        raise ParseError(f"perftest: {who} did not hand the memory over as {end['gpu_memory']}")
    place = re.fullmatch(r"[0-9a-f]{4,}:([0-9a-f]{2}):([0-9a-f]{2})\.0", str(end["gpu_address"]))
    if place is None:
        raise ParseError(f"perftest: {end['gpu_address']!r} of {who} is no address of a GPU")
    listed = once(_LISTED.replace(r"(\d+)", str(end["gpu"]), 1), said, f"perftest: the GPU of {who}")
    if [int(digits, 16) for digits in listed.groups()] != [int(digits, 16) for digits in place.groups()]:
        raise ParseError(f"perftest: GPU {end['gpu']} of {who} is not {end['gpu_address']}")
