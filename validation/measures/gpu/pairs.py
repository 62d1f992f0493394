"""Judging pairs of GPUs by the link between them, and whether alike GPUs and pairs are alike over all nodes."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from validation.analysis.stats import Summary, summarize
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.measures.gpu.copies_facts import GpuCopyFacts
from validation.measures.gpu.copies_judge import Figure, judged, link_of, none, without_gpus, without_made_ports
from validation.model import Bound, Judgement, Subject
from validation.rules.criterion import Criterion
from validation.rules.gpus import nvlinks, pcie_rate

NVLINK_SHARE = 0.74
"""Floor of copies over NVLink as a share of the links' rate: Azure azurehpc-health-checks wants 335 of the 450 GB/s of
an H100."""
PUBLISHED_LINK = (8.0, 16)
"""The link that the blog's figure of pairs over PCI Express was measured on: C4130, PCIe 3.0 x16."""
OUTLIER = 0.04
"""How much worse than the median of its peers one GPU or pair may be, in a group of LEAST_PEERS or more. Eight links of
a healthy server differ by less than 1 % (S. Bekman, Machine Learning Engineering, 2026). Project default."""
LEAST_PEERS = 4
TOLD = 0.5
"""From so much on an emulated GPU is told, for less is the noise of the host that carries them all. Project default."""
SAME = 1.15
"""How much faster than through the host a copy with peer access is at least, for the access to be of any use."""


def _bound(criterion: Criterion, facts: GpuCopyFacts, source: int, target: int) -> Bound | None:
    """By the NVLinks between two GPUs, else by the lesser of their PCI Express links."""
    links, row = facts.nvlinks_between(source, target), nvlinks(facts.gpus[source].name)
    if links and row is not None:
        ceiling = links * row.rate_mb_s / 1e3
        floor = NVLINK_SHARE * ceiling
        lines: tuple[str, ...] = (
            f"ceiling: {links} NVLinks x {row.rate_mb_s / 1e3:g} GB/s each way = {ceiling:g} GB/s ({row.source})",
            f"floor = {NVLINK_SHARE:g} x {ceiling:g} = {floor:.4g} GB/s (Azure azurehpc-health-checks: 335 of 450)",
        )
    elif links:
        return None
    else:
        one, other = facts.gpus[source], facts.gpus[target]
        switch = one.card is not None and other.card is not None and one.card.distance(other.card) == "PIX"
        found = [link for gpu in (one, other) if (link := link_of(gpu, alone=switch)) is not None]
        if len(found) < 2:
            return None
        ceiling, how = min(found)
        published, value = pcie_rate(*PUBLISHED_LINK)[0], criterion.bound.value or 0
        floor = value * ceiling / published
        lines = (
            f"ceiling: {how}",
            f"floor = {value:g} x {ceiling:.4g} / {published:.4g} = {floor:.4g} GB/s: published over PCIe 3.0 x16, in "
            f"proportion to this link ({criterion.source})",
        )
    metric = "gpu_peer_gb_s"
    return Bound(metric=metric, unit="GB/s", floor=floor, ceiling=ceiling, derivation=lines, source=criterion.source)


def _pairs(facts: GpuCopyFacts) -> Iterator[tuple[int, int]]:
    count = range(len(facts.gpus))
    return ((a, b) for a in count for b in count if a != b)


def rates(criterion: Criterion, facts: GpuCopyFacts) -> Iterator[Figure]:
    """Copies of each ordered pair by the best path that it has."""
    for a, b in _pairs(facts):
        copy, pair, links = facts.cell(a, b)[0], facts.path(a, b), facts.nvlinks_between(a, b)
        if copy is None:
            continue
        path, broken = facts.path_words(a, b), ""
        if links and (pair is None or not pair.access):
            broken = f"goes {path}, although {links} NVLinks join the two"
        elif pair is not None and pair.access and copy.gb_s:
            host = facts.copy_of("peer", a, b)
            slow = host is not None and host.gb_s and summarize(copy.gb_s).median < SAME * summarize(host.gb_s).median
            path += ", no faster than through the host" if slow else ""
        summary = summarize(copy.gb_s) if copy.gb_s else None
        why = f"the link between the two is unknown ({facts.nvlink_unread or 'PCIe and NVLink unknown'})"
        yield Figure(copy.words, summary, _bound(criterion, facts, a, b), why, (a, b), copy.fault, path, broken)


