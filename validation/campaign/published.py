"""What the documents claim of what a section shows, and what each run makes of it, as its own report has it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from validation.campaign.model import Held, Published
from validation.report.published import is_ratio
from validation.rules.conformance import ClaimLine, Conformance
from validation.rules.reference import Claim, Reference

Standing = Sequence[tuple[str, Reference, Conformance]]
"""Of each run its name, the claims that it began with, and how they stand."""


def published(criteria: Collection[str], runs: Standing) -> tuple[Published, ...]:
    """The claims that these criteria confirm, and public ratios of others, in the order of the documents."""
    known: dict[str, tuple[Reference, Claim]] = {}
    for _, reference, _ in runs:
        for id_, claim in reference.claims.items():
            if _criterion(claim) in criteria:
                known.setdefault(id_, (reference, claim))
    lines = [{line.id: line for line in conformance.claims} for _, _, conformance in runs]
    return tuple(
        _published(
            reference, claim, [_held(name, mine.get(id_)) for (name, _, _), mine in zip(runs, lines, strict=True)]
        )
        for id_, (reference, claim) in known.items()
    )


def _criterion(claim: Claim) -> str | None:
    """The criterion beside whose values a claim stands."""
    if claim.confirmed_by is not None:
        return claim.confirmed_by.criterion
    return "rm.ratio" if is_ratio(claim) else None


def _published(reference: Reference, claim: Claim, held: Sequence[Held | None]) -> Published:
    figure = claim.published
    return Published(
        claim=claim.id,
        criterion=_criterion(claim),
        statement=claim.statement,
        source=reference.source(claim),
        founding=reference.document(claim).founding,
        machines=tuple(reference.machines[key].short for key in claim.machines),
        fabrics=claim.fabrics,
        inferred=claim.inferred,
        printed=figure.printed if figure else None,
        value=figure.value if figure else None,
        unit=figure.unit if figure else "",
        held=tuple(held),
    )


def _held(run: str, line: ClaimLine | None) -> Held | None:
    if line is None:
        return None
    return Held(
        run=run,
        state=line.state,
        reason=line.reason,
        value=line.value,
        low=line.low,
        high=line.high,
        unit=line.unit,
        subject=line.subject,
    )
