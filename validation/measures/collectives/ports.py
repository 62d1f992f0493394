"""Judging what the ports of each node carried during collective operations, by the ports' own counters.

A log tells what a program means to use, a counter what went through. Between nodes each has to send at least what its
part of the operations is, over the fabric's ports; inside a node nothing has to leave it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import subject_of
from validation.measures.collectives.facts import CollectivesFacts
from validation.model import Judgement, Measurement
from validation.rules.criterion import Criterion

WHOLE = 0.9
"""Share of the least that a node has to send which its fabric ports must have sent. Project default: counters are read
some milliseconds beside the job, and nothing else makes them smaller."""
ASTRAY = 0.05
"""Share of it that may have gone over anything else: ssh, monitoring, the launcher. Project default."""
NOISE_BYTES = 16 << 20  # and so much of it at least. Project default
EVEN = 0.5
"""Share of the ports' mean that each port carries; below that is a remark. Project default."""
WAYS = {"rdma": "by RDMA", "ethernet": "as Ethernet"}


class Node(NamedTuple):
    """Of one node, over all its readings: bytes that its ports sent. None: a counter does not tell."""

    ours: dict[tuple[str, str], int | None]
    others: dict[tuple[str, str], int | None]


def least_bytes(facts: CollectivesFacts) -> float:
    """What each node has to send to the others at least, whatever the algorithm, over all operations that were counted.

    S bytes of the larger buffer, n nodes of g ranks: an all-reduce and a reduce-scatter S (n-1)/n, for the others know
    nothing of a node's part; an all-gather a node's own part, S/n; all-to-all g S (N-g)/N; a ring of sends S.
    """
    ranks, nodes = facts.world_size, len(set(facts.hosts))
    each = ranks // nodes
    if nodes < 2:
        return 0.0
    shares = {
        "all_reduce": (nodes - 1) / nodes,
        "reduce_scatter": (nodes - 1) / nodes,
        "all_gather": 1 / nodes,
        "all_to_all": each * (ranks - each) / ranks,
        "send_recv": 1.0,
    }
    return sum(shares[row.op] * row.bytes * row.times for row in facts.rows)


def nodes_of(facts: CollectivesFacts) -> dict[str, Node]:
    """By node what its ports sent. Of nccl-tests each of its programs has a reading."""
    found: dict[str, Node] = {}
    for reading in facts.carried:
        node = found.setdefault(reading.host.partition(".")[0], Node({}, {}))
        for port in reading.ports:
            if not port.below:
                into, key = (node.ours if port.ours else node.others), (port.way, port.port)
                before = into.get(key, 0)
                into[key] = None if before is None or port.sent is None else before + port.sent
    return found


@method("collectives-ports", "bytes that each node's ports carried during collective operations", counts="jobs")
def judge_collectives_ports(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each job, inside a node and across nodes."""
    return [_job(case, criterion, job) for job in case.serving(criterion)]


def _job(case: Case, criterion: Criterion, job: Measurement) -> Judgement:
    subject, ids = subject_of(job), [job.id]
    facts = facts_for(case, criterion, subject, job.id, CollectivesFacts, None)
    if isinstance(facts, Judgement):
        return facts

    def unsaid(why: str) -> Judgement:
        return judgement(criterion, subject, "not-measured", "missing-metric", why, ids)

    found, hosts = nodes_of(facts), {host.partition(".")[0] for host in facts.hosts}
    if silent := sorted(hosts - set(found)):
        return unsaid(f"no counter shows what the ports of {', '.join(silent)} carried during {job.id}")
    if any(row.times == 0 for row in facts.rows):
        return unsaid(f"{job.id} does not tell how often each operation was done")
    rdma, least = job.params.get("transport") != "tcp", least_bytes(facts)
    said = [_node(name, node, least, rdma) for name, node in sorted(found.items())]
    text = "; ".join(words for words, _, _ in said)
    for number, code in ((1, "fail"), (2, "unknown")):
        if wrong := [one[number] for one in said if one[number]]:
            if code == "unknown":
                return unsaid("; ".join(wrong))
            return judgement(criterion, subject, "fail", "not-working", "; ".join(wrong), ids, text=text)
    if remarks := [one for name, node in sorted(found.items()) for one in _uneven(name, node, rdma) if least]:
        why = f"{text}; a remark: {'; '.join(remarks)}"
        return judgement(criterion, subject, "pass", "remarked", why, ids, text=text)
    return judgement(criterion, subject, "pass", "within-bounds", text, ids, text=text)


def _counting(node: Node, rdma: bool) -> dict[tuple[str, str], int | None]:
    """The fabric's ports by the counters that tell of the job: of RDMA its own, where the adapters have them."""
    mine = {key: sent for key, sent in node.ours.items() if key[0] == "rdma"} if rdma else {}
    told = any(sent is not None for sent in mine.values())
    return mine if told else {key: sent for key, sent in node.ours.items() if key[0] == "ethernet"}


def _node(name: str, node: Node, least: float, rdma: bool) -> tuple[str, str, str]:
    """What a node's ports carried, in words; what is wrong with it; why nothing can be said. "" where there is none."""
    mine = _counting(node, rdma)
    if not mine or None in mine.values():
        gone = ", ".join(port for (_, port), sent in mine.items() if sent is None) or "its fabric ports"
        return "", "", f"{name}: {gone}: no counter of bytes, or one that restarted during the job"
    sent = sum(value for value in mine.values() if value is not None)
    shown = ", ".join(f"{port} {_gb(value or 0)} {WAYS[way]}" for (way, port), value in sorted(mine.items()))
    words = f"{name} sent {shown}"
    others = dict(node.others)
    if sent < WHOLE * least:  # else some adapters count their RDMA as Ethernet, too
        others |= {key: value for key, value in node.ours.items() if key not in mine}
    allowed = max(ASTRAY * least, NOISE_BYTES)
    if not least:  # one node: nothing has to leave it
        over = [(key, value) for key, value in {**others, **mine}.items() if value and value > NOISE_BYTES]
        inside = f"{name}: {_list(over)} left the node, whose GPUs need no network" if over else ""
        return words, inside, ""
    wrong = []
    if sent < WHOLE * least:
        wrong.append(f"{words}, of at least {_gb(least)} that its part is")
    astray = [(key, value) for key, value in others.items() if value and value > allowed]
    if astray:
        wrong.append(f"{name}: {_list(astray)} went beside the fabric's {'RDMA' if rdma else 'ports'}")
    return f"{words} (at least {_gb(least)} is its part)", "; ".join(wrong), ""


def _uneven(name: str, node: Node, rdma: bool) -> Iterator[str]:
    """Ports that carried far less than the others, in words."""
    mine = {key: sent or 0 for key, sent in _counting(node, rdma).items()}
    mean = sum(mine.values()) / max(len(mine), 1)
    for (_, port), sent in sorted(mine.items()):
        if sent < EVEN * mean and (rdma or sent):  # TCP may take one port of several
            yield f"{port} of {name} carried {_gb(sent)}, its ports {_gb(mean)} each in the mean"


def _list(ports: list[tuple[tuple[str, str], int]]) -> str:
    return ", ".join(f"{_gb(value)} over {port} {WAYS[way]}" for (way, port), value in sorted(ports))


def _gb(value: float) -> str:
    return f"{value / 1e9:.4g} GB" if value >= 1e8 else f"{value / 1e6:.4g} MB"
