"""A training natively and through the engine, in turns: rates, their ratio by batch, and what each step asked."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from markupsafe import Markup

from validation.analysis.scaling import efficiency
from validation.base.counting import number_of
from validation.measures.remoting.facts import TITLES, Remoting, Trained
from validation.measures.remoting.infer import InferFacts
from validation.measures.remoting.move import MoveFacts
from validation.measures.remoting.train import RemoteTrainFacts, loaded, planned_load
from validation.model import Measurement
from validation.report.documents import RunDocuments
from validation.report.numbers import NONE, number
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.plots import Axis, Series, Span, interval_chart, line_chart
from validation.report.unplanned import unplanned

KIND = "remoting-train"
CRITERIA = ("rm.ratio", "rm.batch", "rm.same")
HEAD = (
    "Server",
    "Network",
    "Framework",
    "Engine",
    "Batch",
    "Native, images/s",
    "Remote, images/s",
    "Remote / native (95 % interval)",
    "Launches a step",
    "Bytes to and from the GPU a step",
    "Synchronisations a step",
    "Same losses and weights",
)


def network_words(facts: Trained) -> str:
    """`ResNet-50`; `small` of elastic-ai-train."""
    return TITLES.get(facts.network, facts.network) or "small"


def engine_words(facts: Remoting) -> str:
    """`torch 0.1.0`."""
    return f"{facts.engine} {facts.engine_release}".strip() or NONE


def _rows(server: str, facts: RemoteTrainFacts) -> tuple[list[tuple[str, ...]], list[tuple[float, float]]]:
    """A row for each batch size, and its ratio as a point."""
    rows: list[tuple[str, ...]] = []
    points: list[tuple[float, float]] = []
    for batch in facts.batches():
        native, remote = facts.rates("native", batch), facts.rates("remote", batch)
        found = efficiency(remote, native, 1)
        run = facts.of("remote", batch)[0]
        other = facts.differ(batch)
        of = len([run for run in facts.runs if run.batch == batch])
        rows.append(
            (
                server,
                network_words(facts),
                facts.framework or NONE,
                engine_words(facts),
                str(batch),
                number(found.single),
                number(found.rate),
                f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})",
                number(run.launches / facts.steps) if run.launches else NONE,
                number((run.bytes_to_devices + run.bytes_from_devices) / facts.steps),
                number(run.synchronisations / facts.steps),
                f"no, {other} of {of} differ" if other else f"yes, {of} of {of}",
            )
        )
        points.append((float(batch), found.value))
    return rows, points


def _by_verbs(job: Measurement, facts: RemoteTrainFacts) -> str:
    """What proves that the bytes went by RDMA; "" where leases go by TCP."""
    if facts.packets is None:
        return ""
    sent, received = facts.packets.sent, facts.packets.received
    return f" by verbs (RDMA ports of {job.nodes[0]}: {number_of(sent, 'packet')} sent, {received} received)"


def training_figure(documents: RunDocuments) -> Figure:
    """The ratio over batch sizes for each server; an empty frame with the reason where none was measured."""
    caption = "The same training on the same GPU, natively and through the engine, in turns."
    planned = [m for m in documents.plan.measurements if m.kind == KIND]
    if not planned:
        why = unplanned(documents, "remoting", CRITERIA)
        return Figure("both-ways", caption, empty=why, criteria=CRITERIA)
    rows: list[tuple[str, ...]] = []
    series: list[Series] = []
    about: dict[str, None] = {}
    emulated = False
    for m in planned:
        result, server = documents.latest.get(m.id), str(m.params.get("server", ""))
        planned_words, (network, framework) = loaded(m), planned_load(m)
        facts = result.facts_of(RemoteTrainFacts) if result is not None and result.status == "ok" else None
        if facts is None:
            lost = (server, network or "small", framework or NONE, NONE, NONE, "not measured", documents.lost(m.id))
            rows.append((*lost, *[NONE] * (len(HEAD) - len(lost))))
            continue
        mine, points = _rows(server, facts)
        rows += mine
        label = f"{planned_words} ({server})" if facts.network else f"{server}, from {m.nodes[0]}"
        series.append(Series(label, tuple(points), line=len(points) > 1))
        emulated |= facts.emulated
        what = (
            facts.title if facts.network else f"elastic-ai-train, {facts.inputs} inputs, {facts.hidden} hidden values"
        )
        about[f"{what}, on {facts.device}, engine {engine_words(facts)}{_by_verbs(m, facts)}"] = None
    if not series:
        return Figure("both-ways", caption, empty=f"Not measured: {documents.lost(planned[0].id)}.", criteria=CRITERIA)
    caption += f" {'; '.join(about)}." + (" GPUs are emulated: not a GPU's figures." if emulated else "")
    table = DataTable("Rates by all images over all the time of all turns.", HEAD, tuple(rows))
    svg = ratio_chart("both-ways-chart", "Remote over native, by batch", series)
    return Figure("both-ways", caption, svg, table, None, CRITERIA)


def ratio_chart(name: str, title: str, series: Sequence[Series]) -> Markup:
    """Rates through the engine over native ones, by the images of a step."""
    sizes = sorted({x for one in series for x, _ in one.points})
    top = max(1.0, *(y for one in series for _, y in one.points)) * 1.08
    return line_chart(
        name,
        title,
        "; ".join(f"{s.label}: " + ", ".join(f"{y:.3f} at {x:g}" for x, y in s.points) for s in series) + ".",
        Axis("images of a step", sizes[0] * 0.8, sizes[-1] * 1.25, log=True, marks=tuple(sizes)),
        Axis("rate through the engine over native rate", 0.0, top),
        series,
    )


ANSWERS = (
    "Server",
    "Network",
    "Engine",
    "Batch",
    "Way",
    "Half within, us",
    "99 of 100 within, us",
    "Images/s",
    "Same answers",
)


def answers_figure(documents: RunDocuments) -> Figure:
    """How long answers take both ways, by server and batch; the reason where none were measured."""
    caption = "Answers of a network one after the other, natively and through the engine: how long each takes."
    planned = [m for m in documents.plan.measurements if m.kind == "remoting-infer"]
    if not planned:
        why = unplanned(documents, "remoting", ("rm.infer",))
        return Figure("answers", caption, empty=why, criteria=("rm.infer",))
    rows: list[tuple[str, ...]] = []
    spans: list[Span] = []
    emulated = False
    for m in planned:
        result, server = documents.latest.get(m.id), str(m.params.get("server", ""))
        facts = result.facts_of(InferFacts) if result is not None and result.status == "ok" else None
        if facts is None:
            lost = (server, loaded(m) or NONE, NONE, NONE, "not measured", documents.lost(m.id))
            rows.append((*lost, *[NONE] * (len(ANSWERS) - len(lost))))
            continue
        emulated |= facts.emulated
        for batch in facts.batches():
            same = "no" if facts.differing(batch) else "yes"
            for way in ("native", "remote"):
                mine = [run for run in facts.runs if (run.way, run.batch) == (way, batch)]
                each = [median(getattr(run, key) for run in mine) for key in ("p50_us", "p99_us", "images_per_s")]
                who = (server, network_words(facts), engine_words(facts))
                rows.append((*who, str(batch), way, *map(number, each), same))
                about = f"{network_words(facts)} ({server})" if facts.network else server
                spans.append(Span(f"{about}, batch {batch}, {way}", each[0], each[0], each[1]))
    table = DataTable("Medians of the turns.", ANSWERS, tuple(rows))
    if not spans:
        return Figure("answers", caption, None, table, f"Not measured: {documents.lost(planned[0].id)}.", ("rm.infer",))
    caption += " GPUs are emulated: not a GPU's figures." if emulated else ""
    svg = interval_chart(
        "answers-chart",
        "Time of an answer",
        "; ".join(f"{span.label}: {number(span.value)} us" for span in spans) + ".",
        spans,
        "us; the mark: half of the answers, the bar's end: 99 of 100",
        None,
    )
    return Figure("answers", caption, svg, table, None, ("rm.infer",))


MOVED = "A GPU taken back from one class of users and given to another while a program trained on it."
MOVES = ("What happened", "Seconds after the other had asked")


def move_figures(documents: RunDocuments) -> list[Figure]:
    """When what happened to a GPU that changed hands under a program, by program; the reason where none did."""
    planned = [m for m in documents.plan.measurements if m.kind == "remoting-move"]
    if not planned:
        why = unplanned(documents, "remoting", ("rm.move",))
        return [Figure("move", MOVED, empty=why, criteria=("rm.move",))]
    return [_moved(documents, m) for m in planned]


def _moved(documents: RunDocuments, planned: Measurement) -> Figure:
    program = loaded(planned)
    id_ = "move-torch" if program else "move"
    caption = MOVED.replace("a program", program, 1) if program else MOVED
    result = documents.latest.get(planned.id)
    facts = result.facts_of(MoveFacts) if result is not None and result.status == "ok" else None
    if facts is None or facts.moved is None:
        why = documents.lost(planned.id) if facts is None else facts.unmade
        return Figure(id_, caption, empty=f"Not measured: {why}.", criteria=("rm.move",))
    it = facts.moved
    where = "on a GPU elsewhere" if it.elsewhere else "on the same GPU"
    untold = "not notified, or could not keep its work"
    rows = [
        ("its program was asked to end", number(it.told_s) if it.told_s is not None else untold),
        ("its work was kept", number(it.saved_s) if it.saved_s is not None else untold),
        ("its command had ended, the GPU was given back", number(it.gone_s)),
        (f"first step of {it.took} on that GPU", number(it.first_step_s)),
        (f"first step after the checkpoint, {where}", number(it.resumed_s)),
    ]
    lost = "not known" if it.steps_lost is None else f"{it.steps_lost} of {it.steps_kept + it.steps_lost}"
    same = "yes" if it.differs_at is None and it.same_weights else "no"
    caption += (
        f" {it.took} asked for a GPU of {facts.server} that {it.gave} had; grace {number(it.grace_s)} s. Steps done "
        f"again: {lost}. Losses and weights as undisturbed: {same}. Checkpoint: {number(it.checkpoint_bytes)} bytes. "
        f"Engine {engine_words(facts)}."
        f"{' GPUs are emulated: the times are those of the pool.' if facts.emulated else ''}"
    )
    table = DataTable(f"{it.gave} gives, {it.took} takes.", MOVES, tuple(rows), in_figure=True)
    return Figure(id_, caption, None, table, None, ("rm.move",))
