"""Which pairs of fabric ports are measured, in which rounds.

All pairs of up to 64 ports. Of more the first of these that takes no more rounds than two such sites: all pairs of each
rail; all pairs of ports of one leaf switch, and so many rounds across that every pair of leaf switches is met; a sample
of both. A node takes part in one measurement of a round, and so does each of its ports.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

from validation.model.base import Endpoint
from validation.model.coverage import Coverage, Method
from validation.plan.schedule import directed_rounds, evenly, tournament_round, tournament_rounds

ALL_PAIRS_PORTS = 64
"""Up to this many ports, of all or of a rail or a leaf switch, every pair is measured. Project default."""
MOST_ROUNDS = 126
"""Rounds (each in both directions) of all rails together, beyond which fewer pairs are measured: twice those of 64
ports. Project default."""
BY_LEAF_PORTS = 1024
"""Up to this many ports of a rail all pairs of each leaf switch are measured, of more a sample. Project default."""
SAMPLED_ROUNDS = 8
"""Rounds (each in both directions) of a sampled rail without declared leaf switches. Project default."""
CROSS_ROUNDS = 6
"""At least so many rounds lead from each leaf switch to others: without oversubscription every uplink of p ports and
uplinks is then met but for e^-6, 0.25 %. Project default."""
FURTHER_ROUNDS = 64
"""At most so many more, for leaf switches with fewer ports than others: one port meets one other switch in a round."""
INSIDE_ROUNDS = 2
"""Rounds inside each leaf switch, where these are sampled."""


@dataclass(frozen=True)
class End:
    """A fabric port. Two of one `apart` (node, or host of virtual machines) are no pair, nor two of different networks.

    `leaf` is the switch that the inventory declares, None where it declares none.
    """

    at: Endpoint
    apart: str
    network: str
    leaf: str | None = None


Couple = tuple[int, int]
"""A pair of ports by their places in the list."""


@dataclass(frozen=True)
class Pairing:
    """Rounds of ordered pairs, each followed by the same in the other direction. `strangers`: pairs of nodes, or single
    ports, that have nobody to talk to because of their networks."""

    rounds: tuple[tuple[tuple[Endpoint, Endpoint], ...], ...]
    coverage: Coverage
    strangers: tuple[str, ...] = ()


def pair_up(ends: Sequence[End], what: str) -> Pairing:
    """The rounds of all pairs that are measured between these ports. Always the same for the same ports."""
    if len(ends) <= ALL_PAIRS_PORTS:
        rounds, strangers = _all_pairs(ends)
        method: Method = "all pairs"
    else:
        rounds, method = _by_rails(ends)
        alone = Counter(end.network for end in ends)
        strangers = [f"{end.at}: no other port in its subnet" for end in ends if alone[end.network] == 1]
    directed = tuple(
        tuple((ends[a].at, ends[b].at) if forth else (ends[b].at, ends[a].at) for a, b in couples)
        for couples in rounds
        for forth in (True, False)
        if couples
    )
    return Pairing(directed, _coverage(ends, rounds, what, method), tuple(strangers))


def _all_pairs(ends: Sequence[End]) -> tuple[list[list[Couple]], list[str]]:
    """Tournament of the nodes; one with several ports takes them one after another, and so nothing disturbs another."""
    ports: dict[str, list[int]] = defaultdict(list)
    for place, end in enumerate(ends):
        ports[end.at.node].append(place)
    names, rounds, strangers = list(ports), [], []
    for matching in directed_rounds(names)[::2]:
        found = []
        for one, other in matching:
            if ends[ports[one][0]].apart == ends[ports[other][0]].apart:
                continue
            both = [(a, b) for a in ports[one] for b in ports[other] if ends[a].network == ends[b].network]
            found.append(both)
            if not both:
                strangers.append(f"{one} and {other}: no two ports in the same subnet")
        rounds += [
            [both[turn] for both in found if turn < len(both)] for turn in range(max(map(len, found), default=0))
        ]
    return rounds, strangers


def _by_rails(ends: Sequence[End]) -> tuple[list[list[Couple]], Method]:
    """One rail after the other. A rail has one port of each node at most: the nodes' first of a network, and so on."""
    nth: Counter[tuple[str, str]] = Counter()
    rails: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, end in enumerate(ends):
        nth[end.at.node, end.network] += 1
        rails[end.network, nth[end.at.node, end.network]].append(place)
    rounds: list[list[Couple]] = []
    methods: tuple[Method, ...] = ("by rail", "by leaf", "sampled")
    for method in methods:
        made: dict[tuple[object, ...], list[list[Couple]] | None] = {}
        found: list[list[list[Couple]] | None] = []
        for rail in rails.values():
            shape = _shape([ends[place] for place in rail])
            if shape not in made:  # rails are alike as a rule
                made[shape] = _rail([ends[place] for place in rail], method)
            alike = made[shape]
            found.append(alike and [[(rail[a], rail[b]) for a, b in one] for one in alike])
        if None in found:
            continue
        rounds = [one for some in found for one in some or ()]
        if len(rounds) <= MOST_ROUNDS:
            break
    return _with_the_rest(ends, rounds), method


