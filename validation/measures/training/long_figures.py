"""The long test in the report: its learning curve, and what came out."""

from __future__ import annotations

from validation.measures.training.long import LongTrainingFacts
from validation.measures.training.long_outcome import another, outcome
from validation.model import VerdictDoc
from validation.report.documents import RunDocuments
from validation.report.numbers import number, percent
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Axis, Series, line_chart

KIND = "training-long"
SHOWN_EPOCHS = 12
CURVES = (
    ("train_top5", "training, top-5"),
    ("train_top1", "training, top-1"),
    ("val_top5", "validation, top-5"),
    ("val_top1", "validation, top-1"),
)


def long_figure(documents: RunDocuments, verdict: VerdictDoc) -> Figure:
    """Accuracy by epoch of the run's long training; an empty frame with the reason where it has none."""
    words = "Accuracy of the long test after each epoch."
    latest = documents.latest
    for m in documents.plan.measurements:
        result = latest.get(m.id) if m.kind == KIND else None
        facts = result.facts_of(LongTrainingFacts) if result is not None and result.status == "ok" else None
        if facts is not None and facts.curve:
            return _figure(facts, words)
    criterion = next((c for c in verdict.criteria if c.id == "tn.long"), None)
    reason = criterion.reason if criterion else "no criterion asks for it"
    return Figure("accuracy", words, empty=f"Not measured: {reason}.", criteria=("tn.long",))


def _figure(facts: LongTrainingFacts, words: str) -> Figure:
    series = [
        Series(label, tuple((float(line.epoch), 100 * getattr(line, metric)) for line in facts.curve), markers=False)
        for metric, label in CURVES
    ]
    resumed = sorted({mark.epoch for mark in facts.resumed if mark.epoch < facts.epochs})
    tick = max(1, round(facts.epochs / 9))
    svg = line_chart(
        "accuracy-chart",
        "Accuracy by epoch",
        "; ".join(f"{s.label}: from {number(s.points[0][1])} to {number(s.points[-1][1])} %" for s in series) + ".",
        Axis("epoch", 0.0, float(facts.epochs), marks=tuple(float(at) for at in range(0, facts.epochs + 1, tick))),
        Axis("right answers, %", 0.0, 105.0),
        series,
    )
    step = max(1, -(-len(facts.curve) // SHOWN_EPOCHS))
    picked = [line for line in facts.curve if line.epoch % step == 0 or line.epoch in (1, facts.epochs)]
    rows = tuple(
        (
            str(line.epoch), number(line.rate), number(line.loss), *(percent(getattr(line, one)) for one, _ in CURVES),
            number(line.images_per_s), percent(line.input_s / line.train_s if line.train_s else 0.0),
        )
        for line in picked
    )  # fmt: skip
    head = ("Epoch", "Learning rate", "Loss", *(label for _, label in CURVES), "Images/s", "Waiting for pictures")
    caption = (
        f"{words} {outcome(facts)[:1].upper()}{outcome(facts)[1:]}. The input by itself: "
        f"{number(facts.predicted.input_images_per_s)} images/s. Accuracy on training data is that of the pictures as "
        "they were learned from, cut at random; on validation data that of whole ones."
    )
    if other := another(facts):
        caption += f" It shows the procedure and is {other}."
    if resumed:
        caption += f" It went on from a checkpoint in epoch {', '.join(str(epoch + 1) for epoch in resumed)}."
    table = DataTable("Learning curve; results.jsonl has every epoch.", head, rows)
    return Figure("accuracy", caption, svg, table, None, ("tn.long",))
