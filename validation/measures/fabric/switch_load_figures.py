"""What the switches did when many ports sent at once: a line for each incast, and for each port of an all to all."""

from __future__ import annotations

from collections.abc import Iterator

from validation.measures.fabric.switch_load import SwitchLoadFacts, SwitchPort, SwitchSession
from validation.measures.rdma.counters import pauses
from validation.model import Measurement
from validation.report.documents import RunDocuments
from validation.report.drawn import Drawn
from validation.report.numbers import NONE, number
from validation.report.svg.drawing import DataTable, Figure

_CRITERIA = ("tr.incast", "tr.alltoall")
_HEAD = ("Test", "Receiver", "Senders", "Gbit/s received", "Slowest sender", "Fastest sender", "Fairness", "Sent again",
         "Pauses and losses")  # fmt: skip
_CAPTION = (
    "Tests of the switches: several ports send to one (incast), and all of a set send to each other (all to all). "
    "Received is what arrived over the whole time; fairness is Jain's index of a receiver's sessions."
)


def switch_figures(documents: RunDocuments) -> tuple[Figure, ...]:
    """One table, where anything of it was planned; what has no usable result says so in its line."""
    planned = [m for m in documents.plan.measurements if m.kind in ("incast", "all-to-all")]
    if not planned:
        return ()
    rows = tuple(row for m in planned for row in _rows(documents, m))
    return (Figure("switch-load", _CAPTION, None, DataTable(_CAPTION, _HEAD, rows), None, _CRITERIA),)


def _rows(documents: RunDocuments, m: Measurement) -> Iterator[tuple[str, ...]]:
    result, test = documents.latest.get(m.id), m.kind.replace("-", " ")
    facts = result.facts_of(SwitchLoadFacts) if result is not None and result.status == "ok" else None
    if facts is None:
        why = documents.lost(m.id)
        yield (test, str(m.endpoints[0]), str(len(m.endpoints) - 1), f"not measured: {why}", *([NONE] * 5))
        return
    names = {end.node: str(end) for end in m.endpoints}
    for port in facts.receivers:
        mine = [one for one in facts.sessions if one.receiver == port.node]
        slowest, fastest = (pick(mine, key=lambda s: s.gbps) for pick in (min, max))
        again = [one.retransmits for one in mine if one.retransmits is not None]
        yield (
            test,
            names.get(port.node, port.node),
            str(len(mine)),
            number(facts.received(port)),
            *_ends(slowest, fastest),
            number(facts.fairness_at(port)),
            str(sum(again)) if again else NONE,
            _told(port),
        )


def _ends(slowest: SwitchSession, fastest: SwitchSession) -> tuple[str, str]:
    """The slowest and the fastest sender with their rates; where all are alike none is either of them."""
    least, most = number(slowest.gbps), number(fastest.gbps)
    return (least, most) if least == most else (f"{slowest.sender} {least}", f"{fastest.sender} {most}")


def _told(port: SwitchPort) -> str:
    return ", ".join(map(str, pauses(port.before, port.after))) or "none counted"


FIGURES = (Drawn("switch", 10, lambda documents, verdict: switch_figures(documents)),)
