"""All figures of the report: what the templates of the sections with drawings and charts are given."""

from __future__ import annotations

from typing import Any

from validation.model import VerdictDoc
from validation.report import fabric
from validation.report.burn_in import burn_figures
from validation.report.collectives import collective_figures
from validation.report.curves import size_figure
from validation.report.documents import RunDocuments
from validation.report.fabric_drawing import fabric_figure, link_figure
from validation.report.gpus import gpu_figures
from validation.report.pool_use_figures import pool_use_figures
from validation.report.remoting import remoting_figures
from validation.report.scale_out import scale_out
from validation.report.script import script
from validation.report.switch_load import switch_figures
from validation.report.topology_drawing import node_figures
from validation.report.training import training
from validation.report.training_evidence import evidence_figures
from validation.report.training_figures import training_figures
from validation.report.training_turns import turns_figures
from validation.report.utilisation import utilisation_figure


def figures_context(documents: RunDocuments, verdict: VerdictDoc) -> dict[str, Any]:
    """Values for the templates: the figures by section, and `figure_sections`, (anchor, title) of those sections.

    Every section is there, whatever was measured: what has no measurement says so in its frame. Pure: reads no file of
    the run and no clock.
    """
    jobs = training(documents)
    links = link_figure(documents)
    text, source = script()
    return {
        "topology_figures": (fabric_figure(documents), *([links] if links else []), *node_figures(documents)),
        "matrices": fabric.matrices(documents),
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
        "figure_sections": (
            ("topology", "Topology"),
            ("fabric", "Fabric"),
            ("gpus", "GPUs and host memory"),
            ("training", "Training"),
            ("scale-out", "Scale-up and scale-out"),
            ("remoting", "Remoting and fractions"),
            ("operation", "Operation"),
            ("pool-use", "Use of the pool"),
        ),
        "script": text,
        "script_source": source,
    }
