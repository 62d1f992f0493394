"""All figures of the report: what the templates of the sections with drawings and charts are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.measures.fabric import pairs_figures
from validation.measures.rdma.sizes_figures import size_figure
from validation.measures.training.jobs_figures import Training, training
from validation.measures.training.scale_out_figures import scale_out
from validation.model import VerdictDoc
from validation.report.documents import RunDocuments
from validation.report.drawn import figures_of
from validation.report.fabric_drawing import fabric_figure, link_figure
from validation.report.front_lines import worst_link
from validation.report.script import script
from validation.report.svg.drawing import Figure
from validation.report.topology_drawing import node_figures
from validation.report.unplanned import unplanned

_FRONT_MATRICES = {False: ("tr.tcpbw", "tr.netlat"), True: ("tr.rdmabw", "tr.rdmalat")}
"""Heat maps that stand before the annexes, by whether the fabric has RDMA: bandwidth and latency."""
_FRONT = ("rm-ratio",)
"""Figures that do."""


def figures_context(documents: RunDocuments, verdict: VerdictDoc) -> dict[str, Any]:
    """Values for the templates: the figures by section, those that stand before the annexes (`highlights`), and those
    that have nothing to show (`undrawn`), each with its reason. Pure: reads no file of the run and no clock.
    """
    jobs = training(documents)
    links = link_figure(documents)
    text, source = script()
    matrices = pairs_figures.matrices(documents)
    nodes = node_figures(documents)
    asked = _FRONT_MATRICES[documents.fabric.needs_rdma]
    before = tuple(
        next(m for m in matrices if m.criterion == id_) for id_ in asked if id_ in {m.criterion for m in matrices}
    )
    found: dict[str, Any] = {
        "node_drawings": nodes,
        "topology_figures": (
            fabric_figure(documents, worst_link(documents)),
            *([links] if links else []),
            *nodes,
        ),
        "matrices": matrices,
        "front_matrices": before,
        "annex_matrices": tuple(one for one in matrices if one not in before),
        "size_figure": size_figure(documents),
        "switch_figures": figures_of("switch", documents, verdict),
        "storage_figures": figures_of("storage", documents, verdict),
        "gpu_figures": figures_of("gpu", documents, verdict),
        "training": jobs,
        "training_figures": figures_of("training", documents, verdict),
        "scale_out": scale_out(documents, verdict),
        "remoting_figures": figures_of("remoting", documents, verdict),
        "operation_figures": figures_of("operation", documents, verdict),
        "pool_figures": figures_of("pool", documents, verdict),
        "script": text,
        "script_source": source,
    }
    every = [*_every(found), found["scale_out"].figure]
    if not matrices:
        why = unplanned(documents, "transport")
        every.insert(0, Figure("matrices", "Bandwidth and latency between the ports.", empty=why))
    highlights = (*_scaling(jobs), *(f for f in every if f.id in _FRONT and f.svg))
    return {
        **found,
        "highlights": highlights,
        "shown_before": frozenset(figure.id for figure in highlights),
        "undrawn": tuple(figure for figure in every if not figure.svg and not figure.table),
        "undrawn_printed": tuple(figure for figure in every if figure.empty and not figure.svg),
    }


def _every(found: Mapping[str, Any]) -> list[Figure]:
    """All figures of the sections, in their order."""
    lists = [value for name, value in found.items() if name.endswith("_figures")]
    return [*(figure for several in lists for figure in several), found["size_figure"]]


def _scaling(jobs: Training | None) -> tuple[Figure, ...]:
    if jobs is None or not jobs.figure:
        return ()
    words = "Measured rate of training against ideal scaling; the numbers are in annex D."
    return (Figure("scaling-front", words, jobs.figure, None, None, ("tn.intra", "tn.inter")),)
