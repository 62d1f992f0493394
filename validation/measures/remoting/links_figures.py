"""Remote over native by bandwidth, delay and batch: trainings over links that one machine made by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from validation.analysis.remote_model import WITHIN
from validation.analysis.scaling import Efficiency, efficiency
from validation.measures.remoting.explained import Explained, calls_of, explained
from validation.measures.remoting.train import MadeLink, RemoteTrainFacts, load_of, loaded
from validation.model import Measurement
from validation.report.documents import RunDocuments
from validation.report.numbers import NONE, number
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Axis, Series, line_chart

KIND = "remoting-train"
CRITERIA = ("rm.ratio", "rm.model", "rm.same")
RATIO = "Remote / native (95 % interval)"
HEAD = (
    "Link, each way",
    "Made by",
    "Batch",
    "Native, images/s",
    "Remote, images/s",
    RATIO,
    "Predicted",
    "Difference",
    "A synchronisation took, us",
    "Copies to the GPU, GB/s",
    "Same results",
)
SHORT = ("Link, each way", "Batch", "Measured", "Predicted")
MADE = {
    "tbf": "the kernel's rate limit (tbf) between network namespaces",
    "netem": "the kernel's delay (netem)",
    "relay": "a relay's delay, a program on the near side",
}


@dataclass(frozen=True)
class Point:
    """A batch over a link. model: None where the model says nothing."""

    link: MadeLink
    batch: int
    measured: Efficiency
    model: Explained | None


def planned(documents: RunDocuments) -> list[Measurement]:
    """Trainings over links that were made for them."""
    return [m for m in documents.plan.measurements if m.kind == KIND and MadeLink.of(m.params) is not None]


def links_figures(documents: RunDocuments) -> tuple[Figure, ...]:
    """Three curves, the first with the table of all; an empty frame with the reason where nothing was measured, none
    where nothing was planned.
    """
    wanted = planned(documents)
    figures: list[Figure] = []
    for mine in ([m for m in wanted if bool(load_of(m.params)) is by_torch] for by_torch in (False, True)):
        figures += _figures(documents, mine) if mine else ()
    return tuple(figures)


def _figures(documents: RunDocuments, wanted: Sequence[Measurement]) -> tuple[Figure, ...]:
    """Of one program."""
    program = loaded(wanted[0])
    suffix = "-torch" if program else ""
    what = f"{program} trained" if program else "The same training"
    caption = f"{what} on one GPU of this machine, natively and through the engine over links made on it."
    points: list[Point] = []
    rows: list[tuple[str, ...]] = []
    about: dict[str, None] = {}
    why, emulated = "", False
    for m in wanted:
        link, result = MadeLink.of(m.params), documents.latest.get(m.id)
        assert link is not None
        facts = result.facts_of(RemoteTrainFacts) if result is not None and result.status == "ok" else None
        if facts is None:
            gone = documents.lost(m.id)
            why = why or gone
            rows.append((link.words, NONE, NONE, "not measured", gone, *[NONE] * (len(HEAD) - 5)))
            continue
        mine = _points(link, facts)
        points += mine
        rows += [_row(point, facts) for point in mine]
        emulated |= facts.emulated
        about[f"{_trained(facts)}, on {facts.device}, engine {facts.engine} {facts.engine_release}"] = None
    if not points:
        return (Figure(f"links{suffix}", caption, empty=f"Not measured: {why}.", criteria=CRITERIA),)
    made = dict.fromkeys(by for p in points for by in (p.link.rate_by, p.link.delay_by) if by)
    caption += f" {'; '.join(about)}. {_made_by(list(made))}"
    caption += "" if program else " Filled: measured; hollow: what the model predicts."
    caption += " GPUs are emulated: not a GPU's figures." if emulated else ""
    model = "" if program else f" The model explains a ratio within {WITHIN:.0%} of it."
    table = DataTable(
        f"Rates by all images over all the time of all turns.{model}",
        HEAD,
        tuple(rows),
    )
    return _drawn(points, caption, table, suffix)


def _trained(facts: RemoteTrainFacts) -> str:
    if facts.network:
        return facts.title
    return f"elastic-ai-train, {facts.inputs} inputs, {facts.hidden} hidden values"


def _made_by(made: list[str]) -> str:
    words = [MADE[by] for by in made]
    if made == ["relay"]:
        words = ["a relay on loopback, rate and delay alike, which takes processor time"]
    return f"Made by: {', '.join(words)}." if words else "Over the loopback alone."


def _points(link: MadeLink, facts: RemoteTrainFacts) -> list[Point]:
    said = explained(facts)
    found = []
    for batch in facts.batches():
        one = said[batch]
        ratio = efficiency(facts.rates("remote", batch), facts.rates("native", batch), 1)
        found.append(Point(link, batch, ratio, one if isinstance(one, Explained) else None))
    return found


def _row(point: Point, facts: RemoteTrainFacts) -> tuple[str, ...]:
    it, model, calls = point.measured, point.model, calls_of(facts.of("remote", point.batch))
    runs = [run for run in facts.runs if run.batch == point.batch]
    other = facts.differ(point.batch)
    rate = NONE
    if calls is not None and calls.to_device > calls.synchronisation:
        a_step = runs[0].bytes_to_devices / facts.steps
        rate = number(a_step / (calls.to_device - calls.synchronisation) / 1e9)
    by = [word for word in dict.fromkeys((point.link.rate_by, point.link.delay_by)) if word]
    return (
        point.link.words,
        " and ".join(by) or NONE,
        str(point.batch),
        number(it.single),
        number(it.rate),
        f"{it.value:.3f} ({it.low:.3f} to {it.high:.3f})",
        f"{model.prediction.ratio:.3f}" if model else NONE,
        f"{model.difference:+.1%}" + ("" if model.holds else ": not explained") if model else NONE,
        number(round(calls.synchronisation * 1e6, 1)) if calls else NONE,
        rate,
        f"no, {other} of {len(runs)} differ" if other else f"yes, {len(runs)} of {len(runs)}",
    )


def _drawn(points: Sequence[Point], caption: str, table: DataTable, suffix: str) -> tuple[Figure, ...]:
    batch = max(point.batch for point in points)
    shaped = [point for point in points if point.link.gbps and point.batch == batch]
    slow = [point for point in shaped if point.link.delay_us]

    def delay(point: Point) -> str:
        return f"{point.link.delay_us:g} us each way"

    def rate(point: Point) -> str:
        return f"{point.link.gbps:g} Gbit/s"

    def words(point: Point) -> str:
        return point.link.words

    figures = [
        _curves(
            f"links{suffix}", f"{caption} By the link's rate, at batch {batch}.", table, shaped, delay,
            lambda p: p.link.gbps, "rate of the link, Gbit/s",
        ),
        _curves(
            f"links-delay{suffix}", f"The same at batch {batch}, by the link's delay.", None, slow, rate,
            lambda p: p.link.delay_us, "delay of the link each way, us",
        ),
        _curves(
            f"links-batch{suffix}", "The same by the images of a step.", None, _apart(points), words,
            lambda p: float(p.batch), "images of a step",
        ),
    ]  # fmt: skip
    return tuple(figures)


def _apart(points: Sequence[Point]) -> list[Point]:
    """Of the loopback, the fastest link without delay, and the slowest with the longest."""
    links = list(dict.fromkeys(point.link for point in points))
    ordered = sorted(links, key=lambda link: (bool(link.gbps), -link.gbps, link.delay_us))
    kept = dict.fromkeys((ordered[0], *ordered[1:2], *ordered[-1:]))
    return [point for point in points if point.link in kept]


def _curves(
    name: str,
    caption: str,
    table: DataTable | None,
    points: Sequence[Point],
    group: Callable[[Point], str],
    at: Callable[[Point], float],
    axis: str,
) -> Figure:
    """A curve of what was measured for each group, and hollow points of what the model predicts."""
    if not points:
        return Figure(name, caption, None, table, "Not drawn: no link with this was measured.", CRITERIA)
    groups = list(dict.fromkeys(map(group, points)))
    series: list[Series] = []
    rows = [
        (p.link.words, str(p.batch), f"{p.measured.value:.3f}", f"{p.model.prediction.ratio:.3f}" if p.model else NONE)
        for p in points
    ]
    for one in groups:
        mine = sorted((p for p in points if group(p) == one), key=at)
        measured = tuple((at(p), p.measured.value) for p in mine)
        series.append(Series(f"{one}, measured", measured, line=len(measured) > 1))
    for index, one in enumerate(groups):
        mine = sorted((p for p in points if group(p) == one), key=at)
        told = tuple((at(p), p.model.prediction.ratio) for p in mine if p.model)
        if told:
            series.append(Series(f"{one}, predicted", told, hollow=True, line=False, like=index))
    places = sorted({x for one in series for x, _ in one.points})
    top = max(1.0, *(y for one in series for _, y in one.points)) * 1.08
    svg = line_chart(
        f"{name}-chart",
        f"Remote over native, by {axis}",
        "; ".join(f"{s.label}: " + ", ".join(f"{y:.3f} at {x:g}" for x, y in s.points) for s in series) + ".",
        Axis(axis, places[0] * 0.8, places[-1] * 1.25, log=True, marks=tuple(places)),
        Axis("rate through the engine over native rate", 0.0, top),
        series,
    )
    return Figure(name, caption, svg, table or DataTable("What is drawn.", SHORT, tuple(rows)), None, CRITERIA)
