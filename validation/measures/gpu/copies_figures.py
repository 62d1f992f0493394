"""Copies between the host memory and the GPUs of each node: the matrices, the sizes, and what the documents print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from validation.measures.gpu.copies_facts import BY_SMS, TOGETHER, GpuCopyFacts
from validation.measures.remoting.facts import CopyFacts
from validation.model import Endpoint, Measurement
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import NONE, number, plural, quantity
from validation.report.svg.drawing import DataTable, Figure
from validation.report.svg.heatmap import Cell, Heatmap, heat_map
from validation.report.unplanned import why_unplanned

MOST_NODES = 8
"""Nodes whose matrices are drawn; of more the table has the medians, and results.jsonl all cells."""
_SIDES = (
    ("GB/s", "Bandwidth between host memory H and GPUs", "dark = more = better", "tr.p2p"),
    ("us", "Latency of 4 bytes between host memory H and GPUs", "pale = shorter = better", "tr.p2plat"),
)
_ALL = ("tr.h2d", "tr.p2p", "tr.local", "tr.p2plat", "tr.matrix", "tr.uniform", "tr.hbm")
_HERE = "Copies between the host memory and the GPUs of a node, by the CUDA driver API."
_Found = tuple[Measurement, GpuCopyFacts]


def gpu_figures(documents: RunDocuments) -> tuple[Figure, ...]:
    """Figures of copies inside the nodes; an empty frame with the reason where nothing was measured."""
    planned = [m for m in documents.plan.measurements if m.kind == "gpu-copies"]
    found: list[_Found] = []
    why = why_unplanned(documents, "transport", _ALL)
    if "transport" in documents.plan.suites and not any(node.gpus for node in documents.topology.nodes):
        why = "no machine of this site has a GPU"
    for m in planned:
        result = documents.latest.get(m.id)
        facts = result.facts_of(GpuCopyFacts) if result is not None and result.status == "ok" else None
        if facts is not None and facts.gpus:
            found.append((m, facts))
            continue
        why = f"{m.nodes[0]}: {(facts.why if facts else '') or documents.lost(m.id)}"
    published = _published(documents, found)
    if not found:
        return (Figure("gpu-copies", _HERE, None, published, f"Not measured: {why}.", _ALL),)
    drawn = [figure for m, facts in found[:MOST_NODES] for figure in _maps(m, facts)]
    tables = (_sizes(found), *_together(found))
    return (Figure("gpu-copies", _caption(found), None, published, None, _ALL), *drawn, *tables)


def _caption(found: Sequence[_Found]) -> str:
    emulated = " GPUs are emulated: no figure here is a GPU's." if any(facts.emulated for _, facts in found) else ""
    left = f" Matrices of {MOST_NODES} of {len(found)} nodes are drawn." if len(found) > MOST_NODES else ""
    return (
        "What the documents print of copies between host and GPUs (tables 1 to 4), and the medians measured here. "
        f"Inside a GPU the bytes read and written are counted.{left}{emulated}"
    )


def _each(found: Sequence[_Found], of: Callable[[GpuCopyFacts, int | None, int | None], float | None]) -> list[float]:
    """What `of` gives of all cells of all nodes."""
    values = []
    for _, facts in found:
        ends = (None, *range(len(facts.gpus)))
        values += [v for a in ends for b in ends if (a, b) != (None, None) and (v := of(facts, a, b)) is not None]
    return values


def _value(facts: GpuCopyFacts, a: int | None, b: int | None, late: bool) -> float | None:
    copy, wait = facts.cell(a, b)
    if late:
        return wait.us if wait is not None and wait.samples else None
    return median(copy.gb_s) if copy is not None and copy.gb_s else None


def _cells(found: Sequence[_Found], which: Callable[[int | None, int | None], bool], late: bool) -> list[float]:
    return _each(found, lambda f, a, b: _value(f, a, b, late) if which(a, b) else None)


def _published(documents: RunDocuments, found: Sequence[_Found]) -> DataTable:
    """Tables 1 to 4 of the blog: what it prints of each part, and the medians of this run."""

    def host(a: int | None, b: int | None) -> bool:
        return a is None or b is None

    def inside(a: int | None, b: int | None) -> bool:
        return a == b

    def pair(a: int | None, b: int | None) -> bool:
        return not host(a, b) and a != b

    claims = documents.reference.claims

    def printed(id_: str) -> str:
        return claims[id_].printed if id_ in claims else NONE

    remote: dict[bool, list[float]] = {False: [], True: []}
    for result in documents.latest.values():
        facts = result.facts_of(CopyFacts) if result.status == "ok" else None
        for cell in facts.matrix if facts is not None else ():
            if cell.source is not None and cell.target is not None and facts is not None:
                servers = {facts.devices[end].server for end in (cell.source, cell.target)}
                if len(servers) > 1:
                    remote[False].append(cell.gb_s)
                    remote[True].append(cell.us)
    rows = [
        ("1", "host and GPU, pinned memory", printed("blog.h2d"), _said(_cells(found, host, False), "GB/s"), "tr.h2d"),
        ("1", "GPU and GPU of a node", printed("blog.p2p"), _said(_cells(found, pair, False), "GB/s"), "tr.p2p"),
        ("1", "inside a GPU", printed("blog.inside"), _said(_cells(found, inside, False), "GB/s"), "tr.hbm"),
        ("2", "inside a GPU", printed("blog.local"), _said(_cells(found, inside, True), "us"), "tr.local"),
        ("2", "GPU and GPU of a node", printed("blog.p2plat"), _said(_cells(found, pair, True), "us"), "tr.p2plat"),
        ("3", "GPUs of different servers, through the engine", NONE, _said(remote[False], "GB/s"), "rm.matrix"),
        ("4", "GPUs of different servers, through the engine", printed("blog.remote-latency"),
         _said(remote[True], "us"), "tr.remotelat"),
    ]  # fmt: skip
    head = ("Table", "Between", "Published", "Here: median (least to most, number)", "Criterion")
    return DataTable("Tables 1 to 4 of the reference architecture, and this run.", head, tuple(rows))


def _said(values: Sequence[float], unit: str) -> str:
    """`12.3 GB/s (12.2 to 12.9, 8)`."""
    if not values:
        return "not measured"
    return f"{quantity(median(values), unit)} ({number(min(values))} to {number(max(values))}, {len(values)})"


def _maps(m: Measurement, facts: GpuCopyFacts) -> list[Figure]:
    """Bandwidth and latency of one node."""
    node, figures = m.nodes[0], []
    ends: dict[int | None, Endpoint] = {None: Endpoint(node="H")}
    ends |= {i: Endpoint(node=f"GPU {i}") for i in range(len(facts.gpus))}
    labels = tuple(ends.values())
    for side, (unit, title, better, criterion) in enumerate(_SIDES):
        shown, cells = "\u00b5s" if unit == "us" else unit, {}
        for a, source in ends.items():
            for b, target in ends.items():
                if (a, b) == (None, None):
                    continue
                value, path = _value(facts, a, b, bool(side)), ""
                if a is not None and b is not None and a != b:
                    path = f", {facts.path_words(a, b)}"
                said = "not measured" if value is None else quantity(value, unit)
                text = number(value, 3) if value is not None else ""
                state = "missing" if value is None else "ok"
                cells[source, target] = Cell(text, f"{source} to {target}: {said}{path}", state, value)  # type: ignore[arg-type]
        values = [c.value for c in cells.values() if c.value is not None]
        top, id_ = max(values, default=1.0), f"gpus-{node}-{'latency' if side else 'bandwidth'}"
        spread = f"from {number(min(values))} to {number(top)} {shown}" if values else "none has a value"
        svg = heat_map(
            Heatmap(
                id=id_,
                title=f"{title} of {node}, {shown}",
                description=f"{len(values)} cells of H and {plural(len(ends) - 1, 'GPU')}, {spread}.",
                labels=labels,
                cells=cells,
                unit=shown,
                top=top,
                top_label=f"{number(top)} {shown}",
                better=f"{better}; logarithmic",
                log_from=min(values, default=None),
                high_is_bad=bool(side),
                with_diagonal=True,
            )
        )
        rows = tuple((str(a), *(cells[a, b].text if (a, b) in cells else NONE for b in labels)) for a in labels)
        head = ("Source", *map(str, labels))
        table = DataTable(f"{title} of {node}, {shown}; the row is the source.", head, rows, in_figure=True)
        models = ", ".join(sorted({gpu.name for gpu in facts.gpus}))
        count = len(facts.gpus)
        paths = {facts.way(a, b) for a in range(count) for b in range(count) if a != b}
        emulated = " GPUs are emulated." if facts.emulated else ""
        size = f"the largest copies, {facts.largest_bytes >> 20} MiB between H and GPUs; " if not side else ""
        caption = (
            f"{title} of {node} in {shown}: {models}; {size}the row is the source, the diagonal a copy inside a GPU, H "
            f"by pinned memory; pairs of GPUs {' and '.join(sorted(paths)) or 'are not there'}.{emulated}"
        )
        figures.append(Figure(id_, caption, svg, table, None, (criterion, "tr.matrix")))
    return figures


def _sizes(found: Sequence[_Found]) -> Figure:
    """Medians over all GPUs of a model by the size of a copy."""
    kinds = (
        ("H to GPU, pinned", "h2d", "pinned"),
        ("GPU to H, pinned", "d2h", "pinned"),
        ("H to GPU, pageable", "h2d", "pageable"),
        ("GPU to H, pageable", "d2h", "pageable"),
        ("inside a GPU", "local", ""),
        ("H and GPU at once, both counted", "both", "pinned"),
    )
    rates: dict[tuple[str, str, str, int], list[float]] = {}
    for _, facts in found:
        for copy in facts.copies:
            number_of = copy.source if copy.target is None else copy.target
            if copy.gb_s and copy.what not in ("peer", *TOGETHER, *BY_SMS) and number_of is not None:
                model = facts.gpus[number_of].name
                rates.setdefault((model, copy.what, copy.memory, copy.bytes), []).append(median(copy.gb_s))
    models = list(dict.fromkeys(model for model, *_ in rates))
    several = len(models) > 1  # GPUs of two models are no equals
    rows = [
        (f"{size:,} bytes".replace(",", "\u202f"), *((model,) if several else ()), *(
            number(median(rates[model, what, memory, size]), 3) if (model, what, memory, size) in rates else NONE
            for _, what, memory in kinds
        ))
        for model in models for size in sorted({size for one, _, _, size in rates if one == model})
    ]  # fmt: skip
    head = ("Size of a copy", *(("Model",) if several else ()), *(words for words, _, _ in kinds))
    of = "of each model of the run" if several else "of the run"
    table = DataTable(f"Bandwidth by size in GB/s: median over all GPUs {of}.", head, tuple(rows))
    caption = "Bandwidth of copies by their size: from 1 MiB on by the GPU's own events, below that by the clock."
    return Figure("gpu-sizes", caption, None, table, None, ("tr.h2d", "tr.hbm"))


def _together(found: Sequence[_Found]) -> tuple[Figure, ...]:
    """Copies at the same time and by SMs, of each node; nothing where no node has any."""
    words = {
        "pair": "both ways between two GPUs", "gather": "all others to one GPU", "scatter": "one to all others",
        "sm_local": "SMs inside a GPU", "sm_read": "SMs read from another GPU", "sm_write": "SMs write to another GPU",
    }  # fmt: skip
    rows = []
    for m, facts in found[:MOST_NODES]:
        for what in (*TOGETHER, *BY_SMS):
            copies = [copy for copy in facts.copies if copy.what == what]
            rates = [median(copy.gb_s) for copy in copies if copy.gb_s]
            if not copies:
                continue
            ways = {
                "peer access" if c.access else "inside" if what == "sm_local" else "through the host" for c in copies
            }
            shown = (number(min(rates)), number(median(rates)), number(max(rates))) if rates else (NONE,) * 3
            rows.append((m.nodes[0], words[what], " and ".join(sorted(ways)), f"{len(rates)} of {len(copies)}", *shown))
    if not rows:
        return ()
    head = ("Node", "Copies", "Way", "Measured", "Least", "Median", "Most")
    table = DataTable(
        "Copies between GPUs at the same time and copies by SMs, all bytes counted, GB/s.", head, tuple(rows)
    )
    emulated = " GPUs are emulated." if any(facts.emulated for _, facts in found) else ""
    caption = (
        "Bandwidth of several copies between the GPUs of a node at the same time, and of copies by a GPU's SMs instead "
        f"of its copy engines, by the GPU's own events.{emulated}"
    )
    return (Figure("gpu-together", caption, None, table, None, ("tr.together",)),)


FIGURES = (Drawn("gpu", 10, lambda documents, verdict: gpu_figures(documents)),)
