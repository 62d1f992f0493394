"""From the values of a pair matrix, full or sampled, to the part that is at fault. No I/O.

Each pair's value is compared with those of its group of equals, by the group's own middle and spread. What is slower is
explained by as few parts as possible: a port, its sending or receiving alone, a node, a rail, a leaf, a leaf's way to
the others, the way between two leaves, a link, a single direction of one. Where two parts at fault meet, the slower one
decides, as with anything that is in a row. Which pairs failed a bound is localise.py's matter; here none has to.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from validation.analysis.peers import NORMAL

Pair = tuple[str, str]
Direction = Literal["both", "sending", "receiving"]
Kind = Literal["port", "node", "rail", "leaf", "uplink", "leaves", "link", "pair", "shared"]

LEAST = 0.05
"""A part that makes its pairs less than this share slower is not named. Project default."""

LEAST_PAIR = 0.10
"""The same of a single pair, which nothing else confirms. Project default."""

ERRORS = 6.0
"""So many standard errors of its median a part's pairs must be off. Default; see tests/unit/test_suspects.py."""

PAIR_SPREADS = 9.0
"""So many spreads a single pair must be off. Project default."""

SHARE = 0.75
"""Share of a part's pairs that must be at least half as slow as their median. Project default, as localise.py's."""

FLOOR, FLOOR_OF_FEW, FEW = 0.005, 0.02, 6
"""No group's spread is taken for less than this, and of fewer than FEW values for less than the second."""

STOPPED = math.log(1000)
"""How slow a pair counts through which nothing came (a rate of 0, an endless latency)."""

MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean, normal distribution: sqrt(pi / 2)


@dataclass(frozen=True)
class Place:
    """Where a port is. "" for a rail or a leaf that nobody declared."""

    node: str
    rail: str = ""
    leaf: str = ""


@dataclass(frozen=True)
class SlowSuspect:
    """A part at fault. `subject`: a port, node, rail or leaf by its name; two of a link, pair or two leaves; none where
    all share it. `slower`: share of the healthy value lost (of a latency: share added). `partners`: how many others
    show it. `also`: other parts that have the same pairs, so that no measurement can tell them apart.
    """

    kind: Kind
    subject: tuple[str, ...]
    direction: Direction
    pairs: tuple[Pair, ...]
    of: int
    slower: float
    median: float
    spread: float
    partners: int
    confidence: float
    healthy: tuple[float, ...] = ()  # what each of `pairs` would reach without it
    also: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """`port gpu3/fab0 when sending`."""
        joined = {"link": " and ", "leaves": " and ", "pair": " to "}.get(self.kind, "")
        how = {"both": "", "sending": " when sending", "receiving": " when receiving"}[self.direction]
        what = {
            "uplink": "the way between the others and leaf",
            "leaves": "the way between leaves",
            "shared": "what all share",
        }.get(self.kind, self.kind)
        said = f"{what} {joined.join(self.subject)}".strip() + ("" if self.kind == "pair" else how)
        return said + (f" (or {', '.join(self.also)}: the same pairs)" if self.also else "")


@dataclass
class _Part:
    kind: Kind
    subject: tuple[str, ...]
    direction: Direction
    pairs: list[Pair]
    also: list[str] = field(default_factory=list)


@dataclass
class _Fit:
    """Explanation from one choice of the groups' middles."""

    bases: dict[str, float]
    spreads: dict[str, float]
    chosen: list[tuple[_Part, float, list[Pair]]]


