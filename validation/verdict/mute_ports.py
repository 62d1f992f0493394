"""Ports through which nothing came: pairs whose measurements ended without a usable result, and the ports that explain
them. Several may be mute at once, each with its own pairs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from validation.analysis.denial import loss_of
from validation.analysis.localise import Pair, localise
from validation.base.counting import number_of
from validation.judging.case import Case
from validation.model import Endpoint, Finding, Measurement, Subject
from validation.verdict.leaves import LOOK_THERE, failed_leaves

SAID = 0.95
"""Confidence where all pairs that cross what ports share say so, and others do not. Project default, as of rails."""

KINDS = ("path-mtu", "tcp-bandwidth", "tcp-latency")
"""Of RDMA the two ends say which of them it is (validation/execute/fault_side.py)."""


def mute_ports(
    case: Case, gone: Collection[str], taken: Mapping[Endpoint, Endpoint], remedies: Mapping[str, str]
) -> list[Finding]:
    """A finding for each port and kind of measurement whose pairs have no usable result, where others have one.

    `gone`: nodes that are lost, whose pairs tell nothing of the others. `taken`: ports whose address another one has
    too; what fails there is told of that one. `remedies`: of each criterion.
    """
    found: list[Finding] = []
    ended = {m.kind for m in case.lost if m.id in case.latest}
    for kind in (kind for kind in KINDS if kind in ended):  # where all came to a result, no port is mute
        mute: dict[Pair, bool] = {}
        ids: dict[Pair, str] = {}
        ends: dict[str, Endpoint] = {}
        stolen: dict[Endpoint, list[str]] = {}
        for m in case.plan.measurements:
            if m.kind != kind or m.id not in case.latest or len(m.endpoints) != 2 or set(m.nodes) & set(gone):
                continue
            bad = case.usable(m.id) is None
            if bad and loss_of(case.attempts.get(m.id, ())).disturbs:
                continue  # a busy machine may be too slow for it: nothing is wrong with the ports then
            thief = next((taken[end] for end in m.endpoints if end in taken), None)
            if thief is not None:
                if bad:
                    stolen.setdefault(thief, []).append(m.id)
                continue
            source, destination = map(str, m.endpoints)
            mute[source, destination], ids[source, destination] = bad, m.id
            ends |= dict(zip((source, destination), m.endpoints, strict=True))
        for shared in failed_leaves(case, mute):
            of = [ids[pair] for pair in shared.pairs]
            told = f"all {number_of(len(of), 'pair')} of {shared.words} have no usable result"
            found.append(_finding(case, Subject(kind="cluster", op=shared.op), told, of, SAID, remedies))
            mute = {pair: bad for pair, bad in mute.items() if pair not in set(shared.pairs)}
        for suspect in localise(mute):
            if suspect.kind == "port":
                how = {"both": "", "sending": " when sending", "receiving": " when receiving"}[suspect.direction]
                told = (
                    f"{len(suspect.pairs)} of its {number_of(suspect.of, 'pair')} "
                    f"{'has' if len(suspect.pairs) == 1 else 'have'} no usable result{how}"
                )
                mine = [ids[pair] for pair in suspect.pairs]
                about = Subject.port(ends[suspect.subject[0]])
                found.append(_finding(case, about, told, mine, suspect.confidence, remedies))
        for port, mine in stolen.items():
            told = f"{number_of(len(mine), 'pair')} of a port whose address it has too have no usable result"
            found.append(_finding(case, Subject.port(port), told, mine, None, remedies))
    return found


def _finding(
    case: Case, about: Subject, told: str, ids: list[str], confidence: float | None, remedies: Mapping[str, str]
) -> Finding:
    first: Measurement = case.plan.measurement(ids[0])
    error = case.latest[first.id].error or case.latest[first.id].status
    remedy = next((remedies[c] for c in first.criteria if remedies.get(c)), "Look at the evidence")
    of_port = about.kind == "port"
    return Finding(
        kind="port" if of_port else "cluster",
        about=about,
        text=f"node {about.ends[0].node}: {about}: {told}: {error}" if of_port else f"{told}: {error}",
        confidence=confidence,
        remedy=remedy if of_port else f"{LOOK_THERE}. {remedy}",
        criteria=tuple(dict.fromkeys(c for id_ in ids for c in case.plan.measurement(id_).criteria)),
        evidence=tuple(ids),
    )
