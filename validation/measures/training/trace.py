"""The trace of a few training steps: read from the line that rank 0 printed, and what it comes to."""

from __future__ import annotations

import base64
import json
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from validation.kinds.parsing import ParseError, real, short
from validation.measures.training.facts import TraceGap, TraceTop, TrainingTrace
from validation.probes.train_trace import MARK, SORTS

MOST_BYTES = 64 << 20  # unpacked: a node that sends more sends something else
TOP, GAPS = 10, 3
WHAT = "training: the trace"
Span = tuple[str, str, float, float, int]
"""Name, sort, begin, microseconds, lane."""


def trace_of(stdout: str) -> dict[str, Any] | None:
    """The document that train_trace.py made; None where the output has none. ParseError where it cannot be read."""
    lines = [line[len(MARK) :].strip() for line in stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        return None
    if len(lines) > 1:
        raise ParseError(f"{WHAT}: {len(lines)} of them")
    try:
        opened = zlib.decompressobj()
        text = opened.decompress(base64.b64decode(lines[0], validate=True), MOST_BYTES)
        if not opened.eof:
            raise ParseError(f"{WHAT} is cut off, or longer than {MOST_BYTES} bytes")
        document = json.loads(text)
    except (ValueError, zlib.error, RecursionError) as fault:
        raise ParseError(f"{WHAT} cannot be read: {short(fault)}") from fault
    if not isinstance(document, dict):
        raise ParseError(f"{WHAT} is no object")
    return document


def summary(stdout: str) -> TrainingTrace | None:
    """What took the time of those steps, on the device that was traced; None without a trace.

    Of kernels: those of NCCL over all (`allreduce_ratio`), in which share of the steps' time any ran (`busy_ratio`) and
    the longest times in which none did. Of operators: their own time, without that of those they call.
    """
    document = trace_of(stdout)
    if document is None:
        return None
    by, names = document["by"], [str(name) for name in document["names"]]
    if by not in ("kernels", "operators"):
        raise ParseError(f"{WHAT} is of {short(by)}")
    own: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    wall = busy = nccl = kernels = 0.0
    gaps: list[TraceGap] = []
    events = 0
    for step in document["steps"]:
        length, spans = real(step["wall_us"], f"{WHAT}: a step's time"), _events(step["events"], names)
        _within(spans, length)
        events, wall = events + len(spans), wall + length
        timed = spans if by == "kernels" else _without_called(spans)
        for name, sort, _, took, _ in timed:
            if sort in ("kernel", "operator"):
                own[name][0] += took
                own[name][1] += 1
                kernels += took
                nccl += took if "nccl" in name.lower() else 0.0
        ran, idle = _idle(spans)
        busy += ran
        gaps += idle
    total = sum(us for us, _ in own.values())
    top = sorted(own, key=lambda name: (-own[name][0], name))[:TOP]
    return TrainingTrace(
        by=by,
        steps=len(document["steps"]),
        of_steps=int(real(document["of_steps"], f"{WHAT}: steps")),
        left_out=short(document["left_out"]) if document["left_out"] else "",
        events=events,
        wall_us=round(wall, 1),
        busy_ratio=round(min(1.0, busy / wall), 5) if wall and by == "kernels" else None,
        allreduce_ratio=round(nccl / kernels, 5) if kernels and by == "kernels" else None,
        top=tuple(
            TraceTop(name=short(name), us=round(own[name][0], 2), count=int(own[name][1]), share=own[name][0] / total)
            for name in top
            if total
        ),
        gaps=tuple(sorted(gaps, key=lambda gap: -gap.us)[:GAPS]) if by == "kernels" else (),
    )


def _events(rows: Sequence[Any], names: Sequence[str]) -> list[Span]:
    """ParseError for one that cannot be."""
    found = []
    for row in rows:
        name, sort, begin, took, lane = row
        if not (0 <= name < len(names) and 0 <= sort < len(SORTS)):
            raise ParseError(f"{WHAT}: an event has no name or sort")
        begin, took = real(begin, f"{WHAT}: when an event began"), real(took, f"{WHAT}: how long an event took")
        if begin < 0 or took < 0:
            raise ParseError(f"{WHAT}: an event of {took:g} us at {begin:g} us")
        found.append((names[name], SORTS[sort], begin, took, int(lane)))
    return found


def _within(spans: Sequence[Span], wall_us: float) -> None:
    """ParseError where events last longer than the step that they are of."""
    last = max((begin + took for _, _, begin, took, _ in spans), default=0.0)
    if wall_us <= 0 or last > 1.05 * wall_us + 1000:
        raise ParseError(f"{WHAT}: events of {last:g} us in a step of {wall_us:g} us")


def _without_called(spans: Sequence[Span]) -> list[Span]:
    """Each operator with the time that those it calls do not take."""
    own = [took for _, _, _, took, _ in spans]
    order = sorted(range(len(spans)), key=lambda at: (spans[at][4], spans[at][2], -spans[at][3]))
    open_: list[int] = []
    for at in order:
        _, _, begin, took, lane = spans[at]
        while open_ and (spans[open_[-1]][4] != lane or spans[open_[-1]][2] + spans[open_[-1]][3] <= begin):
            open_.pop()
        if open_:
            own[open_[-1]] -= took
        open_.append(at)
    return [(*spans[at][:3], max(0.0, own[at]), spans[at][4]) for at in range(len(spans))]


def _idle(spans: Sequence[Span]) -> tuple[float, list[TraceGap]]:
    """Microseconds in which anything ran, and the times between, with what ran before and after."""
    busy, gaps, end, before = 0.0, [], 0.0, ""
    for name, _, begin, took, _ in sorted(spans, key=lambda span: span[2]):
        if before and begin > end:
            gaps.append(TraceGap(us=round(begin - end, 2), before=short(before), after=short(name)))
        busy += max(0.0, begin + took - max(begin, end))
        if begin + took > end:
            end, before = begin + took, name
    return busy, gaps