def suspects(
    values: Mapping[Pair, float],
    places: Mapping[str, Place],
    *,
    lower_is_better: bool = False,
    worst: float | None = None,
    groups: Mapping[Pair, str] | None = None,
) -> list[SlowSuspect]:
    """The parts at fault, those that explain most first; [] for a matrix in which all are alike.

    `values` by (source port, destination port), rates or (`lower_is_better`) latencies; a rate of 0 and an infinite
    latency are pairs through which nothing came. `worst`: the value that healthy pairs keep (a floor, a maximum); where
    the group's own middle does not, the fault is one that all share. `groups`: names of groups of equals; by default
    pairs under one leaf and pairs across. ValueError for a negative value, NaN, or a port without a place.
    """
    slow = {pair: slowness(value, lower_is_better) for pair, value in values.items()}
    missing = sorted({end for pair in values for end in pair} - set(places))
    if missing:
        raise ValueError(f"no place is known of {', '.join(missing[:3])}")
    if not slow:
        return []
    named = {pair: groups[pair] if groups else _group(pair, places) for pair in slow}
    members: dict[str, list[Pair]] = {}
    for pair, name in named.items():
        members.setdefault(name, []).append(pair)
    parts = _parts(list(slow), places)
    fits = []
    for mode in ("middle", "best"):
        bases, spreads = {}, {}
        for name, pairs in members.items():
            bases[name], spreads[name] = _level([slow[p] for p in pairs], mode)
        fit = _explain(slow, named, parts, places, bases, spreads)
        for _ in range(3):  # what is explained no longer widens the spread, what is not does
            again = {n: _left_spread(slow, named, n, fit, spreads[n]) for n in members}
            if all(abs(again[n] - fit.spreads[n]) <= 0.2 * fit.spreads[n] for n in members):
                break
            fit = _explain(slow, named, parts, places, bases, again)
        fits.append(fit)
    fit = min(fits, key=lambda f: _cost(f, slow, named, {n: min(g.spreads[n] for g in fits) for n in members}))
    found = [_suspect(part, effect, fresh, named, fit, lower_is_better) for part, effect, fresh in fit.chosen]
    return _shared(members, fit, worst, lower_is_better) + found


def slowness(value: float, lower_is_better: bool) -> float:
    """How slow a value is, a logarithm: more is slower, endless where nothing came. ValueError: no rate or latency."""
    if (
        math.isnan(value)
        or value < 0
        or (value == 0 and lower_is_better)
        or (value == math.inf and not lower_is_better)
    ):
        raise ValueError(f"{value} is neither a rate nor a latency")
    if value in (0, math.inf):
        return math.inf
    return math.log(value) if lower_is_better else -math.log(value)


def _group(pair: Pair, places: Mapping[str, Place]) -> str:
    a, b = places[pair[0]], places[pair[1]]
    return "under one leaf" if a.leaf == b.leaf else "across leaves"


def _level(slow: list[float], mode: str) -> tuple[float, float]:
    """Middle and spread of a group: of all, or of those that are alike at the better end (most may be at fault)."""
    ordered = sorted(v for v in slow if v != math.inf)
    if not ordered:
        return 0.0, FLOOR_OF_FEW
    if mode == "best":
        gaps = [b - a for a, b in pairwise(ordered)]
        least = math.log1p(LEAST)
        apart = min(max(max(gaps, default=0.0) / 4, least / 2), 2 * least)
        cut = [i + 1 for i, gap in enumerate(gaps) if gap > apart]
        for start, end in zip([0, *cut], [*cut, len(ordered)], strict=True):
            if end - start >= max(2, len(slow) / 10):
                ordered = ordered[start:end]
                break
    middle = statistics.median(ordered)
    return middle, _at_least([v - middle for v in ordered])


def _at_least(residuals: list[float]) -> float:
    spread = NORMAL * statistics.median(abs(r) for r in residuals)
    return max(spread, FLOOR if len(residuals) >= FEW else FLOOR_OF_FEW)


def _left_spread(slow: Mapping[Pair, float], named: Mapping[Pair, str], name: str, fit: _Fit, least: float) -> float:
    effect = _predicted(fit.chosen)
    left = [v - fit.bases[name] - effect.get(p, 0.0) for p, v in slow.items() if named[p] == name and v != math.inf]
    return max(_at_least(left), least / 2) if left else least


def _predicted(chosen: Iterable[tuple[_Part, float, list[Pair]]]) -> dict[Pair, float]:
    effect: dict[Pair, float] = {}
    for part, size, _ in chosen:
        for pair in part.pairs:
            effect[pair] = max(effect.get(pair, 0.0), size)
    return effect


