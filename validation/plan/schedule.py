"""Pairwise schedules: round-robin tournaments in which nobody is in two measurements at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Pair = tuple[str, str]
Name = TypeVar("Name")


def tournament(names: Sequence[str]) -> list[list[Pair]]:
    """Rounds of disjoint unordered pairs that together hold every pair once (circle method).

    N-1 rounds of N/2 pairs for an even number of names, N rounds with one name resting for an odd one. Empty for
    fewer than two names. ValueError for a duplicate name.
    """
    return [tournament_round(names, number) for number in range(tournament_rounds(len(names)))]


def tournament_rounds(count: int) -> int:
    """How many rounds a tournament of so many names has."""
    return count - 1 + count % 2 if count > 1 else 0


def tournament_round(names: Sequence[Name], number: int) -> list[tuple[Name, Name]]:
    """One round of a tournament alone: of a fleet few are taken, and all would be a pair of every two nodes."""
    if len(set(names)) != len(names):
        raise ValueError("duplicate name in the schedule")
    others: list[Name | None] = list(names[1:])
    if len(names) % 2:
        others.append(None)
    turn = number % len(others)
    # the first stands still, the others move on by one each round
    circle: list[Name | None] = [names[0], *others[len(others) - turn :], *others[: len(others) - turn]]
    half = len(circle) // 2
    met = zip(circle[:half], reversed(circle[half:]), strict=True)
    return [(a, b) for a, b in met if a is not None and b is not None]


def directed_rounds(names: Sequence[str], kept: Sequence[int] | None = None) -> list[list[Pair]]:
    """Every ordered pair once: each tournament round, then the same round in the other direction. `kept`: of these
    rounds of the tournament alone.
    """
    rounds: list[list[Pair]] = []
    for number in range(tournament_rounds(len(names))) if kept is None else kept:
        pairs = tournament_round(names, number)
        rounds.append(pairs)
        rounds.append([(b, a) for a, b in pairs])
    return rounds


def evenly(count: int, of: int) -> list[int]:
    """`count` indices spread evenly over range(`of`), always the same ones; all of them where count >= of."""
    if count >= of:
        return list(range(of))
    return sorted({(i * of) // count for i in range(count)})
