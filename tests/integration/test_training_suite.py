"""Suite training on provisioned nodes: one command, and every table and chart of training in the report is filled."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Provisioned, validation_of

from validation.report.documents import read_run
from validation.report.figures import figures_context
from validation.report.summary import verdict_of

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.rest]
NEEDS = {
    "throughput": "a published network, which takes GPUs",
    "accuracy": "a long training, which is asked for by itself: test_training_long.py",
}
"""Figures of the section that stay empty in a lab, and what they need."""


def test_every_table_and_chart_of_training_is_filled(provisioned: Provisioned, tmp_path: Any) -> None:
    run = validation_of(
        provisioned.lab.inventory, tmp_path / "runs", "--fabric", "tcp10", "--suite", "training", "--format", "html"
    )
    assert run.exit_code == 0, run.stderr[-3000:]
    said = {c["id"]: c for c in run.verdict["criteria"] if c["id"].startswith("tn.")}
    assert len(said) > 15
    assert not [id_ for id_, c in said.items() if c["reason_code"] == "no-probe"]
    left = {id_: c["reason"] for id_, c in said.items() if c["reason_code"] == "not-selected"}
    assert all(f"({id_})" in why for id_, why in left.items()), left
    measured = {id_ for id_, c in said.items() if any(j["value"] is not None for j in c["judgements"])}
    assert {"tn.short", "tn.intra", "tn.inter", "tn.rate", "tn.comm", "tn.cpu"} <= measured
    assert {"tn.cores", "tn.turns", "tn.twin", "tn.outup"} <= measured
    documents = read_run(run.folder)
    context = figures_context(documents, verdict_of(documents))
    assert all(row.problem is None for row in context["training"].rows)
    assert {figure.id for figure in context["training_figures"] if figure.empty} <= set(NEEDS)
    page = context["scale_out"]
    assert not page.figure.empty
    assert [cell.rate is not None for cell in page.rows[0].cells] == [True, True]
