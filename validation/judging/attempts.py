"""Several attempts of one measurement: which of them count.

1. An attempt whose failure, or whose width, can be explained by what its machines were denied is set aside.
2. All others count, and they count together: their samples are pooled. None is chosen for its value: an attempt that
   failed without such an explanation is never set aside.
3. Where one of those that count fails by itself and another passes by itself, the thing is not steady, and nothing is
   decided.
4. Where none counts, nothing is decided and no suspect is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from validation.analysis.denial import Loss, explains
from validation.base.counting import number_of
from validation.model import Judgement


@dataclass(frozen=True)
class Attempt:
    """One attempt: its samples, and what its machines were denied meanwhile."""

    values: tuple[float, ...]
    loss: Loss


def decide(attempts: Sequence[Attempt], judge: Callable[[list[float]], Judgement]) -> Judgement:
    """The judgement on at least one attempt; `judge` judges samples."""
    alone = [judge(list(attempt.values)) for attempt in attempts]
    if len(attempts) == 1 and not attempts[0].loss.disturbs:
        return alone[0]
    counted = [n for n, attempt in enumerate(attempts) if not explains(attempt.loss, alone[n])]
    aside = [n for n in range(len(attempts)) if n not in counted]
    if not counted:
        quietest = min(aside, key=lambda n: attempts[n].loss.share)
        return too_noisy(alone[quietest], attempts[quietest].loss, len(attempts))
    if len(attempts) == 1:
        return alone[0]
    verdicts = [alone[n].verdict for n in counted]
    pooled = judge([value for n in counted for value in attempts[n].values])
    if "fail" in verdicts and "pass" in verdicts:
        said = "; ".join(f"attempt {n + 1}: {alone[n].reason}" for n in counted)
        return undecided(pooled, f"intermittent; no attempt decides: {said}")
    words = number_of(len(counted), "attempt") if len(counted) > 1 else f"attempt {counted[0] + 1}"
    if aside:
        worst = max((attempts[n].loss for n in aside), key=lambda loss: loss.share)
        words += f", without {len(aside)} of {len(attempts)} meanwhile disturbed: {worst.words}"
    return pooled.model_copy(update={"reason": f"{pooled.reason} ({words})"})


def too_noisy(judgement: Judgement, loss: Loss, attempts: int = 1) -> Judgement:
    """Not measured, for what was denied explains what was found."""
    tries = f" in {number_of(attempts, 'attempt')}" if attempts > 1 else ""
    return undecided(judgement, f"{loss.words}{tries}; run again when it is quieter ({judgement.reason})")


def undecided(judgement: Judgement, reason: str) -> Judgement:
    """The same values, with no decision."""
    return judgement.model_copy(update={"verdict": "not-measured", "reason_code": "too-noisy", "reason": reason})
