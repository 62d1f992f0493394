"""Constructed pair matrices: sites of many shapes, noise as of real links, parts at fault. Invented numbers."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from itertools import permutations

from validation.analysis.suspects import Pair, Place


@dataclass
class Shape:
    """`rails` ports of each node; with `leaves`, nodes stand under leaves in turn, else each rail is a leaf. `sample`:
    so many partners of each port, 0 for all."""

    nodes: int
    rails: int = 1
    leaves: int = 0
    sample: int = 0

    def places(self) -> dict[str, Place]:
        found = {}
        for n in range(self.nodes):
            for r in range(self.rails):
                leaf = f"leaf{n % self.leaves}" if self.leaves else ""
                found[f"n{n}/fab{r}"] = Place(f"n{n}", f"rail{r}" if self.rails > 1 else "", leaf)
        return found

    def pairs(self, generator: random.Random) -> list[Pair]:
        found = []
        for r in range(self.rails):
            names = [f"n{n}/fab{r}" for n in range(self.nodes)]
            if not self.sample:
                found += list(permutations(names, 2))
                continue
            for _ in range(self.sample):
                order = names[:]
                generator.shuffle(order)
                for a, b in zip(order[::2], order[1::2], strict=False):
                    found += [(a, b), (b, a)]
        return list(dict.fromkeys(found))


@dataclass
class Noise:
    """`sigma` of a measurement, `port` of what ports differ by nature; `odd` share of pairs that something disturbs
    for once, up to `odd_by` of their value; `heavy` Student's t with 4 degrees of freedom instead of the normal one."""

    sigma: float = 0.01
    port: float = 0.002
    heavy: bool = False
    odd: float = 0.0
    odd_by: float = 0.3


@dataclass
class Site:
    """A shape with its noise and faults: part (kind, subject, direction) -> share of the value lost."""

    shape: Shape
    noise: Noise = field(default_factory=Noise)
    faults: dict[tuple[str, tuple[str, ...], str], float] = field(default_factory=dict)
    rate: float = 390.0
    across: float = 1.0  # of the rate between leaves

    def measured(
        self, seed: int, again: tuple[Pair, ...] = (), lower_is_better: bool = False, turn: int = 0
    ) -> dict[Pair, float]:
        """The matrix; with `again` those pairs alone, measured at another time."""
        generator = random.Random(seed)
        places = self.shape.places()
        natural = {port: generator.gauss(0, self.noise.port) for port in places}
        pairs = self.shape.pairs(generator)
        if again:
            pairs, generator = list(again), random.Random(seed + 1_000_003 * (turn + 1))
        values = {}
        for pair in pairs:
            noise = generator.gauss(0, 1)
            if self.noise.heavy:
                noise /= math.sqrt(generator.gammavariate(2, 2) / 4) * math.sqrt(2)  # variance 1
            log = noise * self.noise.sigma + natural[pair[0]] + natural[pair[1]]
            if generator.random() < self.noise.odd:
                log += math.log1p(-generator.uniform(0, self.noise.odd_by))
            lost = max((share for part, share in self.faults.items() if takes(part, pair, places)), default=0.0)
            value = self.rate * math.exp(log) * (1 - lost)
            if places[pair[0]].leaf != places[pair[1]].leaf:
                value *= self.across
            values[pair] = 1000 / value if lower_is_better else value
        return values


def takes(part: tuple[str, tuple[str, ...], str], pair: Pair, places: dict[str, Place]) -> bool:
    """Whether a pair goes through a part."""
    kind, subject, direction = part
    one, other = places[pair[0]], places[pair[1]]
    if kind in ("link", "pair"):
        return pair == subject or (kind == "link" and pair == subject[::-1])
    if kind == "leaves":
        return {one.leaf, other.leaf} == set(subject)
    ends = {
        "port": pair,
        "node": (one.node, other.node),
        "rail": (one.rail, other.rail),
        "leaf": (one.leaf, other.leaf),
        "uplink": (one.leaf, other.leaf),
    }[kind]
    if kind == "uplink" and one.leaf == other.leaf:
        return False
    return (direction != "receiving" and ends[0] == subject[0]) or (direction != "sending" and ends[1] == subject[0])
