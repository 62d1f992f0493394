"""All figures of the report: what the templates of the sections with drawings and charts are given."""

from __future__ import annotations

from typing import Any

from validation.model import VerdictDoc
from validation.report import fabric
from validation.report.documents import RunDocuments
from validation.report.script import script
from validation.report.training import training


def figures_context(documents: RunDocuments, verdict: VerdictDoc) -> dict[str, Any]:
    """Values for the templates: the figures by section, and `figure_sections`, (anchor, title) of those that are there.

    Pure: reads no file and no clock.
    """
    matrices = fabric.matrices(documents)
    jobs = training(documents)
    sections = [("fabric", "Fabric")] if matrices else []
    sections += [("training", "Training")] if jobs else []
    text, source = script()
    return {
        "matrices": matrices,
        "training": jobs,
        "figure_sections": tuple(sections),
        "script": text,
        "script_source": source,
    }