def _parts(pairs: list[Pair], places: Mapping[str, Place]) -> list[_Part]:
    """Everything that several pairs have in common, the narrower before the wider."""
    found: dict[tuple[Kind, tuple[str, ...], Direction], list[Pair]] = {}

    def add(kind: Kind, subject: tuple[str, ...], direction: Direction, pair: Pair) -> None:
        found.setdefault((kind, subject, direction), []).append(pair)

    def both(kind: Kind, subject: str, direction: Direction, pair: Pair) -> None:
        add(kind, (subject,), direction, pair)
        add(kind, (subject,), "both", pair)

    for pair in pairs:
        a, b = pair
        one, other = places[a], places[b]
        both("port", a, "sending", pair)
        both("port", b, "receiving", pair)
        if one.node != other.node:
            both("node", one.node, "sending", pair)
            both("node", other.node, "receiving", pair)
        if one.rail and one.rail == other.rail:
            add("rail", (one.rail,), "both", pair)
        if one.leaf and other.leaf:
            for leaf in {one.leaf, other.leaf}:
                add("leaf", (leaf,), "both", pair)
            if one.leaf != other.leaf:
                both("uplink", one.leaf, "sending", pair)
                both("uplink", other.leaf, "receiving", pair)
                first, second = sorted((one.leaf, other.leaf))
                add("leaves", (first, second), "both", pair)
    kept: dict[frozenset[Pair], _Part] = {}
    order = ("port", "node", "rail", "leaf", "uplink", "leaves")
    total = len(pairs)
    for (kind, subject, direction), mine in sorted(found.items(), key=lambda f: (order.index(f[0][0]), f[0])):
        if len(mine) < 2 or len(mine) == total:
            continue
        same = kept.setdefault(frozenset(mine), _Part(kind, subject, direction, mine))
        if same.subject != subject or same.kind != kind:
            words = f"{kind} {' and '.join(subject)}"
            if (same.kind, kind) != ("port", "node") and words not in same.also:  # a node's only port is the node
                same.also.append(words)
    return list(kept.values())


def _partners(part: _Part, pairs: Collection[Pair], places: Mapping[str, Place]) -> int:
    """How many others show it: ends outside the part, and pairs where there is no outside."""
    if part.kind == "port":
        return len({a if b == part.subject[0] else b for a, b in pairs})
    if part.kind == "node":
        return len({(a if places[b].node == part.subject[0] else b) for a, b in pairs})
    return len({frozenset(pair) for pair in pairs})


def _explain(
    slow: Mapping[Pair, float],
    named: Mapping[Pair, str],
    parts: list[_Part],
    places: Mapping[str, Place],
    bases: dict[str, float],
    spreads: dict[str, float],
) -> _Fit:
    off = {pair: min(value - bases[named[pair]], STOPPED) for pair, value in slow.items()}
    spread = {pair: spreads[named[pair]] for pair in slow}
    chosen: list[tuple[_Part, float, list[Pair]]] = []
    effect: dict[Pair, float] = {}
    done: set[Pair] = set()
    while True:
        best: tuple[float, _Part, float, list[Pair]] | None = None
        for part in parts:
            fresh = [p for p in part.pairs if p not in done]
            if len(fresh) < 2:
                continue
            size = statistics.median(off[p] for p in fresh)
            partners = _partners(part, fresh, places) if size >= math.log1p(LEAST) else 0
            if partners < 2:
                continue
            error = MEDIAN_ERROR * statistics.median(spread[p] for p in fresh) / math.sqrt(partners)
            alike = sum(off[p] >= size / 2 for p in fresh)
            if size < ERRORS * error or alike < (SHARE * len(fresh) if len(fresh) >= 4 else len(fresh)):
                continue
            gain = sum(_loss(off[p], spread[p]) - _loss(off[p] - size, spread[p]) for p in fresh)
            if best is None or gain > best[0] * (1 + 1e-9):
                best = (gain, part, size, fresh)
        if best is None or best[0] <= 0:
            break
        _, part, size, fresh = best
        chosen.append((part, size, fresh))
        parts = [other for other in parts if other is not part]
        for p in part.pairs:
            effect[p] = max(effect.get(p, 0.0), size)
            if off[p] >= size / 2 or off[p] < math.log1p(LEAST):
                done.add(p)
    chosen += _single(off, spread, effect)
    return _Fit(bases, spreads, chosen)


