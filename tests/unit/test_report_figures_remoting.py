"""The report's figures of GPUs over the network: ratios, training and answers both ways, and the model beside them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.figures_case import added as with_more
from tests.support.figures_case import cells, measurement, result, rich
from tests.support.remote_train_documents import INFER, TRAIN, infer_result, train_result
from tests.support.report_fixture import make_run
from validation.measures.remoting.section_figures import remoting_figures
from validation.model import Measurement, Result
from validation.report.documents import RunDocuments, read_run
from validation.report.numbers import number
from validation.report.summary import verdict_of
from validation.report.svg.drawing import Figure


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    return rich(tmp_path_factory.mktemp("rich") / "run")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> RunDocuments:
    """A lab's TCP run: no RDMA, no remoting, no recording, no losses."""
    return read_run(make_run(tmp_path_factory.mktemp("bare") / "run"))


def test_ratios_show_interval_bound_failure_and_the_published(everything: RunDocuments) -> None:
    figure = next(f for f in remoting_figures(everything, verdict_of(everything)) if f.id == "rm-ratio")
    text = str(figure.svg)
    assert "bound ≥ 0.9500" in text
    assert text.count('stroke="#b3261e" stroke-width="3"') == 1
    assert "resnet50, batch 32 | 0.9020 | 0.8900 \u2013 0.9110 | fail | \u2013 | this run" in cells(figure)
    assert cells(figure).count("published, not judged") == 7  # four of others, three of the documents
    assert "roce100: 5 % or less below native | 0.9500" in cells(figure)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (("not-applicable", "reported"), "reported"),
        (("not-measured", "virtual"), "measured, not judged"),
        (("not-measured", "too-noisy"), "measured, not judged"),
        (("fail", "outside-bounds"), "fail"),
        (("waived", "waived"), "waived"),
    ],
)
def test_a_ratio_that_is_shown_is_not_said_to_be_not_measured(
    everything: RunDocuments, said: tuple[str, str], shown: str
) -> None:
    verdict = verdict_of(everything)
    mine = next(c for c in verdict.criteria if c.id == "rm.ratio")
    changed = dict(zip(("verdict", "reason_code"), said, strict=True))
    judgements = tuple(j.model_copy(update=changed) for j in mine.judgements)
    others = tuple(
        c.model_copy(update={"judgements": judgements}) if c.id == "rm.ratio" else c for c in verdict.criteria
    )
    found = remoting_figures(everything, verdict.model_copy(update={"criteria": others}))
    rows = next(f.table for f in found if f.id == "rm-ratio").rows  # type: ignore[union-attr]
    assert {row[3] for row in rows if row[5] == "this run"} == {shown}


def both_ways(batch_32: float = 0.9, **how: Any) -> tuple[Measurement, Result]:
    params = {**TRAIN, "server": "gpu1"}
    m = measurement("remoting-train", "client1.gpu1", ("client1", "gpu1"), params=params)
    return m, train_result(m, ratios={32: batch_32}, **how)


def test_a_training_both_ways_is_shown_by_batch_with_what_each_step_asked(bare: RunDocuments) -> None:
    figure = next(f for f in remoting_figures(with_more(bare, [both_ways()]), verdict_of(bare)) if f.id == "both-ways")
    assert "GPUs are emulated: not a GPU's figures." in figure.caption
    assert "0.900 at 32" in str(figure.svg)
    assert figure.table is not None
    row = next(row for row in figure.table.rows if row[4] == "32")
    assert [cell.replace("\u2009", "") for cell in row[-4:]] == ["13", "8324", "1", "yes, 4 of 4"]

    def spoil(turn: int, way: str, batch: int, report: dict[str, Any]) -> None:
        if (turn, way, batch) == (2, "remote", 8):
            report["weights_sha256"] = "f" * 64

    documents = with_more(bare, [both_ways(change=spoil)])
    figure = next(f for f in remoting_figures(documents, verdict_of(bare)) if f.id == "both-ways")
    assert "no, 1 of 4 differ" in cells(figure)