def latencies(criterion: Criterion, facts: GpuCopyFacts) -> Iterator[Figure]:
    """4 bytes from each GPU to each other."""
    line = (f"{criterion.bound.words} ({criterion.source})",)
    most = criterion.bound.value
    bound = Bound(metric="gpu_peer_us", unit="us", maximum=most, derivation=line, source=criterion.source)
    if criterion.bound.kind == "report":
        bound = Bound(metric="gpu_peer_us", unit="us", derivation=line, source=criterion.source)
    for a, b in _pairs(facts):
        wait = facts.cell(a, b)[1]
        if wait is not None:
            summary = Summary(wait.us, 0.0, wait.low_us, wait.high_us, wait.samples) if wait.samples else None
            yield Figure(wait.words, summary, bound, "", (a, b), wait.error, facts.path_words(a, b))


@method("gpu-pairs", "copies of each pair of GPUs against the link between them", figures=True, counts="pairs")
def judge_gpu_pairs(case: Case, criterion: Criterion) -> list[Judgement]:
    """Bandwidth of each ordered pair."""
    return judged(case, criterion, rates)


@method("gpu-pair-latency", "latency of each pair of GPUs", figures=True, counts="pairs")
def judge_gpu_pair_latency(case: Case, criterion: Criterion) -> list[Judgement]:
    """Latency of each ordered pair."""
    return judged(case, criterion, latencies)


class Peer(NamedTuple):
    """A figure that should be as those of its group."""

    what: str  # `gpu1, H to GPU 0`
    value: float
    lower: bool  # is better
    pair: bool = False  # of two GPUs, by the way between them


def groups(node: str, facts: GpuCopyFacts) -> Iterator[tuple[str, Peer]]:
    """Name of a group, and a figure that belongs to it: of GPUs of one model, of pairs with one path."""
    for number, gpu in enumerate(facts.gpus):
        link = link_of(gpu)
        rate = f"PCIe link of {link[0]:.4g} GB/s" if link else "unknown link"
        for what, source, target in (("h2d", None, number), ("d2h", number, None), ("local", number, number)):
            copy = facts.copy_of(what, source, target, "" if what == "local" else "pinned")  # type: ignore[arg-type]
            if copy is not None and copy.gb_s:
                name = {"h2d": f"H to GPU, {rate}", "d2h": f"GPU to H, {rate}", "local": "inside GPUs"}[what]
                yield f"{gpu.name}: {name}", Peer(f"{node}, {copy.words}", summarize(copy.gb_s).median, False)
    for a, b in _pairs(facts):
        copy, wait = facts.cell(a, b)
        one, other = facts.gpus[a].card, facts.gpus[b].card
        far = one.distance(other) if one is not None and other is not None and not facts.nvlinks_between(a, b) else None
        path = facts.way(a, b) + (f" ({far})" if far else "")
        if copy is not None and copy.gb_s:
            name = f"{facts.gpus[a].name}: pairs, {path}"
            yield name, Peer(f"{node}, {copy.words}", summarize(copy.gb_s).median, False, True)
            if wait is not None and wait.samples:
                yield f"{name}, latency", Peer(f"{node}, {wait.words}", wait.us, True, True)


def outliers(peers: list[Peer], most: float = OUTLIER) -> list[str]:
    """In words, which are worse than the median of all by more than `most`."""
    if len(peers) < LEAST_PEERS:
        return []
    middle = statistics.median(p.value for p in peers)
    found = []
    for peer in peers:
        worse = (peer.value / middle - 1) * (1 if peer.lower else -1)
        if worse > most and not peer.lower:  # a latency's grain and the host's noise are larger than that
            found.append(f"{peer.what} is {worse:.1%} below the median of its peers")
    return found


