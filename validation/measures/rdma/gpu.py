"""RDMA between the memory of two GPUs: perftest's figures, and that it did use the GPUs that were found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from validation.analysis.stats import summarize
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import subject_of
from validation.kinds.parsing import Parsed, ParseError, once
from validation.measures.gpu.copies_judge import without_gpus
from validation.measures.rdma import perftest, tools_output
from validation.model import Judgement, Measurement, Scalar
from validation.probes import ProbeDoc
from validation.rules.bounds import CEILING_SLACK
from validation.rules.criterion import Criterion

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


# ----------------------------------------------------------------------------------------------------------------------
# RDMA between the memory of GPUs of two nodes: what was carried, beside what host memory carries; reported.


HOST = "rdma_write_bandwidth_gbps"


@method("rdma-gpu", "RDMA between the memory of GPUs of a pair's nodes, beside that of hosts", counts="results")
def judge_rdma_gpu(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each ordered pair of ports whose nodes have GPUs."""
    return [*without_gpus(case, criterion), *(_pair(case, criterion, m) for m in case.serving(criterion))]


def _pair(case: Case, criterion: Criterion, m: Measurement) -> Judgement:
    subject, ids, metric = subject_of(m), (m.id,), criterion.metric or ""
    if gone := unusable(case, criterion, subject, ids, None):
        return gone
    result = case.latest[m.id]
    facts: Mapping[str, object] = result.plain
    lacking = [
        f"{node}: {facts[key]}" for node, key in zip(m.nodes, ("no_gpu", "peer_no_gpu"), strict=True) if facts.get(key)
    ]
    if lacking:
        return judgement(criterion, subject, "not-measured", "no-bound", "; ".join(lacking), ids)
    values = result.values(metric)
    if not values:
        why = f"{m.id} has a result, but no {metric} in it"
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids)
    summary = summarize(values)
    line = case.bounds.get("rdma_bandwidth")
    ways = " to ".join(
        f"GPU {facts.get(f'{end}gpu_address')} of {node} ({facts.get(f'{end}gpu_memory')})"
        for node, end in zip(m.nodes, ("", "peer_"), strict=True)
    )
    said = f"{summary.median:.4g} {criterion.unit}, {ways}"
    if line is not None and line.ceiling is not None and summary.median > line.ceiling * CEILING_SLACK:
        why = f"{said}: more than the {line.ceiling:g} {criterion.unit} of the line"
        return judgement(criterion, subject, "not-measured", "above-ceiling", why, ids, summary=summary)
    if host := _host(case, m):
        said += f"; host memory {host:.4g} {criterion.unit}"
    why = f"reported, not judged: {said}"
    return judgement(criterion, subject, "not-applicable", "reported", why, ids, summary=summary)


def _host(case: Case, m: Measurement) -> float | None:
    """What host memory carried between the same ports, in the median of its runs."""
    same = [
        value
        for one in case.plan.measurements
        if one.kind == "rdma-bandwidth" and one.endpoints == m.endpoints and not one.params.get("bidirectional")
        if one.params.get("op") == "write" and (found := case.usable(one.id)) is not None
        for value in found.values(HOST)
    ]
    return summarize(same).median if same else None
