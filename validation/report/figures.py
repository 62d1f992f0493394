"""All figures of the report: what the templates of the sections with drawings and charts are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validation.model import VerdictDoc
from validation.report import fabric
from validation.report.burn_in import burn_figures
from validation.report.collectives import collective_figures
from validation.report.curves import size_figure
from validation.report.documents import RunDocuments
from validation.report.fabric_drawing import fabric_figure, link_figure
from validation.report.front_lines import worst_link
from validation.report.gpus import gpu_figures
from validation.report.pool_use_figures import pool_use_figures
from validation.report.remoting import remoting_figures
from validation.report.scale_out import scale_out
from validation.report.script import script
from validation.report.svg.drawing import Figure
from validation.report.switch_load import switch_figures
from validation.report.topology_drawing import node_figures
from validation.report.training import Training, training
from validation.report.training_evidence import evidence_figures
from validation.report.training_figures import training_figures
from validation.report.training_turns import turns_figures
from validation.report.unplanned import unplanned
from validation.report.utilisation import utilisation_figure

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
    matrices = fabric.matrices(documents)
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
        "switch_figures": switch_figures(documents),
        "gpu_figures": (*gpu_figures(documents), *burn_figures(documents)),
        "training": jobs,
        "training_figures": (
            *training_figures(documents, jobs, verdict),
            *evidence_figures(documents),
            *turns_figures(documents, verdict),
            *collective_figures(documents, verdict),
        ),
        "scale_out": scale_out(documents, verdict),
        "remoting_figures": remoting_figures(documents, verdict),
        "operation_figures": (utilisation_figure(documents),),
        "pool_figures": pool_use_figures(documents),
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