def _shape(rail: Sequence[End]) -> tuple[object, ...]:
    """Equal for two rails whose ports meet in the same way."""
    leaves: dict[str | None, int] = {}
    apart: dict[str, int] = {}
    return tuple((leaves.setdefault(e.leaf, len(leaves)), apart.setdefault(e.apart, len(apart)), e.leaf is None)
                 for e in rail)  # fmt: skip


def _rail(rail: Sequence[End], method: Method) -> list[list[Couple]] | None:
    """The rounds of a rail by a method, by places in it; None where the rail is too large for the method."""
    leaves: dict[str | None, list[int]] = defaultdict(list)
    for place, end in enumerate(rail):
        leaves[end.leaf].append(place)
    every = range(len(rail))
    if method == "by rail" or (method == "by leaf" and len(rail) <= ALL_PAIRS_PORTS):
        return _tournaments(rail, [every]) if len(rail) <= ALL_PAIRS_PORTS else None
    if method == "by leaf":
        small = len(rail) <= BY_LEAF_PORTS and max(map(len, leaves.values())) <= ALL_PAIRS_PORTS
        return _by_leaves(rail, list(leaves.values()), None) if small and len(leaves) > 1 else None
    if len(leaves) > 1 and len(rail) > SAMPLED_ROUNDS:
        return _by_leaves(rail, list(leaves.values()), INSIDE_ROUNDS)
    return _tournaments(rail, [every], SAMPLED_ROUNDS)


def _kept(ends: Sequence[End], group: Sequence[int], numbers: Iterable[int]) -> list[list[Couple]]:
    return [[c for c in tournament_round(group, number) if _pair(ends, *c)] for number in numbers]


def _pair(ends: Sequence[End], a: int, b: int) -> bool:
    return ends[a].apart != ends[b].apart and ends[a].network == ends[b].network


def _tournaments(ends: Sequence[End], groups: Sequence[Sequence[int]], most: int | None = None) -> list[list[Couple]]:
    """The tournaments of several groups at the same time; of each `most` rounds, or all."""
    each = [
        evenly(tournament_rounds(len(g)) if most is None else most, tournament_rounds(len(g))) if len(g) > 1 else []
        for g in groups
    ]
    return [
        [couple for g, numbers in zip(groups, each, strict=True) if turn < len(numbers)
         for couple in _kept(ends, g, [numbers[turn]])[0]]
        for turn in range(max(map(len, each), default=0))
    ]  # fmt: skip


def _by_leaves(ends: Sequence[End], leaves: Sequence[Sequence[int]], inside: int | None) -> list[list[Couple]]:
    """Rounds inside each leaf switch, then rounds across, until every pair of leaf switches was met.

    A round across is many tournaments at the same time: the first ports of all leaf switches play one, their second
    ports another, each at another turn, so that p ports of a leaf switch meet p others at once. When all turns are
    taken the ports change places, by as many as the leaf switch's number, and nobody meets the same partner again.
    """
    rounds = _tournaments(ends, leaves, inside)
    met = {_sorted(*couple) for one in rounds for couple in one}
    turns, width = tournament_rounds(len(leaves)), max(map(len, leaves))
    count = max(CROSS_ROUNDS, ceil(turns / median(map(len, leaves))))
    for turn in range(count):
        found: list[Couple] = []
        rest: list[int] = []
        shift = turn // turns
        for slot in range(width):
            group = [leaf[(slot + shift * at) % len(leaf)] for at, leaf in enumerate(leaves) if slot < len(leaf)]
            couples = tournament_round(group, slot * count + turn) if len(group) > 1 else []
            kept = [c for c in couples if _pair(ends, *c) and _sorted(*c) not in met]
            found += kept
            busy = {place for couple in kept for place in couple}
            rest += [place for place in group if place not in busy]
        if len(rest) > 1:
            found += [c for c in tournament_round(rest, turn) if _pair(ends, *c) and _sorted(*c) not in met]
        met |= {_sorted(*couple) for couple in found}
        rounds.append(found)
    return rounds + _missing_leaves(ends, leaves, met)


