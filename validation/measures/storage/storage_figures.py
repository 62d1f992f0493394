"""Storage in the report: a line for each node and storage, for all nodes at once, and for what nodes saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from validation.measures.storage.facts import StorageFacts, StorageNode, StorageSharedFacts, StorageTogetherFacts
from validation.model import Measurement
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import NONE, number
from validation.report.svg.drawing import DataTable, Figure

_CRITERIA = ("st.read", "st.write", "st.randread", "st.randwrite", "st.readall", "st.writeall", "st.meta",
             "st.loader")  # fmt: skip
_HEAD = ("Storage", "Node", "Read GB/s", "Write GB/s", "Read IOPS", "Write IOPS", "One stream, read / write",
         "Files made a second", "1,000,000 files (derived)", "Pictures decoded / read a second", "Mounted")  # fmt: skip
_LOADED: Final = ("decoded", "read")
_CAPTION = (
    "Storage, past the nodes' caches: each node alone, and all nodes at the same time. What is derived from a rate was "
    "never measured."
)
_SEEN_HEAD = ("Storage", "Writer", "What", "Seen by", "Slowest, there and back", "Not seen by")
_SEEN = "What nodes saw of each other in a shared storage, from the end of a write to the answer of each reader."


def storage_figures(documents: RunDocuments) -> tuple[Figure, ...]:
    """Tables of what was planned; what has no usable result says so in its line."""
    planned = [m for m in documents.plan.measurements if m.suite == "storage"]
    rates = tuple(row for m in planned if m.kind != "storage-shared" for row in _rates(documents, m))
    seen = tuple(row for m in planned if m.kind == "storage-shared" for row in _seen(documents, m))
    figures = []
    if rates:
        figures.append(Figure("storage", _CAPTION, None, DataTable(_CAPTION, _HEAD, rates), None, _CRITERIA))
    if seen:
        table = DataTable(_SEEN, _SEEN_HEAD, seen)
        figures.append(Figure("storage-seen", _SEEN, None, table, None, ("st.seen", "st.flock")))
    return tuple(figures)


def _rates(documents: RunDocuments, m: Measurement) -> Iterator[tuple[str, ...]]:
    result, name = documents.latest.get(m.id), str(m.params["name"])
    good = result if result is not None and result.status == "ok" else None
    alone = good.facts_of(StorageFacts) if good is not None else None
    every = good.facts_of(StorageTogetherFacts) if good is not None else None
    if alone is not None:
        yield name, alone.node.node, *_node(alone.node)
    elif every is not None:
        yield name, f"all {len(every.nodes)} at once", *_sum(every)
        for node in every.nodes:
            yield name, f"{node.node}, of all at once", *_node(node)
    else:
        who = m.nodes[0] if len(m.nodes) == 1 else "all at once"
        yield name, who, f"not measured: {documents.lost(m.id)}", *([NONE] * 8)


def _rate(node: StorageNode, name: str) -> str:
    op = node.op(name)
    return NONE if op is None else number(op.iops if name.startswith("rand") else op.gb_s)


def _node(node: StorageNode) -> tuple[str, ...]:
    create = node.phase("create")
    streams = [_rate(node, "one-read"), _rate(node, "one-write")]
    place, shown = node.place, {one.phase: one.per_s for one in node.pictures}
    return (
        _rate(node, "read") if node.ops else f"not measured: {node.unmeasured}",
        *(_rate(node, name) for name in ("write", "randread", "randwrite")),
        NONE if streams == [NONE, NONE] else " / ".join(streams),
        NONE if create is None else number(create.per_s),
        NONE if create is None else f"{number(create.million_s)} s",
        " / ".join(number(shown[name]) for name in _LOADED) if shown.keys() >= set(_LOADED) else NONE,
        NONE if place is None else f"{place.filesystem}, {place.source}",
    )


def _sum(facts: StorageTogetherFacts) -> tuple[str, ...]:
    """What all nodes come to; an operation that one of them lacks has no sum."""
    found = []
    for name in ("read", "write", "randread", "randwrite"):
        ops = [node.op(name) for node in facts.nodes]
        whole = [op for op in ops if op is not None]
        total = sum(op.iops if name.startswith("rand") else op.gb_s for op in whole)
        found.append(number(total) if whole and len(whole) == len(ops) else NONE)
    return *found, *([NONE] * 5)


def _seen(documents: RunDocuments, m: Measurement) -> Iterator[tuple[str, ...]]:
    result, name = documents.latest.get(m.id), str(m.params["name"])
    facts = result.facts_of(StorageSharedFacts) if result is not None and result.status == "ok" else None
    if facts is None:
        yield name, NONE, f"not measured: {documents.lost(m.id)}", *([NONE] * 3)
        return
    for writer in dict.fromkeys(one.writer for one in facts.writes):
        for what, words in (("content", "new content"), ("new", "a new name")):
            mine = [one for one in facts.writes if one.writer == writer and one.what == what]
            times = [seconds for one in mine for seconds in one.seconds.values()]
            readers = {reader for one in mine for reader in one.seconds}
            gone = {reader for one in mine for reader in (*one.unseen, *one.deaf)}
            slowest = f"{number(max(times))} s" if times else NONE
            yield name, writer, words, str(len(readers)), slowest, ", ".join(sorted(gone)) or "none"
    for node in facts.nodes:
        if node.unmeasured:
            yield name, node.node, f"not measured: {node.unmeasured}", *([NONE] * 3)


FIGURES = (Drawn("storage", 10, lambda documents, verdict: storage_figures(documents)),)
