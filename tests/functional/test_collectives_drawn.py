"""Bus bandwidth over message size in the report: every job, its ceiling, and a reason where nothing was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.report_fixture import make_run
from validation.measures.collectives.collectives_figures import collective_figures
from validation.report import write_html
from validation.report.documents import RunDocuments, read_run
from validation.report.summary import verdict_of
from validation.report.svg.drawing import Figure

pytestmark = pytest.mark.computes


def figures(run: Path) -> tuple[Figure, ...]:
    documents: RunDocuments = read_run(run)
    return collective_figures(documents, verdict_of(documents))


def test_curves_of_a_rehearsal_name_the_backend_and_no_bound(tmp_path: Path) -> None:
    (figure,) = figures(make_run(tmp_path / "run"))
    assert figure.table is not None
    assert [row[1] for row in figure.table.rows if row[0] == "all-reduce"] == ["4 KiB", "64 KiB", "1 MiB"]
    assert "by gloo (torch)" in figure.caption
    assert "ceiling" not in str(figure.svg)


def test_hardware_has_a_figure_inside_and_across_with_floor_and_ceiling(tmp_path: Path) -> None:
    inside, two = figures(make_run(tmp_path / "run", virtual=False, waive=True))
    assert "inside a server" in inside.caption
    assert "2 jobs" in inside.caption
    assert "across two servers" in two.caption
    assert "all-reduce, floor" in str(inside.svg)
    assert "all-reduce, ceiling" in str(two.svg)
    assert two.table is not None
    best = max(float(row[2]) for row in two.table.rows if row[0] == "all-reduce")
    assert best == pytest.approx(0.75 * 1.25 * 2 * 3 / 4, rel=0.01)


def test_each_bound_of_a_criterion_has_a_name_of_its_own_on_the_page(tmp_path: Path) -> None:
    page = write_html(make_run(tmp_path / "run", virtual=False, waive=True)).read_text()
    names = re.findall(r'class="derivation"[^>]* aria-label="([^"]+)"', page)
    assert {"Bound of tr.tcpbw", "Bound 1 of tr.nccl", "Bound 2 of tr.nccl"} <= set(names)
    assert len(names) == len(set(names))


def test_without_a_job_the_frame_says_why(tmp_path: Path) -> None:
    (figure,) = figures(make_run(tmp_path / "none", suites=("preflight",)))
    assert figure.svg is None
    assert "the suite training was not selected" in (figure.empty or "")
    (lost,) = figures(make_run(tmp_path / "lost", dead="gpu2"))
    assert "no job has a usable result" in (lost.empty or "")
