"""From judgements to findings: who is at fault, once, with numbers and what to do about it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from validation.analysis.denial import loss_of
from validation.analysis.localise import Pair, Suspect, localise
from validation.base.counting import number_of
from validation.judging.case import Case
from validation.measures.node.state import taken_addresses
from validation.measures.rdma.judge import broken
from validation.model import Endpoint, Finding, Judgement, Subject
from validation.model.judgement import CLUSTER, READ, Sort, others
from validation.rules.criterion import Criterion
from validation.verdict.causes import with_causes, with_declared, with_differences
from validation.verdict.equals import failed_rails
from validation.verdict.leaves import LOOK_THERE, Shared, failed_leaves
from validation.verdict.mute_ports import mute_ports

SAID, UNTOLD = 0.95, 0.5
"""Confidence where the two ends said which of them it is, and where two ends are all that was measured."""


def findings(case: Case, judged: Mapping[str, Sequence[Judgement]]) -> tuple[Finding, ...]:
    """All findings of a run. `judged`: criterion id -> its judgements, waivers already applied."""
    found: list[Finding] = []
    taken = taken_addresses(case)
    for criterion in case.criteria:
        mine = judged.get(criterion.id, ())
        failed = [j for j in others(mine) if j.verdict == "fail"]
        if not failed:
            continue
        if criterion.scope == "pair":
            found += _pairs(case, criterion, mine, taken)
        else:
            found += [_single(case, criterion, j) for j in failed]
    lost, gone = _unreachable(case, taken)
    remedies = {criterion.id: criterion.remedy or "" for criterion in case.criteria}
    found += mute_ports(case, gone, taken, remedies)
    return tuple([*with_differences(case, _merge(with_declared(case, with_causes(case, found)))), *lost])


def _pairs(
    case: Case, criterion: Criterion, judged: Iterable[Judgement], taken: Mapping[Endpoint, Endpoint]
) -> list[Finding]:
    one_way: _Matrix = {}
    both_ways: _Matrix = {}  # of which nobody can tell in which direction a pair fails
    ends: dict[str, Endpoint] = {}
    named: list[Finding] = []
    undecided = False
    for judgement in judged:
        undecided = undecided or judgement.reason_code == "too-noisy"
        fine = judgement.verdict == "pass" or (judgement.reason_code == "virtual" and judgement.value is not None)
        if not fine and judgement.verdict != "fail":
            continue
        fault_side = _fault_side(case, judgement)
        if fault_side is not None:  # the two ends said which one it is, so that the pair tells nothing of the other
            named.append(_named(criterion, judgement, *fault_side))
            continue
        source, destination = judgement.about.ends
        thief = taken.get(source) or taken.get(destination)
        if thief is not None:  # whoever has its address too may have answered: nothing is known of the port itself
            if judgement.verdict == "fail":
                named.append(
                    _named(criterion, judgement, thief, f"it has an address of {judgement.about}, which fails")
                )
            continue
        about = _as_run(case, judgement)
        matrix = both_ways if about.both_ways else one_way
        for sender, receiver in about.flows:
            pair = (str(sender), str(receiver))  # it fails where any of its operations does
            ends |= {pair[0]: sender, pair[1]: receiver}
            matrix.setdefault(pair, []).append(judgement)
    bad = {p: _fails(one_way.get(p, ())) or _fails(both_ways.get(p, ())) for p in (*one_way, *both_ways)}
    good = [j for matrix in (one_way, both_ways) for mine in matrix.values() for j in mine if j.verdict == "pass"]
    for rail, pairs in failed_rails(case, bad).items():  # what its ports share is at fault, and none by itself
        mine = _taken(pairs, one_way, both_ways)
        named.append(_rail(case, criterion, rail, len(pairs), mine, good))
    bad = {pair: fails for pair, fails in bad.items() if pair in one_way or pair in both_ways}
    for shared in failed_leaves(case, bad):
        mine = _taken(shared.pairs, one_way, both_ways)
        named.append(_leaf(case, criterion, shared, mine, good))
    suspect = _whole_nodes(case, localise(_failing(one_way), undecided), ends)
    for entry in suspect:
        named.append(_suspect(case, criterion, entry, one_way, ends, _explained(entry, both_ways)))
    if not any(entry.kind == "cluster" for entry in suspect):
        for entry in _whole_nodes(case, localise(_failing(both_ways), undecided), ends):
            named.append(_suspect(case, criterion, entry, both_ways, ends))
    return named


_Matrix = dict[Pair, list[Judgement]]
"""By the ports from which and to which data went, what was judged there."""


def _as_run(case: Case, judgement: Judgement) -> Subject:
    """Its subject; of one over several operations as those ran that fail, where all of them ran in the same way."""
    about, asked = judgement.about, [case.plan.measurement(i).params for i in judgement.evidence if i in case.planned]
    if judgement.verdict != "fail" or about.op or about.both_ways or not asked:
        return about
    together = all(params.get("bidirectional") for params in asked)
    op = READ if all(params.get("op") == READ for params in asked) else ""
    return about.model_copy(update={"op": op, "both_ways": together}) if together or op else about


def _fails(judged: Iterable[Judgement]) -> bool:
    return any(judgement.verdict == "fail" for judgement in judged)


def _failing(matrix: _Matrix) -> dict[Pair, bool]:
    return {pair: _fails(mine) for pair, mine in matrix.items()}


def _failed(judged: Iterable[Judgement]) -> list[Judgement]:
    """Each of those that fail once: one of both ways at once stands for two directions."""
    return list({id(judgement): judgement for judgement in judged if judgement.verdict == "fail"}.values())


def _taken(pairs: Iterable[Pair], *matrices: _Matrix) -> list[Judgement]:
    """What fails of these pairs, which are in no matrix any more."""
    return _failed([j for pair in pairs for matrix in matrices for j in matrix.pop(pair, ())])


def _explained(suspect: Suspect, both_ways: _Matrix) -> list[Judgement]:
    """What fails both ways at once for a part that fails one way, and is no sign of another; it leaves the matrix."""
    if suspect.kind == "port":
        node_or_port = suspect.subject[0]
        mine = [p for p in both_ways if any(node_or_port in (end, end.partition("/")[0]) for end in p)]
    else:
        mine = [p for p in both_ways if suspect.kind == "cluster" or set(p) == set(suspect.subject)]
    return _taken([p for p in mine if _fails(both_ways[p])], both_ways)


def _rail(
    case: Case, criterion: Criterion, rail: str, count: int, bad: Sequence[Judgement], good: Sequence[Judgement]
) -> Finding:
    numbers = _numbers(criterion, bad, good) + _repeated(case, bad)
    text = f"all {number_of(count, 'measured pair')} of rail {rail} fail, and those of other rails do not: {numbers}"
    remedy = f"Look at what the ports of this rail share: switch, cabling, VLAN, MTU. {criterion.remedy or ''}".strip()
    evidence = tuple(sorted({e for j in bad for e in j.evidence}))
    about = Subject(kind="cluster", op=f"rail {rail}")
    return _finding("cluster", about, text, remedy, criterion, evidence, SAID)


def _leaf(
    case: Case, criterion: Criterion, shared: Shared, bad: Sequence[Judgement], good: Sequence[Judgement]
) -> Finding:
    numbers = _numbers(criterion, bad, good) + _repeated(case, bad)
    text = f"all {number_of(len(shared.pairs), 'measured pair')} of {shared.words} fail, and others do not: {numbers}"
    remedy = f"{LOOK_THERE}. {criterion.remedy or ''}".strip()
    evidence = tuple(sorted({e for j in bad for e in j.evidence}))
    about = Subject(kind="cluster", op=shared.op)
    return _finding("cluster", about, text, remedy, criterion, evidence, SAID)


def _fault_side(case: Case, judgement: Judgement) -> tuple[Endpoint, str] | None:
    """(port, what is wrong with it) where all failed runs behind a judgement name one and the same end."""
    if judgement.reason_code != "not-working":
        return None
    found: dict[Endpoint, str] = {}
    for id_ in judgement.evidence:
        measurement = case.plan.measurement(id_)
        result = broken(case, measurement)
        failure = result.failure if result is not None else None
        node = failure.at or failure.towards if failure is not None else None
        ports = [end for end in measurement.endpoints if end.node == node]
        if result is None or not ports:
            return None
        found.setdefault(ports[0], failure.words if failure and failure.words else str(result.error))
    return next(iter(found.items())) if len(found) == 1 else None


def _named(criterion: Criterion, judgement: Judgement, port: Endpoint, said: str) -> Finding:
    text = f"node {port.node}: {port}: {said}"
    remedy = criterion.remedy or "Look at the evidence"
    return _finding("port", Subject.port(port), text, remedy, criterion, judgement.evidence, SAID)


def _whole_nodes(case: Case, suspect: list[Suspect], ends: dict[str, Endpoint]) -> list[Suspect]:
    """Ports of one node that has several and of which all are suspect become one entry: its subject has no port."""
    ports: dict[str, list[Suspect]] = {}
    for entry in suspect:
        if entry.kind == "port":
            ports.setdefault(ends[entry.subject[0]].node, []).append(entry)
    whole = {
        node: entries
        for node, entries in ports.items()
        if len(entries) > 1 and len(entries) == len(case.topology.node(node).ports)
    }
    rest = [g for g in suspect if g.kind != "port" or ends[g.subject[0]].node not in whole]
    ends |= {node: Endpoint(node=node) for node in whole}
    merged = [
        Suspect(
            "port",
            (node,),
            entries[0].direction if len({e.direction for e in entries}) == 1 else "both",
            tuple(sorted(pair for e in entries for pair in e.pairs)),
            sum(e.of for e in entries),
        )
        for node, entries in whole.items()
    ]
    return merged + rest


def _suspect(
    case: Case,
    criterion: Criterion,
    suspect: Suspect,
    by_pair: _Matrix,
    ends: dict[str, Endpoint],
    besides: Sequence[Judgement] = (),
) -> Finding:
    """`besides`: judgements of both ways at once that it explains, too."""
    bad = _failed(j for pair in suspect.pairs for j in by_pair[pair])
    good = [j for mine in by_pair.values() for j in mine if j.verdict == "pass"]
    together = all(j.about.both_ways for j in bad)
    each, at_once = (2, " with both ways at once") if together else (1, "")
    count, of = len(suspect.pairs) // each, suspect.of // each
    numbers = _numbers(criterion, bad, good) + _repeated(case, bad)
    evidence = tuple(sorted({e for j in (*bad, *besides) for e in j.evidence}))
    remedy = criterion.remedy or "Look at the evidence"
    if suspect.kind == "cluster":
        text = f"all {number_of(count, 'measured pair')} fail{at_once}, so no single port is at fault: {numbers}"
        remedy = f"Look for what all have in common (switch, profile, MTU, tuning). {remedy}"
        return _finding("cluster", CLUSTER, text, remedy, criterion, evidence, suspect.confidence)
    if suspect.kind == "port":
        subject = ends[suspect.subject[0]]
        how = {"both": "", "sending": " when sending", "receiving": " when receiving"}[suspect.direction]
        text = (
            f"node {subject.node}: {subject} fails{how or at_once} in {count} of its {number_of(of, 'pair')}: {numbers}"
        )
        about = Subject.port(subject)
        return _finding(about.kind, about, text, remedy, criterion, evidence, suspect.confidence)
    a, b = (ends[end] for end in suspect.subject)
    two = len({end for pair in by_pair for end in pair}) == 2
    if suspect.kind == "link":
        what = f"the link between {a} and {b} fails{at_once or ' in both directions'}"
    else:
        what = f"{a} to {b} fails in this direction only"
    if two:
        what += "; with two ends measured nobody can tell which one is at fault"
        remedy = f"Measure both against a third node to learn which end it is. {remedy}"
    else:
        what += "; both ends are fine with others"
    about = Subject.pair(a, b, both_ways=suspect.kind == "link")
    sure = min(suspect.confidence, UNTOLD) if two else suspect.confidence
    return _finding(suspect.kind, about, f"{what}: {numbers}", remedy, criterion, evidence, sure)


def _numbers(criterion: Criterion, bad: Sequence[Judgement], good: Sequence[Judgement]) -> str:
    """Median, bound and what healthy pairs reach; of each metric and sort by itself, for they are no equals."""
    groups: dict[tuple[str, Sort], list[Judgement]] = {}
    for judgement in bad:
        groups.setdefault((_metric(judgement), judgement.about.sort), []).append(judgement)
    several = len({judgement.about.sort for judgement in (*bad, *good)}) > 1
    said = []
    for (metric, sort), mine in groups.items():
        values = [j.value for j in mine if j.value is not None]
        if not values:
            continue
        unit, bound = criterion.unit or "", mine[0].bound
        name = "" if metric in ("", criterion.metric) else f"{metric} "
        name += f"({sort.words}) " if several and sort.words else ""
        words = f"{criterion.id} {name}median {statistics.median(values):.4g} {unit}"
        if bound is not None and bound.floor is not None:
            words += f", floor {bound.floor:.4g}"
        elif bound is not None and bound.maximum is not None:
            words += f", limit {bound.maximum:.4g}"
        elif bound is not None and bound.equal is not None:
            words += f", {bound.equal} wanted"
        others = [j.value for j in good if j.value is not None and (_metric(j), j.about.sort) == (metric, sort)]
        said.append(words + (f" (healthy pairs {statistics.median(others):.4g})" if others else ""))
    return "; ".join(said) or criterion.id


def _metric(judgement: Judgement) -> str:
    return judgement.bound.metric if judgement.bound is not None else ""


def _repeated(case: Case, bad: Sequence[Judgement]) -> str:
    """How many of the failures stood when they were measured once more; "" where none was."""
    count = sum(all(len(case.tries(id_)) > 1 for id_ in j.evidence) for j in bad)
    return f"; {count} of {len(bad)} measured again, and no better" if count else ""


def _single(case: Case, criterion: Criterion, judgement: Judgement) -> Finding:
    names, about = {n.name for n in case.topology.nodes}, judgement.about
    remedy = criterion.remedy or "Look at the evidence"
    if about.kind in ("node", "port") and about.ends[0].node in names:
        plain = about.model_copy(update={"op": ""})
        return _finding(about.kind, plain, f"{criterion.id}: {judgement.reason}", remedy, criterion, judgement.evidence)
    text = f"{criterion.id}, {judgement.subject}: {judgement.reason}"
    return _finding("cluster", CLUSTER, text, remedy, criterion, judgement.evidence)


def _finding(
    kind: str,
    about: Subject,
    text: str,
    remedy: str,
    criterion: Criterion,
    evidence: Sequence[str],
    confidence: float | None = None,
) -> Finding:
    return Finding.model_validate(
        {
            "kind": kind,
            "about": about,
            "text": text,
            "confidence": confidence,
            "remedy": remedy,
            "criteria": (criterion.id,),
            "evidence": tuple(evidence),
        }
    )


def _merge(found: Iterable[Finding]) -> list[Finding]:
    """One finding for each subject, whatever number of criteria point at it."""
    merged: dict[tuple[str, Subject], Finding] = {}
    for finding in found:
        key = (finding.kind, finding.about)
        old = merged.get(key)
        if old is None:
            merged[key] = finding
            continue
        merged[key] = old.model_copy(
            update={
                "text": old.text if finding.text in old.text else f"{old.text}; {finding.text}",
                "cause": old.cause
                if finding.cause in old.cause
                else "; ".join(filter(None, (old.cause, finding.cause))),
                "confidence": max((c for c in (old.confidence, finding.confidence) if c is not None), default=None),
                "remedy": old.remedy if finding.remedy in old.remedy else f"{old.remedy}. {finding.remedy}",
                "criteria": tuple(dict.fromkeys((*old.criteria, *finding.criteria))),
                "evidence": tuple(dict.fromkeys((*old.evidence, *finding.evidence))),
            }
        )
    return list(merged.values())


def _unreachable(case: Case, taken: Mapping[Endpoint, Endpoint]) -> tuple[list[Finding], set[str]]:
    """Nodes whose loss explains measurements without a usable result: named by the executor, or common to all; with
    their names.
    """
    gone = [m for m in case.lost if m.id in case.latest]
    named: dict[str, list[str]] = {}
    for measurement in gone:
        node = case.latest[measurement.id].plain.get("unreachable")
        if isinstance(node, str) and node in measurement.nodes:
            named.setdefault(node, []).append(measurement.id)
    gone = [m for m in gone if not taken.keys() & set(m.endpoints)]  # of these nobody knows who answered
    # A busy machine may be too slow for a measurement: nothing is wrong with the node then.
    busy = any(loss_of(case.attempts.get(m.id, ())).disturbs for m in gone)
    said = bool(named)
    if not named and len(gone) >= 2 and not busy:
        common = set.intersection(*(set(m.nodes) for m in gone))
        if len(common) == 1:
            named[common.pop()] = [m.id for m in gone]
    result = []
    for node, ids in sorted(named.items()):
        criteria = tuple(dict.fromkeys(c for i in ids for c in case.plan.measurement(i).criteria))
        error = case.latest[ids[0]].error or case.latest[ids[0]].status
        port = None if said else _only_port(case, node, ids)
        who = f"port {port}" if port else f"node {node}"
        back = "Look at the port's link, address, cable and switch port" if port else "Bring the node back"
        result.append(
            Finding(
                kind="port" if port else "node",
                about=Subject.port(port) if port else Subject.node(node),
                text=f"{who}: no usable result of {number_of(len(ids), 'measurement')} in which it takes part: {error}",
                remedy=f"{back}, then measure what is missing with `toolkit validate --resume RUN`",
                criteria=criteria,
                evidence=tuple(ids),
            )
        )
    return result, set(named)


def _only_port(case: Case, node: str, lost: Sequence[str]) -> Endpoint | None:
    """The port of a node by which all of its lost measurements went, while others of its ports have a result."""
    ends = {end for id_ in lost for end in case.plan.measurement(id_).endpoints if end.node == node}
    if len(ends) != 1 or any(not case.plan.measurement(id_).endpoints for id_ in lost):
        return None
    (port,) = ends
    well = any(
        end.node == node and end != port and case.usable(m.id) is not None
        for m in case.plan.measurements
        for end in m.endpoints
    )
    return port if port.port and well else None
