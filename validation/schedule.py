"""Pairwise schedules: round-robin tournaments in which nobody is in two measurements at a time."""

from __future__ import annotations

from collections.abc import Sequence

Pair = tuple[str, str]


def tournament(names: Sequence[str]) -> list[list[Pair]]:
    """Rounds of disjoint unordered pairs that together hold every pair once (circle method).

    N-1 rounds of N/2 pairs for an even number of names, N rounds with one name resting for an odd one. Empty for
    fewer than two names. ValueError for a duplicate name.
    """
    if len(set(names)) != len(names):
        raise ValueError("duplicate name in the schedule")
    circle: list[str | None] = list(names)
    if len(circle) % 2:
        circle.append(None)
    rounds: list[list[Pair]] = []
    for _ in range(max(len(circle) - 1, 0)):
        half = len(circle) // 2
        met = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append([(a, b) for a, b in met if a is not None and b is not None])
        circle[1:] = [circle[-1], *circle[1:-1]]  # the first stands still, the others move on by one
    return [r for r in rounds if r]


def directed_rounds(names: Sequence[str]) -> list[list[Pair]]:
    """Every ordered pair once: each tournament round, then the same round in the other direction."""
    rounds: list[list[Pair]] = []
    for pairs in tournament(names):
        rounds.append(pairs)
        rounds.append([(b, a) for a, b in pairs])
    return rounds


def evenly(count: int, of: int) -> list[int]:
    """`count` indices spread evenly over range(`of`), always the same ones; all of them where count >= of."""
    if count >= of:
        return list(range(of))
    return sorted({(i * of) // count for i in range(count)})