def _cost(
    fit: _Fit, slow: Mapping[Pair, float], named: Mapping[Pair, str], spreads: Mapping[str, float]
) -> tuple[float, int]:
    """Parts that it needs, and pairs that it leaves far off on either side, by the smaller spread of all fits."""
    effect, left = _predicted(fit.chosen), 0
    for pair, value in slow.items():
        name = named[pair]
        limit = max(ERRORS * spreads[name], math.log1p(LEAST))
        left += abs(min(value - fit.bases[name], STOPPED) - effect.get(pair, 0.0)) > limit
    return len(fit.chosen) + 1.5 * left, left


def _loss(off: float, spread: float) -> float:
    """How badly a pair is explained, in spreads; what is far off counts no more than 50 of them."""
    return min(abs(off) / spread, 50.0)


def _single(
    off: Mapping[Pair, float], spread: Mapping[Pair, float], effect: Mapping[Pair, float]
) -> list[tuple[_Part, float, list[Pair]]]:
    """Pairs that no part explains, far off by themselves: a link where both of its directions are."""
    left = {
        p: off[p]
        for p in off
        if off[p] - effect.get(p, 0.0) > max(PAIR_SPREADS * spread[p], math.log1p(LEAST_PAIR))
        and off[p] > 2 * effect.get(p, 0.0)
    }
    found: list[tuple[_Part, float, list[Pair]]] = []
    for a, b in sorted(left):
        if (b, a) not in left:
            found.append((_Part("pair", (a, b), "sending", [(a, b)]), left[a, b], [(a, b)]))
        elif a < b:
            size = (left[a, b] + left[b, a]) / 2
            found.append((_Part("link", (a, b), "both", [(a, b), (b, a)]), size, [(a, b), (b, a)]))
    return found


def _suspect(
    part: _Part, effect: float, fresh: list[Pair], named: Mapping[Pair, str], fit: _Fit, lower_is_better: bool
) -> SlowSuspect:
    name = named[fresh[0]]
    slower = math.expm1(effect) if lower_is_better else -math.expm1(-effect)
    median = math.exp(fit.bases[name] if lower_is_better else -fit.bases[name])
    ends = {end for pair in fresh for end in pair} - set(part.subject)
    partners = len(ends) if part.kind in ("port", "link", "pair") else len({frozenset(p) for p in fresh})
    if part.kind in ("link", "pair"):
        confidence = 0.75 if part.kind == "link" else 0.5
    else:
        confidence = len(fresh) / len(part.pairs) * (1 - 0.5**partners) / (1 + len(part.also))
    sick = tuple(sorted(fresh))
    return SlowSuspect(
        part.kind,
        part.subject,
        part.direction,
        sick,
        len(part.pairs),
        slower,
        median,
        fit.spreads[name],
        partners,
        round(confidence, 3),
        tuple(math.exp(fit.bases[named[p]] if lower_is_better else -fit.bases[named[p]]) for p in sick),
        tuple(part.also),
    )


def _shared(
    members: Mapping[str, list[Pair]], fit: _Fit, worst: float | None, lower_is_better: bool
) -> list[SlowSuspect]:
    if worst is None:
        return []
    found = []
    for name, pairs in sorted(members.items()):
        middle = math.exp(fit.bases[name] if lower_is_better else -fit.bases[name])
        short = middle / worst - 1 if lower_is_better else 1 - middle / worst
        if len(pairs) > 2 and short > 0:
            found.append(
                SlowSuspect(
                    "shared", (), "both", tuple(sorted(pairs)), len(pairs), short, middle, fit.spreads[name], 0, 1.0
                )
            )
    return found
