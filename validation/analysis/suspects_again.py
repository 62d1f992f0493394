"""Suspects of a pair matrix that are measured again: by which pairs, and whether they are as slow still. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from validation.analysis.suspects import Pair, SlowSuspect, slowness

SINGLE_AGAIN = 3
"""So many times a single pair or link is measured again before it is named: something may be in its way now and then.
Project default."""


def partners_for(
    suspect: SlowSuspect, found: Iterable[SlowSuspect], pairs: Iterable[Pair], count: int = 4
) -> list[Pair]:
    """Pairs by which a suspect is measured again: its own, with partners whom nobody suspects, as many as `count`.

    Of a pair or link, whose partner is the suspect's other half: the pair itself, and each end with somebody else.
    """
    others = [g for g in found if g is not suspect]
    suspected = {end for g in others for pair in g.pairs for end in pair if end in g.subject}
    own = sorted(suspect.pairs)
    if suspect.kind in ("link", "pair"):
        ends = set(suspect.subject)
        besides = [p for p in sorted(pairs) if len(ends & set(p)) == 1 and not suspected & set(p)]
        return [*own, *besides[:count]]
    free = [p for p in own if not suspected & set(p)]
    seen: dict[str, Pair] = {}
    for a, b in free:
        seen.setdefault(b if a in suspect.subject else a, (a, b))
    return list(seen.values())[:count] or own[:count]


def settled(
    suspect: SlowSuspect, *again: Mapping[Pair, float], lower_is_better: bool = False
) -> Literal["persistent", "transient", "unclear"]:
    """Whether a suspect is as slow in measurements taken again: most of its own pairs at least half as slow each time.

    Of a pair or link, which nothing else confirms, SINGLE_AGAIN measurements must say so. "unclear" where nothing was
    taken again, or as many say the one as the other.
    """
    effect = math.log1p(suspect.slower) if lower_is_better else -math.log1p(-min(suspect.slower, 0.999))
    said = []
    for values in again:
        still = [
            slowness(values[p], lower_is_better) - slowness(healthy, lower_is_better) >= effect / 2
            for p, healthy in zip(suspect.pairs, suspect.healthy, strict=True)
            if p in values
        ]
        if still:
            said.append(2 * sum(still) - len(still))
    wanted = SINGLE_AGAIN if suspect.kind in ("pair", "link") else 1
    if any(s < 0 for s in said):
        return "transient"
    return "persistent" if len(said) >= wanted and all(s > 0 for s in said) else "unclear"


def confirmed(
    found: Iterable[SlowSuspect], *again: Mapping[Pair, float], lower_is_better: bool = False
) -> list[SlowSuspect]:
    """Suspects that were measured again and are as slow still, with the confidence that gives them."""
    return [
        replace(g, confidence=round(1 - (1 - g.confidence) / 2, 3))
        for g in found
        if settled(g, *again, lower_is_better=lower_is_better) == "persistent"
    ]
