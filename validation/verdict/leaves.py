"""Leaf switches, their ways to the others and the way between two of them, where all that crosses them is bad."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from validation.analysis.localise import Pair
from validation.judging.case import Case

LEAST_NODES = 2
"""So many nodes at a leaf switch have to say so: of one alone nobody can tell it from its switch."""

LOOK_THERE = (
    "Look at what these ports share: the switch, its uplinks and their optics, routing, MTU, congestion settings"
)
"""What to do about it."""


@dataclass(frozen=True)
class Shared:
    """What ports have in common and is at fault: `op` for a subject, `words` for people, and the pairs it explains."""

    op: str
    words: str
    pairs: tuple[Pair, ...]


def failed_leaves(case: Case, pairs: Mapping[Pair, bool]) -> list[Shared]:
    """What of the declared leaf switches explains bad pairs (True) wholly; nothing where the inventory declares none.

    A leaf switch: every pair of its ports is bad, those inside it too. Its way to the others: every pair that leaves
    it, to two others or more. The way between two: every pair across. Each only where other pairs are fine, and where
    pairs of LEAST_NODES nodes at the switch were judged.
    """
    if not any(pairs.values()) or all(pairs.values()):
        return []
    leaf = {f"{n.name}/{p.interface}": p.leaf for n in case.topology.nodes for p in n.ports if p.leaf}
    inside: dict[str, list[Pair]] = {}
    across: dict[tuple[str, str], list[Pair]] = {}
    for a, b in pairs:
        if a in leaf and b in leaf:
            one, other = sorted((leaf[a], leaf[b]))
            (inside.setdefault(one, []) if one == other else across.setdefault((one, other), [])).append((a, b))
    bad = {ends: mine for ends, mine in across.items() if all(pairs[p] for p in mine)}
    whole = [
        name
        for name, mine in inside.items()
        if all(pairs[p] for p in mine)
        and _nodes(mine, leaf, name) >= LEAST_NODES
        and (ways := [ends for ends in across if name in ends])
        and all(ends in bad for ends in ways)
    ]
    found = []
    for name in sorted(whole):
        ways = [ends for ends in bad if name in ends]
        found.append(_shared(f"leaf {name}", f"leaf switch {name}", inside[name], *(bad.pop(ends) for ends in ways)))
    rest = [ends for ends in across if not set(ends) & set(whole)]
    bad = {e: mine for e, mine in bad.items() if all(_nodes(mine, leaf, name) >= LEAST_NODES for name in e)}
    if len(bad) == len(rest) > 1:
        return [*found, _shared("leaf switches", "all ways between leaf switches", *bad.values())]
    for name in sorted({name for ends in bad for name in ends}):
        ways = [ends for ends in bad if name in ends]
        if len(ways) > 1 and len(ways) == sum(name in ends for ends in rest):
            words = f"the way from leaf switch {name} to the others"
            found.append(_shared(f"uplinks of leaf {name}", words, *(bad.pop(ends) for ends in ways)))
    for one, other in sorted(bad):
        words = f"the way between leaf switches {one} and {other}"
        found.append(_shared(f"leaf {one} to leaf {other}", words, bad[one, other]))
    return found


def _nodes(pairs: Iterable[Pair], leaf: Mapping[str, str], name: str) -> int:
    return len({end.partition("/")[0] for pair in pairs for end in pair if leaf[end] == name})


def _shared(op: str, words: str, *parts: Iterable[Pair]) -> Shared:
    return Shared(op, words, tuple(sorted(pair for part in parts for pair in part)))
