"""Pairs of ports as equals: rails that fail as a whole, and parts that pass and are slower than their equals."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from validation.analysis.suspects import Pair, Place, SlowSuspect, suspects
from validation.base.counting import number_of
from validation.judging.case import Case
from validation.model import Judgement
from validation.model.judgement import Sort
from validation.rules.criterion import Criterion


def places_of(case: Case) -> dict[str, Place]:
    """Where each declared port is: its node, and as its rail the network of its address where there are several."""
    found = {}
    networks: dict[str, str] = {}
    for node in case.topology.nodes:
        for port in node.ports:
            try:
                network = str(ipaddress.ip_interface(f"{port.address}/{port.prefix}").network)
            except ValueError:  # an address that nobody could have planned by
                network = ""
            name = f"{node.name}/{port.interface}"
            networks[name], found[name] = network, Place(node.name)
    if len(set(networks.values()) - {""}) > 1:
        found = {name: Place(place.node, rail=networks[name]) for name, place in found.items()}
    return found


def failed_rails(case: Case, pairs: Mapping[Pair, bool]) -> dict[str, tuple[Pair, ...]]:
    """Networks of which every judged pair is bad (True), three ports or more, while others are not as bad: name ->
    pairs."""
    places = places_of(case)
    by_rail: dict[str, list[Pair]] = {}
    for pair in pairs:
        rails = {places[end].rail for end in pair if end in places}
        if len(rails) == 1 and (rail := rails.pop()):
            by_rail.setdefault(rail, []).append(pair)
    bad = {
        rail: tuple(sorted(mine))
        for rail, mine in by_rail.items()
        if all(pairs[p] for p in mine) and len({end for p in mine for end in p}) > 2
    }
    return bad if len(bad) < len(by_rail) else {}


@dataclass(frozen=True)
class Slower:
    """A part whose pairs pass a criterion, and are slower than those of its equals all the same."""

    criterion: str
    lower_is_better: bool
    sort: Sort
    unit: str
    suspect: SlowSuspect

    @property
    def words(self) -> str:
        """One sentence for people."""
        it, sort, unit = self.suspect, self.sort, self.unit
        worse = "longer" if self.lower_is_better else "slower"
        each = 2 if sort.both_ways else 1  # of both ways at once a pair has one value for its two directions
        return (
            f"{self.criterion}{f' ({sort.words})' if sort.words else ''}: {it.words} is {it.slower:.0%} {worse} "
            f"than its equals in {len(it.pairs) // each} of its {number_of(it.of // each, 'pair')}, "
            "within the bound (their "
            f"median {it.median:.4g} {unit}, their spread {it.spread:.1%}; confidence {it.confidence:.0%})"
        )


def slower(case: Case, judged: Mapping[str, Sequence[Judgement]]) -> list[Slower]:
    """Parts whose pairs pass, and are slower than those of their equals all the same.

    Of real hardware alone, and of criteria that pass as a whole; a single pair is not told, for nothing confirms it.
    """
    if case.virtual or case.topology.virtual or case.virtual_nodes:
        return []
    found: list[Slower] = []
    for criterion in case.criteria:
        mine = judged.get(criterion.id, ())
        if criterion.scope == "pair" and criterion.direction in ("higher", "lower") and mine:
            found += _slower(case, criterion, mine)
    return found


def _slower(case: Case, criterion: Criterion, judged: Sequence[Judgement]) -> list[Slower]:
    if any(j.verdict == "fail" for j in judged):
        return []
    values: dict[tuple[str, str, Sort], dict[Pair, float]] = {}
    for j in judged:
        if j.verdict == "pass" and j.value is not None and j.value > 0:
            metric = j.bound.metric if j.bound is not None else ""
            unit = j.bound.unit if j.bound is not None else criterion.unit or ""
            matrix = values.setdefault((metric, unit, j.about.sort), {})
            matrix |= {(str(one), str(other)): j.value for one, other in j.about.flows}
    places, found, lower = places_of(case), [], criterion.direction == "lower"
    for (_, unit, sort), matrix in sorted(values.items()):
        if any(end not in places for pair in matrix for end in pair):
            continue
        for suspect in suspects(matrix, places, lower_is_better=lower):
            if suspect.kind not in ("pair", "link"):
                found.append(Slower(criterion.id, lower, sort, unit, suspect))
    return found
