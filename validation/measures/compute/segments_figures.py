"""Segments of a burn-in: what each did, what failed when, and what all of them prove of how long GPUs last."""

from __future__ import annotations

from collections.abc import Sequence

from validation.base.counting import number_of
from validation.measures.compute.burn_facts import BurnFacts
from validation.measures.compute.segments import Segment, segment_of
from validation.measures.fabric.soak import SoakFabricFacts
from validation.measures.gpu.growth import growth
from validation.measures.storage.soak import SoakStorageFacts
from validation.model import Measurement
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import NONE, duration
from validation.report.svg.drawing import DataTable, Figure

KINDS = ("burn-in", "soak-fabric", "soak-storage")
HEAD = (
    "Segment",
    "Began",
    "Time",
    "Nodes",
    "GPUs",
    "Results",
    "Wrong",
    "Cut short",
    "New errors",
    "Fabric",
    "Storage",
)


def segment_figures(documents: RunDocuments) -> tuple[Figure, ...]:
    """A row for each segment, where the burn-in has several."""
    rows: dict[Segment, list[Measurement]] = {}
    for m in documents.plan.measurements:
        if m.kind in KINDS and segment_of(m).of:
            rows.setdefault(segment_of(m), []).append(m)
    if not rows:
        return ()
    table = [_row(documents, segment, mine) for segment, mine in rows.items()]
    whole = sum(_whole(documents, mine) for mine in rows.values())
    ordered = sum(max((float(str(m.params["seconds"])) for m in mine), default=0.0) for mine in rows.values())
    said = f"{whole} of {number_of(len(rows), 'segment')} of the burn-in came to their end; "
    said += f"{duration(ordered)} were ordered."
    if whole < len(rows):
        said += " What is shorter than ordered passes nothing."
    data = DataTable("Each segment: what was compared and what failed, in its order.", HEAD, tuple(table))
    return (Figure("burn-segments", said, None, data, None, ("bi.exact", "bi.events", "bi.fabric", "bi.storage")),)


def _whole(documents: RunDocuments, mine: Sequence[Measurement]) -> bool:
    return all((r := documents.latest.get(m.id)) is not None and r.status == "ok" for m in mine)


def _row(documents: RunDocuments, segment: Segment, mine: Sequence[Measurement]) -> tuple[str, ...]:
    results = {m.id: documents.latest.get(m.id) for m in mine}
    burnt, sent, stored, began = [], list[SoakFabricFacts](), list[SoakStorageFacts](), list[str]()
    new = list[str]()
    for m in mine:
        result = results[m.id]
        if result is None or result.status != "ok":
            continue
        began.append(result.provenance.started)
        if (burn := result.facts_of(BurnFacts)) is not None:
            burnt.append(burn)
            new += growth(burn.before, burn.after, burn.took_s / 60)[0]
            new += [f"{lost} is lost" for lost in burn.after.lost if lost not in burn.before.lost]
        elif (fabric := result.facts_of(SoakFabricFacts)) is not None:
            sent.append(fabric)
        elif (storage := result.facts_of(SoakStorageFacts)) is not None:
            stored.append(storage)
    nodes = sum(m.kind == "burn-in" for m in mine)
    devices = [device for burn in burnt for device in burn.devices]
    lost = sum(len(one.lost) for one in sent)
    bad = sum(one.wrong + len(one.lost) for one in stored)
    return (
        f"{segment.number} of {segment.of}", min(began, default=NONE)[:19].replace("T", " "),
        duration(max((one.took_s for one in burnt), default=0.0)) if burnt else NONE, f"{len(burnt)} of {nodes}",
        str(sum(one.gpus for one in burnt)), str(sum(one.checks + one.products for one in devices)),
        str(sum(one.wrong + sum(one.bad.values()) for one in devices)), str(sum(bool(one.fault) for one in devices)),
        str(len(new)), f"{lost} of {sum(len(one.sessions) for one in sent)} sessions lost" if sent else NONE,
        f"{bad} wrong or failed" if stored else NONE,
    )  # fmt: skip


FIGURES = (Drawn("gpu", 21, lambda documents, verdict: segment_figures(documents)),)
