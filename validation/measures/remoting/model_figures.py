"""What the model predicts of a training through the engine, beside what was measured, and what would help."""

from __future__ import annotations

from validation.analysis.remote_model import JUDGED_FROM, WITHIN
from validation.measures.remoting.explained import Explained, advice, explained
from validation.measures.remoting.train import RemoteTrainFacts, load_of
from validation.measures.remoting.training_figures import ratio_chart
from validation.report.documents import RunDocuments
from validation.report.numbers import NONE, number
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Series
from validation.report.unplanned import unplanned

CRITERIA = ("rm.model",)
HEAD = (
    "Server",
    "Batch",
    "Remote / native, predicted",
    "Measured",
    "Difference",
    "Step natively, us",
    "Synchronisations add, us",
    "Copies add, us",
    "Launches add, us",
    "What would help most",
)
CAPTION = (
    "The ratio that follows from what a step asks for (launches, synchronisations, bytes) and from what each cost both "
    "ways in the same lease, beside the measured one; of the steps in the middle."
)


def _link_bytes_s(documents: RunDocuments) -> float | None:
    """What the fabric's ports carry; not known of what is virtual, whose links are not the profile's."""
    return None if documents.virtual else documents.fabric.line_rate_gbps * 1e9 / 8


def _us(seconds: float) -> str:
    """Microseconds to a hundredth."""
    return number(round(seconds * 1e6, 2) + 0.0)


def _row(server: str, batch: int, one: Explained) -> tuple[str, ...]:
    made = one.prediction
    best = one.gains[0] if one.gains else None
    return (
        server,
        str(batch),
        f"{made.ratio:.3f}",
        f"{one.measured:.3f}",
        f"{one.difference:+.1%}" + ("" if one.holds else ": not explained"),
        _us(made.native),
        _us(made.synchronisations),
        _us(made.copies),
        _us(made.launches),
        f"{best.change}: {best.ratio:.3f}" if best else "nothing noticeably",
    )


def _spoken_of(found: dict[int, Explained]) -> int:
    """The batch that a sentence is of: the smallest that is judged, else the largest."""
    return min((batch for batch in found if batch >= JUDGED_FROM), default=max(found))


def model_figure(documents: RunDocuments) -> Figure:
    """Predicted and measured over batch sizes; an empty frame with the reason where nothing was measured."""
    planned = [m for m in documents.plan.measurements if m.kind == "remoting-train" and not load_of(m.params)]
    if not planned:
        why = unplanned(documents, "remoting", CRITERIA)
        return Figure("model", CAPTION, empty=why, criteria=CRITERIA)
    rows: list[tuple[str, ...]] = []
    series: list[Series] = []
    said: list[str] = []
    lost: list[str] = []
    emulated = False
    link = _link_bytes_s(documents)
    for m in planned:
        result, server = documents.latest.get(m.id), str(m.params.get("server", ""))
        facts = result.facts_of(RemoteTrainFacts) if result is not None and result.status == "ok" else None
        if facts is None:
            lost.append(documents.lost(m.id))
            rows.append((server, NONE, "not measured", lost[-1], *[NONE] * (len(HEAD) - 4)))
            continue
        whole = explained(facts, link)
        found = {batch: one for batch, one in whole.items() if isinstance(one, Explained)}
        for batch, one in whole.items():
            if isinstance(one, Explained):
                rows.append(_row(server, batch, one))
            else:
                lost.append(str(one))
                rows.append((server, str(batch), "not measured", lost[-1], *[NONE] * (len(HEAD) - 4)))
        if not found:
            continue
        emulated |= facts.emulated
        spoken = _spoken_of(found)
        said.append(f"{server}, batch {spoken}: {advice(found[spoken])}.")
        points = [(float(batch), one.prediction.ratio, one.measured) for batch, one in found.items()]
        lines = len(points) > 1
        series.append(Series(f"{server}, predicted", tuple((x, y) for x, y, _ in points), line=lines))
        series.append(Series(f"{server}, measured", tuple((x, y) for x, _, y in points), line=lines))
    if not series:
        why = [*lost, documents.lost(planned[0].id)][0]
        return Figure("model", CAPTION, empty=f"Not measured: {why}.", criteria=CRITERIA)
    caption = f"{CAPTION} {' '.join(said)}"
    caption += " GPUs are emulated: what would help them, would help no GPU." if emulated else ""
    table = DataTable(f"The model is held to explain a ratio within {WITHIN:.0%}.", HEAD, tuple(rows))
    svg = ratio_chart("model-chart", "Remote over native, predicted and measured", series)
    return Figure("model", caption, svg, table, None, CRITERIA)