@method("gpu-uniform", "variation of alike GPUs and pairs over all nodes", figures=True, counts="groups")
def judge_gpu_uniform(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each group over all nodes: the coefficient of variation, and nobody far from its peers.

    Where a node's figures are lost, those of the others can show that a group is not alike, and never that it is.
    """
    found: dict[str, list[Peer]] = defaultdict(list)
    said, emulated = without_gpus(case, criterion), False
    evidence: list[str] = []
    untaken: list[str] = []
    nothing: dict[str, str] = {}
    for m in case.serving(criterion):
        facts = facts_for(case, criterion, m.nodes[0], m.id, GpuCopyFacts, None)
        if isinstance(facts, Judgement):
            said.append(facts)
            continue
        if not facts.gpus:
            said.append(judgement(criterion, m.nodes[0], "not-measured", "missing-metric", none(facts), (m.id,)))
            continue
        facts = without_made_ports(case, m.nodes[0], facts)
        emulated, evidence = emulated or facts.emulated, [*evidence, m.id]
        untaken += [f"{m.nodes[0]}, GPU {number}" for number, gpu in enumerate(facts.gpus) if gpu.untaken]
        for name, peer in groups(m.nodes[0], facts):
            found[name].append(peer)
            unproved = case.way_proves_nothing(m.nodes[0], False) if peer.pair else case.gpu_proves_nothing(False)
            nothing[name] = nothing.get(name) or unproved
    alike = {name: peers for name, peers in found.items() if len(peers) > 1}
    lost = ", ".join(sorted({*untaken, *(str(j.subject) for j in said if j.verdict == "not-measured")}))
    if found and not alike and not lost:
        why = "no two GPUs or pairs are alike, so that there is nothing to compare"
        said.append(judgement(criterion, Subject(kind="cluster"), "not-applicable", "not-applicable", why, evidence))
    if emulated:
        nothing = dict.fromkeys(alike, case.gpu_proves_nothing(emulated))
    return [*said, *(_uniform(criterion, name, alike[name], evidence, nothing[name], lost) for name in sorted(alike))]


def _uniform(
    criterion: Criterion, name: str, peers: list[Peer], evidence: list[str], nothing: str, lost: str
) -> Judgement:
    values = [p.value for p in peers]
    most = criterion.bound.value or 0
    cv = statistics.pstdev(values) / statistics.fmean(values)
    summary = Summary(cv, 0.0, cv, cv, len(values))
    lines = (
        f"{criterion.bound.words} ({criterion.source})",
        f"none of {LEAST_PEERS} or more more than {OUTLIER:.0%} below the median of its peers (project default)",
    )
    bound = Bound(metric="gpu_variation", unit="ratio", maximum=most, derivation=lines, source=criterion.source)
    subject = Subject(kind="cluster", op=name)
    shown = f"coefficient of variation {cv:.2%} of {len(values)}"
    if nothing:
        why = "; ".join([f"{nothing}: {shown}, not judged", *outliers(peers, TOLD)])
        return judgement(criterion, subject, "not-measured", "virtual", why, evidence, bound=bound, summary=summary)
    odd = outliers(peers)
    if odd or cv > most:
        worst = min(peers, key=lambda p: -p.value if p.lower else p.value)
        why = "; ".join([f"{shown}, at most {most:.0%} allowed", *(odd or [f"worst: {worst.what}"])])
        return judgement(criterion, subject, "fail", "above-maximum", why, evidence, bound=bound, summary=summary)
    why = f"{shown}, at most {most:.0%} allowed"
    if lost:
        why += f", but the figures of {lost} are missing"
        return judgement(criterion, subject, "not-measured", "missing-result", why, evidence, bound=bound)
    return judgement(criterion, subject, "pass", "within-bounds", why, evidence, bound=bound, summary=summary)


@method("gpu-remote", "latency between GPUs of different servers beside that within", figures=True)
def judge_gpu_remote(case: Case, criterion: Criterion) -> list[Judgement]:
    """Latency between GPUs of different servers, through the engine, beside that within each node; reported."""
    said = without_gpus(case, criterion)
    far = [
        v for r in case.latest.values() if r.status == "ok" for v in r.values("gpu_to_gpu_between_servers_latency_us")
    ]
    for m in case.serving(criterion):
        node, evidence = m.nodes[0], (m.id,)
        facts = facts_for(case, criterion, node, m.id, GpuCopyFacts, None)
        if isinstance(facts, Judgement):
            said.append(facts)
            continue
        near = [figure.summary.median for figure in latencies(criterion, facts) if figure.summary is not None]
        words = f"{statistics.median(near):.4g} us between GPUs of the node" if near else "no pair of GPUs in the node"
        words += " (emulated)" if facts.emulated else ""
        if not far:
            why = f"reported, not judged: {words}; between nodes nothing was measured"
            why += " (suite remoting does, where a client has the pool)"
            said.append(judgement(criterion, node, "not-applicable", "reported", why, evidence))
            continue
        why = f"reported, not judged: {statistics.median(far):.4g} us between GPUs of different servers, {words}"
        summary = summarize(far)
        said.append(judgement(criterion, node, "not-applicable", "reported", why, evidence, summary=summary))
    return said
