"""From a directed pair matrix to the suspect port, link or pair.

A sick port spoils every pair that it takes part in: N-1 partners, in one direction or both. Reporting those pairs one
by one hides the cause, so the fewest ports are named that explain the failures, and pairs only for what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Direction = Literal["both", "sending", "receiving"]
Pair = tuple[str, str]

SHARE = 0.75
"""Share of a port's pairs that must be bad before it is named, where it has at least 4: a single lucky pair does not
clear a sick port. Smaller stars must be bad as a whole. Project default."""


@dataclass(frozen=True)
class Suspect:
    """What explains `pairs`. `subject` is one endpoint for a port, two for a link or pair, none for the cluster."""

    kind: Literal["port", "link", "pair", "cluster"]
    subject: tuple[str, ...]
    direction: Direction
    pairs: tuple[Pair, ...]
    of: int  # judged pairs that the subject takes part in, in that direction

    @property
    def confidence(self) -> float:
        """From 0 to 1: share of the subject's pairs that are bad, and how many partners say so; see verdicts.md.

        A rule and no probability: one partner alone is right or wrong as a coin is, each further one halves the doubt.
        """
        if self.kind in ("link", "pair"):
            return 0.75 if self.kind == "link" else 0.5
        partners = len({end for pair in self.pairs for end in pair} - set(self.subject))
        return round(len(self.pairs) / max(self.of, 1) * (1 - 0.5**partners), 3)


_Stars = Mapping[str, Mapping[Direction, list[Pair]]]
"""The pairs of each end, by its part in them."""


def _stars(pairs: Iterable[Pair]) -> _Stars:
    found: dict[str, dict[Direction, list[Pair]]] = {}
    for pair in pairs:
        for end in dict.fromkeys(pair):
            star = found.setdefault(end, {"both": [], "sending": [], "receiving": []})
            star["both"].append(pair)
        found[pair[0]]["sending"].append(pair)
        found[pair[1]]["receiving"].append(pair)
    return found


def localise(pairs: Mapping[Pair, bool], undecided: bool = False) -> list[Suspect]:
    """The suspect of a matrix: (source, destination) -> True where the pair is bad. Pairs not judged are left out.

    With two endpoints nobody can tell which one is at fault, and the link is named; where every pair of three or more
    endpoints is bad, the cluster. `undecided`: some of the pairs left out were measured and could not be decided, so
    that the bad ones may be all that were decided: then only a port that explains every one of them is named.
    """
    bad = sorted(pair for pair, is_bad in pairs.items() if is_bad)
    if not bad:
        return []
    stars = _stars(pairs)  # of all ends at once: of a fleet, to look for each end's in all pairs takes minutes
    ends = sorted(stars)
    if len(ends) > 2 and len(bad) == len(pairs):
        worst = _worst(pairs, stars, set(bad)) if undecided else None
        if worst is not None and len(worst.pairs) == len(bad):
            return [worst]
        return [Suspect("cluster", (), "both", tuple(bad), len(pairs))]
    suspect: list[Suspect] = []
    left = set(bad)
    while len(ends) > 2:
        found = _worst(pairs, stars, left)
        if found is None:
            break
        suspect.append(found)
        left -= set(found.pairs)
    for a, b in sorted(left):
        if (b, a) in left and a < b:
            suspect.append(Suspect("link", (a, b), "both", ((a, b), (b, a)), 2))
        elif (b, a) not in left:
            suspect.append(Suspect("pair", (a, b), "sending", ((a, b),), 1))
    return suspect


def _worst(pairs: Mapping[Pair, bool], stars: _Stars, left: set[Pair]) -> Suspect | None:
    """The port that explains most of what is left, and at least two partners of it; None where there is none."""
    best: tuple[int, float, Suspect] | None = None
    directions: tuple[Direction, ...] = ("both", "sending", "receiving")
    for end in sorted({end for pair in left for end in pair}):
        for direction in directions:
            star = stars[end][direction]
            sick = [pair for pair in star if pairs[pair]]
            fresh = [pair for pair in sick if pair in left]
            partners = {a if b == end else b for a, b in fresh}
            if direction == "both" and not all(any(pairs[p] for p in stars[end][d]) for d in directions[1:]):
                continue  # one direction only: the narrower explanation says more
            enough = SHARE * len(star) if len(star) >= 4 else len(star)
            if len(partners) < 2 or len(sick) < enough:
                continue
            share = len(sick) / len(star)
            if best is None or (len(fresh), share) > best[:2]:
                best = (len(fresh), share, Suspect("port", (end,), direction, tuple(sorted(fresh)), len(star)))
    return best[2] if best else None
