"""The report's page on scale-up and scale-out: every network on one base, beside tables 5 and 6."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.figures_case import added
from tests.support.report_fixture import make_run
from tests.support.site import CRITERIA, hardware, result
from tests.support.turns_documents import healthy_turns
from validation.measures.training.scale_out_figures import ScaleOut, scale_out
from validation.model import Bom, Measurement, Result
from validation.plan.suites import make_plan
from validation.report.documents import RunDocuments, read_run
from validation.report.render import fill, view
from validation.report.summary import verdict_of
from validation.rules.fabric import load_fabric

H100 = Bom(model="PowerEdge XE9680", gpu_model="NVIDIA H100 80GB HBM3", gpu_count=8)
RATES = {"1x8": 24000.0, "2x4": 23280.0, "4x2": 21600.0}


def jobs(**options: Any) -> list[Measurement]:
    servers = hardware(("head", "gpu1", "gpu2", "gpu3", "gpu4"), slots=8, bom=H100)
    plan = make_plan("run-1", servers, load_fabric("tcp10"), CRITERIA, ("preflight", "training"), options)
    return [m for m in plan.measurements if m.id.endswith(".outup")]


@pytest.fixture
def bare(tmp_path: Path) -> RunDocuments:
    """A run that planned no training in turns."""
    whole = read_run(make_run(tmp_path / "run"))
    others = tuple(m for m in whole.plan.measurements if m.kind != "training-turns")
    names = {m.id for m in others}
    mine = tuple(r for r in whole.results if r.measurement in names)
    return replace(whole, plan=whole.plan.model_copy(update={"measurements": others}), results=mine)


def page(documents: RunDocuments) -> ScaleOut:
    return scale_out(documents, verdict_of(documents))


def test_every_network_has_a_row_and_every_layout_a_column_over_one_node(bare: RunDocuments) -> None:
    pairs = [(m, healthy_turns(m, rates=RATES)) for m in jobs(models="resnet50,vgg16")]
    found = page(added(bare, pairs))
    assert found.nodes == (1, 2, 4)
    mine = [row for row in found.rows if row.cells]
    assert [row.trained.partition(",")[0] for row in mine] == ["ResNet-50", "VGG-16"]
    for row in mine:
        assert [(cell.layout, round(cell.over or 0, 2)) for cell in row.cells] == [
            ("1 \u00d7 8", 1.0), ("2 \u00d7 4", 0.97), ("4 \u00d7 2", 0.9),
        ]  # fmt: skip
        interval = re.fullmatch(r"0\.970 \((0\.\d+) to (\d\.\d+)\)", row.cells[1].ratio)
        assert interval is not None
        assert float(interval[1]) <= 0.97 <= float(interval[2])
    assert [row.model for row in found.rows if not row.cells] == [
        "inception4", "vgg19", "inception3", "googlenet", "alexnet",
    ], "published, and not trained here"  # fmt: skip


def test_tables_5_and_6_stand_beside_it_over_their_own_one_node(bare: RunDocuments) -> None:
    found = page(added(bare, [(m, healthy_turns(m, rates=RATES)) for m in jobs(models="vgg16")]))
    printed = {row.model: [re.sub(r"\s", "", text) for text in row.printed] for row in found.rows}
    assert printed["vgg16"] == ["2762(1.000)", "2820(1.021)", "3734(1.352)"]
    assert printed["resnet50"] == ["4852(1.000)", "4500(0.927)", "5904(1.217)"]
    assert len(found.systems) == 3
    assert "tables 5 and 6" in found.source


def outcome(m: Measurement, what: str) -> Result | None:
    if what == "failed":
        return result(m, [], status="failed", error="rank 3 on gpu2 was ended by signal 9")
    if what == "full":
        return healthy_turns(m, rates=RATES, changes={"1x8": {"cannot": "out of memory: a batch of 128 images"}})
    if what == "one way":
        return healthy_turns(m, rates=RATES, changes={"4x2": {"cannot": "torchvision is not here"}})
    return None


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("failed", "rank 3 on gpu2 was ended by signal 9"),
        ("full", "out of memory: a batch of 128 images"),
        ("one way", "4 \u00d7 2: torchvision is not here"),
        ("none", "no result"),
    ],
)
def test_what_was_not_measured_says_why_in_its_place(bare: RunDocuments, what: str, words: str) -> None:
    documents = added(bare, [(m, outcome(m, what)) for m in jobs(models="resnet50")])
    text = re.sub(r"<[^>]+>", " ", fill(view(documents)).partition('<h3 id="scale-out">')[2].partition("<h3")[0])
    row = next(
        part
        for part in re.split(r"(?=ResNet-50|VGG|Inception|GoogLeNet|AlexNet)", text)
        if part.startswith("ResNet-50, b")
    )
    assert words in " ".join(row.split())
    assert "not measured" in row


def test_it_has_a_heading_of_its_own_in_the_annex_of_figures(bare: RunDocuments) -> None:
    html = fill(view(bare), printed=True)
    annex = html.partition('<section class="annex" aria-labelledby="figures">')[2]
    annex = annex.partition('<section class="annex"')[0]
    assert '<section aria-labelledby="scale-out">' in annex
    assert 'href="#figures"' in html
    found = page(bare)
    assert found.figure.svg is None
    assert str(found.figure.empty).startswith("Not measured: ")


def test_the_curve_has_each_network_and_the_published(bare: RunDocuments) -> None:
    found = page(added(bare, [(m, healthy_turns(m, rates=RATES)) for m in jobs(models="resnet50,vgg16")]))
    drawn = str(found.figure.svg)
    assert "0.900 on 4" in drawn
    assert "VGG-16" in drawn
    assert "published, of two makers" in drawn
    assert found.figure.table is not None
    assert len(found.figure.table.rows) == 6