def _missing_leaves(ends: Sequence[End], leaves: Sequence[Sequence[int]], met: set[Couple]) -> list[list[Couple]]:
    """Further rounds for pairs of leaf switches that were not met, as where some have few ports."""
    number = {place: at for at, leaf in enumerate(leaves) for place in leaf}
    seen = {_sorted(number[a], number[b]) for a, b in met}
    left = [(one, other) for one in range(len(leaves)) for other in range(one) if (other, one) not in seen]
    rounds: list[list[Couple]] = []
    while left and len(rounds) < FURTHER_ROUNDS:
        busy: set[int] = set()
        found, later = [], []
        for one, other in left:
            free = [[place for place in leaves[at] if place not in busy] for at in (one, other)]
            couple = next(((a, b) for a in free[0] for b in free[1] if _pair(ends, a, b)), None)
            if couple is None:
                later.append((one, other))
            else:
                found.append(couple)
                busy |= set(couple)
        if not found:
            break
        rounds.append(found)
        left = later
    return rounds


def _with_the_rest(ends: Sequence[End], rounds: list[list[Couple]]) -> list[list[Couple]]:
    """With rounds for ports that nobody has met yet, where there is somebody for them to meet."""
    met = {place for one in rounds for couple in one for place in couple}
    alone = [place for place in range(len(ends)) if place not in met]
    networks: dict[str, list[int]] = defaultdict(list)
    for place in range(len(ends)) if alone else ():
        networks[ends[place].network].append(place)
    while alone:
        busy: set[str] = set()
        found, later = [], []
        for place in alone:
            if ends[place].at.node in busy:
                later.append(place)
                continue
            others = (b for b in networks[ends[place].network] if _pair(ends, place, b))
            partner = next((b for b in others if ends[b].at.node not in busy), None)
            if partner is None:
                later.append(place)
            else:
                found.append((place, partner))
                busy |= {ends[place].at.node, ends[partner].at.node}
        if not found:
            break
        rounds.append(found)
        met = {place for couple in found for place in couple}
        alone = [place for place in later if place not in met]
    return rounds


def _sorted(a: int, b: int) -> Couple:
    return (a, b) if a < b else (b, a)


def _coverage(ends: Sequence[End], rounds: Iterable[Iterable[Couple]], what: str, method: Method) -> Coverage:
    pairs = {_sorted(*couple) for one in rounds for couple in one}
    measured = {place for couple in pairs for place in couple}
    networks = Counter(end.network for end in ends)
    same = Counter((end.network, end.apart) for end in ends)
    possible = (sum(n * n for n in networks.values()) - sum(n * n for n in same.values())) // 2
    leaves: dict[str, set[str]] = defaultdict(set)
    for end in ends:
        if end.leaf is not None:
            leaves[end.network].add(end.leaf)
    wanted = {(a, b) for found in leaves.values() for a in found for b in found if a < b}
    crossed: set[tuple[str, str]] = set()
    flows: Counter[str] = Counter()
    for a, b in pairs:
        one, other = ends[a].leaf, ends[b].leaf
        if one is not None and other is not None and one != other:
            crossed.add((one, other) if one < other else (other, one))
            flows.update((one, other))
    size = Counter(end.leaf for end in ends if end.leaf is not None)
    uplink = sum(n * (1 - 1 / n) ** flows[leaf] for leaf, n in size.items()) / sum(size.values()) if wanted else None
    return Coverage(
        what=what,
        method=method,
        ports=len(ends),
        ports_measured=len(measured),
        pairs=len(pairs),
        pairs_possible=possible,
        leaf_pairs=len(crossed),
        leaf_pairs_possible=len(wanted),
        escape_port=1 - len(measured) / len(ends) if ends else 1.0,
        escape_pair=1 - len(pairs) / possible if possible else 0.0,
        escape_leaves=1 - len(crossed) / len(wanted) if wanted else None,
        escape_uplink=uplink,
    )
