"""Waivers applied to judgements, as of the day of the run."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from validation.judging.case import Case
from validation.model import Judgement
from validation.waiver import Waiver


def apply_waivers(
    case: Case, judged: dict[str, list[Judgement]], waivers: Sequence[Waiver], created: str
) -> tuple[dict[str, list[Judgement]], dict[str, str], list[str]]:
    """Judgements with waivers applied, criteria waived as a whole (id -> words), notes on waivers without effect."""
    today = _day(created)
    whole: dict[str, str] = {}
    notes: list[str] = []
    judged = {k: list(v) for k, v in judged.items()}
    for waiver in waivers:
        name = f"waiver of {waiver.criterion}" + (f" for {waiver.subject}" if waiver.subject else "")
        if waiver.criterion not in judged:
            notes.append(f"{name} ({waiver.who}): no such criterion; it has no effect")
            continue
        if today is None or not waiver.when <= today <= waiver.expires:
            notes.append(f"{name} ({waiver.who}): valid from {waiver.when} to {waiver.expires}; it has no effect")
            continue
        words = f"waived by {waiver.who} on {waiver.when} until {waiver.expires}: {waiver.why}"
        used = False
        for position, judgement in enumerate(judged[waiver.criterion]):
            hit = waiver.subject in (None, judgement.subject)
            if hit and judgement.verdict in ("fail", "not-measured"):
                judged[waiver.criterion][position] = judgement.model_copy(
                    update={
                        "verdict": "waived",
                        "reason_code": "waived",
                        "reason": f"{words} (was {judgement.verdict}: {judgement.reason})",
                    }
                )
                used = True
        if waiver.subject is None and not judged[waiver.criterion]:
            criterion = next(c for c in case.criteria if c.id == waiver.criterion)
            if case.applies(criterion):
                whole[waiver.criterion] = words
                used = True
        if not used:
            notes.append(f"{name} ({waiver.who}): nothing to waive; remove it")
    return judged, whole, notes


def _day(created: str) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(created[:10])
    except ValueError:
        return None
