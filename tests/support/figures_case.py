"""A run with something for every figure, in memory. The numbers are invented; nothing here was measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

from tests.support.report_fixture import RUN, make_run
from tests.support.site import GPU, LAB_LINK, NIC, node, provenance, with_facts
from tests.support.site import result as made
from validation.model import Bom, Bound, Endpoint, Judgement, Measurement, Result, Sample, Subject
from validation.report.documents import RunDocuments, read_run
from validation.report.svg.drawing import Figure


def measurement(kind: str, label: str, nodes: tuple[str, ...], **more: Any) -> Measurement:
    base = {"suite": "x", "criteria": (), "estimated_s": 1.0, "timeout_s": 2.0}
    return Measurement(id=f"{kind}.{label}", kind=kind, nodes=nodes, **(base | more))


def result(of: Measurement, samples: tuple[Sample, ...] = (), status: str = "ok", **facts: Any) -> Result:
    return made(of, samples, run=RUN, status=status, facts=facts, provenance=provenance(started="2026-11-21T10:15:00Z"))


def added(documents: RunDocuments, pairs: list[tuple[Measurement, Result | None]]) -> RunDocuments:
    """The run with more measurements; a measurement that was planned already gets another result."""
    known = {m.id for m in documents.plan.measurements}
    new = tuple(m for m, _ in pairs if m.id not in known)
    plan = documents.plan.model_copy(update={"measurements": (*documents.plan.measurements, *new)})
    return replace(documents, plan=plan, results=(*documents.results, *(r for _, r in pairs if r is not None)))


def sweeps(ports: list[str], gbps: float = 0.93) -> list[tuple[Measurement, Result | None]]:
    out: list[tuple[Measurement, Result | None]] = []
    for number, (a, b) in enumerate(permutations(ports, 2)):
        ends = tuple(Endpoint(node=p.partition("/")[0], port=p.partition("/")[2]) for p in (a, b))
        m = measurement(
            "rdma-bandwidth", f"write-sweep.{number}", (ends[0].node, ends[1].node), endpoints=ends,
            params={"op": "write", "size_bytes": 0},
        )  # fmt: skip
        share = 0.3 if "gpu2" in (ends[0].node, ends[1].node) else 1.0
        rates = {str(2**i): share * gbps * 2**i / (2**i + 3000) for i in range(1, 24)}
        out.append((m, result(m, sweep=rates)))
    return out


def copies(client: str = "client1", gpus: int = 8) -> tuple[Measurement, Result]:
    m = measurement("remoting-copy", client, (client, "gpu1", "gpu2"))
    ends = [None, *range(gpus)]
    pairs: list[dict[str, Any]] = []
    for a in ends:
        for b in ends:
            if (a, b) != (None, None):
                near = a is not None and b is not None and a // 4 == b // 4
                speed, latency = (700.0, 4.1) if a == b else (42.0, 9.5) if near else (1.1, 61.0)
                at = len(pairs)
                pairs.append({"source": a, "target": b, "gb_s": speed + at / 100, "us": latency + at / 50})
    devices = [{"name": "V100", "uuid": f"GPU-{i}", "server": "gpu1" if i < gpus / 2 else "gpu2"} for i in range(gpus)]
    facts = {
        "type": "copies", "engine": "reference", "engine_release": "0.1.0", "emulated": True, "client": client,
        "servers": ["gpu1", "gpu2"], "devices": devices, "matrix": pairs,
    }  # fmt: skip
    return m, result(m, **facts)


def fraction(parts: tuple[str, ...], sizes: list[float], server: str = "gpu1") -> tuple[Measurement, Result]:
    m = measurement("remoting-fraction", f"{server}.{'_'.join(parts).replace('/', '-')}", ("client1", server),
                    params={"server": server, "parts": parts})  # fmt: skip
    sample = Sample(metric="memory_error_mib", value=0.5, unit="MiB")
    facts = {
        "type": "fractions", "engine": "reference", "engine_release": "0.1.0", "emulated": True, "server": server,
        "parts": [{"part": p, "memory_mib": size} for p, size in zip(parts, sizes, strict=True)],
        "memory_mib": 256, "reserved_mib": 0, "context_mib": 0.5, "beyond": "refused",
    }  # fmt: skip
    return m, result(m, (sample,), **facts)


def utilisation(readings: int = 120) -> tuple[Measurement, Result]:
    m = measurement("utilisation", "head", ("head",), params={"days": 7.0})
    samples = []
    for i in range(readings):
        for metric, value in (
            ("leased_ratio", 0.5 + 0.25 * (i // 30 % 2)), ("gpu_utilization_ratio", 0.12 + 0.1 * (i % 9) / 9),
            ("gpu_memory_ratio", 0.4),
        ):  # fmt: skip
            samples.append(Sample(metric=metric, value=value, unit="ratio"))
    return m, result(m, tuple(samples), emulated=True, recorded_s=1.0, days=7.0, step_s=1210)


def learned(documents: RunDocuments) -> list[tuple[Measurement, Result | None]]:
    """The training jobs measured again, with their losses."""
    out: list[tuple[Measurement, Result | None]] = []
    for m in documents.plan.measurements:
        if m.kind == "training-short":
            old = documents.latest[m.id]
            ranks = int(str(m.params["ranks"]))
            losses = tuple(
                Sample(metric="loss", value=2.4 / (1 + i / 30 * ranks**0.3), unit="nats") for i in range(110)
            )
            out.append((m, old.model_copy(update={"samples": (*old.samples, *losses)})))
    return out


def c4140(documents: RunDocuments) -> RunDocuments:
    """GPU servers with four GPUs on two NUMA nodes, one of them linked below its rating in gpu2."""
    bom = Bom(gpu_count=4, gpu_model="V100", model="PowerEdge C4140")
    nodes = [n.model_copy(update={"bom": bom}) if "gpu_servers" in n.groups else n for n in documents.topology.nodes]
    topology = documents.topology.model_copy(update={"nodes": tuple(nodes)})
    pairs: list[tuple[Measurement, Result | None]] = []
    for m in documents.plan.measurements:
        if m.kind == "facts" and m.nodes[0] in ("gpu1", "gpu2"):
            width = 8 if m.nodes[0] == "gpu2" else 16
            cards = [
                {**GPU, "address": f"0000:{18 + i}:00.0", "numa": i // 2,
                 "link": {"gt_s": 8.0, "lanes": width if i == 3 else 16}}
                for i in range(4)
            ]  # fmt: skip
            found = {"virt": "none", "model": "PowerEdge C4140", "gpu_model": "V100", "gpu_count": 4}
            pairs.append((m, with_facts(documents.latest[m.id], pci=[*cards, NIC], **found)))
    return added(replace(documents, topology=topology), pairs)


def ratios(documents: RunDocuments) -> RunDocuments:
    """Judged ratios of remote over native, as a probe of a later release would leave them."""
    bound = Bound(metric="ratio", unit="ratio", floor=0.95, source="s")
    judged = [
        Judgement(criterion="rm.ratio", about=Subject.node(model, f"batch {batch}"),
                  verdict="pass" if v >= 0.95 else "fail",
                  reason_code="within-bounds" if v >= 0.95 else "below-floor", reason="r", value=v, low=v - 0.012,
                  high=v + 0.009, samples=9, bound=bound)
        for model, batch, v in (("resnet50", 32, 0.902), ("resnet50", 128, 0.968), ("inception3", 64, 0.981))
    ]  # fmt: skip
    criteria = tuple(
        c.model_copy(update={"judgements": tuple(judged)}) if c.id == "rm.ratio" else c
        for c in documents.verdict.criteria
    )
    return replace(documents, verdict=documents.verdict.model_copy(update={"criteria": criteria}))


def rich(folder: Path, **how: Any) -> RunDocuments:
    """A run with something for every figure; `how` as `make_run` takes it."""
    documents = read_run(make_run(folder, **({"slow": "gpu2"} | how)))
    ports = [f"{n.name}/{p.interface}" for n in documents.topology.nodes for p in n.ports]
    documents = added(documents, [*sweeps(ports), copies(), utilisation(), *learned(documents)])
    parts = [
        fraction(("1/2", "1/2"), [128, 128]),
        fraction(("1/7",) * 7, [36] * 7),
        fraction(("3/4", "5/20"), [192, 64], "gpu2"),
    ]
    return ratios(c4140(added(documents, list(parts))))


def crowd(documents: RunDocuments, count: int) -> RunDocuments:
    """The run with `count` more nodes, of which nothing but the inventory is known."""
    more = tuple(node(f"node-{i:04d}", 1001 + i, {"prefix": 16, "rate_gbps": 10.0}) for i in range(count))
    nodes = (*documents.topology.nodes, *more)
    topology = documents.topology.model_copy(update={"nodes": nodes, "lab_link": LAB_LINK})
    return replace(documents, topology=topology)


def cells(figure: Figure) -> str:
    """All cells of a figure's table."""
    assert figure.table is not None
    return " | ".join(cell for row in figure.table.rows for cell in row)