def test_a_training_by_verbs_has_the_packets_that_prove_it_in_its_caption(bare: RunDocuments) -> None:
    params = {**TRAIN, "server": "gpu1", "transport": "verbs"}
    m = measurement("remoting-train", "gpu2.gpu1", ("gpu2", "gpu1"), params=params)
    one = train_result(m, packets={"sent": 12345, "received": 6789})
    figures = remoting_figures(with_more(bare, [(m, one)]), verdict_of(bare))
    caption = next(f.caption for f in figures if f.id == "both-ways")
    assert " by verbs (RDMA ports of gpu2: 12345 packets sent, 6789 received)" in caption


def test_a_training_both_ways_that_failed_is_an_empty_frame_with_its_reason(bare: RunDocuments) -> None:
    m, _ = both_ways()
    failed = result(m, status="failed").model_copy(update={"error": "turn 1, remote, batch 8: 801"})
    figure = next(f for f in remoting_figures(with_more(bare, [(m, failed)]), verdict_of(bare)) if f.id == "both-ways")
    assert figure.svg is None
    assert figure.empty == "Not measured: turn 1, remote, batch 8: 801."


def model_of(bare: RunDocuments, **how: Any) -> Figure:
    documents = with_more(bare, [both_ways(**how)])
    return next(f for f in remoting_figures(documents, verdict_of(bare)) if f.id == "model")


def test_the_predicted_ratio_stands_beside_the_measured_one_with_what_would_help(bare: RunDocuments) -> None:
    figure = model_of(bare)
    assert figure.table is not None
    assert figure.table.head[2:5] == ("Remote / native, predicted", "Measured", "Difference")
    row = [cell.replace("\u2009", "") for cell in next(row for row in figure.table.rows if row[1] == "32")]
    assert row[:4] == ["gpu1", "32", "0.900", "0.900"]
    assert row[4] in ("+0.0%", "-0.0%")
    assert row[6:9] == ["355.6", "0", "0"], "1 / 0.9 - 1 of 3.2 ms, and all of it the synchronisation's"
    assert row[9] == "a batch twice as large: 0.947"
    assert "gpu1, batch 32: a batch twice as large would help most: 0.947 for the predicted 0.900" in figure.caption
    assert "half the latency 0.947" in figure.caption
    assert "GPUs are emulated: what would help them, would help no GPU." in figure.caption
    assert "gpu1, predicted: " in str(figure.svg)
    assert "gpu1, measured: " in str(figure.svg)


def test_a_ratio_that_the_model_does_not_explain_is_marked_and_one_without_costs_is_not_measured(
    bare: RunDocuments,
) -> None:
    def spoil(turn: int, way: str, batch: int, report: dict[str, Any]) -> None:
        if batch == 8:
            del report["costs"]
        elif way == "remote":
            for kind in ("synchronisation_s", "launches_s", "to_device_s", "from_device_s"):
                report["costs"][kind] = [0.01] * 3

    figure = model_of(bare, change=spoil)
    assert figure.table is not None
    assert figure.table.rows[0][2] == "not measured"
    assert "older release" in figure.table.rows[0][3]
    assert figure.table.rows[1][4].endswith("%: not explained")
    figure = model_of(bare, change=lambda *job: job[3].pop("costs"))
    assert (figure.svg, figure.table) == (None, None)
    assert "what its calls cost was not measured" in str(figure.empty)


def test_answers_are_shown_both_ways_by_batch(bare: RunDocuments) -> None:
    m = measurement("remoting-infer", "client1.gpu1", ("client1", "gpu1"), params={**INFER, "server": "gpu1"})
    answered = with_more(bare, [(m, infer_result(m, ratio=0.5))])
    figure = next(f for f in remoting_figures(answered, verdict_of(bare)) if f.id == "answers")
    assert "GPUs are emulated: not a GPU's figures." in figure.caption
    assert figure.svg is not None
    assert figure.table is not None
    rows = [row for row in figure.table.rows if row[3] == "8"]
    assert [row[4:6] for row in rows] == [("native", number(800.0)), ("remote", number(1600.0))]
    failed = result(m, status="failed").model_copy(update={"error": "turn 1, remote, batch 8: 801"})
    figure = next(f for f in remoting_figures(with_more(bare, [(m, failed)]), verdict_of(bare)) if f.id == "answers")
    assert (figure.svg, figure.empty) == (None, "Not measured: turn 1, remote, batch 8: 801.")
