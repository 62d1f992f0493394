"""Segments of a burn-in: each a measurement that is kept by itself, judged together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import cycle
from typing import NamedTuple

from validation.base.counting import number_of
from validation.model import Judgement, Measurement, Param, Result, Subject
from validation.probes.power_steps import steps_of

SAID = 3
"""Segments whose own words are in a reason; of more it says how many."""
_WORST = ("fail", "not-measured", "not-applicable", "pass")


class Segment(NamedTuple):
    """Which of how many; of a burn-in of one, 0 of 0."""

    number: int
    of: int

    @property
    def suffix(self) -> str:
        """What the ids of its measurements have behind their kind."""
        return f"-{self.number:0{max(3, len(str(self.of)))}}" if self.of else ""

    @property
    def params(self) -> dict[str, Param]:
        """Of its measurements."""
        return {"segment": self.number, "segments": self.of} if self.of else {}

    @property
    def words(self) -> str:
        """`segment 3 of 24`."""
        return f"segment {self.number} of {self.of}" if self.of else "the only segment"


def segment_of(m: Measurement) -> Segment:
    """Of a measurement."""
    return Segment(int(str(m.params.get("segment", 0))), int(str(m.params.get("segments", 0))))


def span(result: Result) -> tuple[float, float]:
    """When a measurement began and ended, in seconds of the epoch."""
    p = result.provenance
    return datetime.fromisoformat(p.started).timestamp(), datetime.fromisoformat(p.ended).timestamp()


UNDER_LOAD_S = 30.0
"""An attempt that ended sooner was refused, or never tried: its load had hardly begun. Project default."""


def lost(attempts: Sequence[Result]) -> str:
    """How attempts of a measurement ended that came to no end under load, in words; "" where none did. A run that goes
    on after a kill of its own has none of it: only what a node, or the way to it, did is written down.
    """
    failed = [one for one in attempts if one.status != "ok"]
    ended = [one.error or one.status for one in failed if span(one)[1] - span(one)[0] >= UNDER_LOAD_S]
    return f"{number_of(len(ended), 'attempt')} of it came to no end: {ended[0]}" if ended else ""


def full_share(words: Iterable[str], begin_s: float, end_s: float) -> float:
    """The share of a part of a segment in which its schedule (power_steps) wants full load; 1 without a schedule."""
    steps, full, at = steps_of(words), 0.0, 0.0
    if not steps:
        return 1.0
    for share, seconds in cycle(steps):
        if at >= end_s:
            return full / (end_s - begin_s)
        if share == 1:
            full += max(0.0, min(at + seconds, end_s) - max(at, begin_s))
        at += seconds
    return 1.0


def together(
    found: Iterable[tuple[Measurement, Judgement]], attempts: Mapping[str, Sequence[Result]]
) -> list[Judgement]:
    """One judgement on each subject: it passes where each of its segments does, and fails where any does.

    A segment without a result is not measured: a burn-in that was shorter than ordered passes nothing, and what is said
    of the whole node in a segment is said of each of its parts; a part that a segment does not have was not measured
    in it. One that passed when it was measured again is remarked upon: its node may have gone down under the load.
    """
    subjects: dict[Subject, list[tuple[Segment, Judgement]]] = {}
    for m, one in found:
        if one.verdict == "pass" and (before := lost(attempts.get(m.id, ()))):
            remark = {"reason_code": "remarked", "reason": f"{one.reason}; a remark: {before}"}
            one = one.model_copy(update=remark)
        subjects.setdefault(one.about, []).append((segment_of(m), one))
    return [_joined(mine) for mine in _of_parts(subjects).values()]


_Pairs = list[tuple[Segment, Judgement]]


def _of_parts(subjects: dict[Subject, _Pairs]) -> dict[Subject, _Pairs]:
    """What is said of a node as a whole with each of its parts, where others of its segments have any."""
    parts = {about: mine for about, mine in subjects.items() if about.op}
    nodes = {about.ends for about in parts}
    found = {about: mine for about, mine in subjects.items() if about.op or about.ends not in nodes}
    for about, mine in parts.items():
        whole = next((mine for other, mine in subjects.items() if other.ends == about.ends and not other.op), [])
        there = {segment for segment, _ in (*mine, *whole)}
        every = {seg: one for other, pairs in parts.items() if other.ends == about.ends for seg, one in pairs}
        absent = [(segment, _absent(about, every[segment])) for segment in every.keys() - there]
        found[about] = sorted((*mine, *whole, *absent), key=lambda pair: pair[0])
    return found


def _absent(about: Subject, beside: Judgement) -> Judgement:
    """A part that a segment does not have, whose other part was judged."""
    why = {"verdict": "not-measured", "reason_code": "missing-metric", "reason": f"{about.op} was not loaded in it"}
    return beside.model_copy(update={"about": about, **why, "value": None, "low": None, "high": None, "samples": 0})


def _joined(mine: list[tuple[Segment, Judgement]]) -> Judgement:
    if len(mine) == 1 and not mine[0][0].of:
        return mine[0][1]
    verdict = min((one.verdict for _, one in mine), key=_WORST.index)
    picked = [(segment, one) for segment, one in mine if one.verdict == verdict]
    shown = next((pair for pair in picked if pair[1].reason_code == "remarked"), picked[0])
    evidence = tuple(dict.fromkeys(id_ for _, one in mine for id_ in one.evidence))
    if verdict == "pass":
        why = f"{number_of(len(mine), 'segment')}, each as it has to be; of {shown[0].words}: {shown[1].reason}"
    else:
        said = [f"{segment.words}: {one.reason}" for segment, one in picked[:SAID]]
        said += [f"and {number_of(len(picked) - SAID, 'more segment')}"] if len(picked) > SAID else []
        why = "; ".join(said)
    samples = sum(one.samples for _, one in mine)
    about = max((one.about for _, one in mine), key=lambda subject: bool(subject.op))
    return shown[1].model_copy(update={"about": about, "reason": why, "evidence": evidence, "samples": samples})
