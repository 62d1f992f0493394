"""The verdict that the report shows, also for a run that nobody judged."""

from __future__ import annotations

from validation.model import CriterionVerdict, VerdictDoc
from validation.report.documents import RunDocuments
from validation.report.numbers import NONE

_NOT_JUDGED = "not judged: the run has no verdict.json"


def verdict_of(documents: RunDocuments) -> VerdictDoc:
    """The run's verdict. A run without verdict.json is INCOMPLETE, and none of its criteria has passed anything."""
    if documents.verdict is not None:
        return documents.verdict
    usable = {r.measurement for r in documents.results if r.status == "ok"}
    missing = tuple(m.id for m in documents.plan.measurements if m.id not in usable)
    planned = len(documents.plan.measurements)
    without = documents.profile.not_owed(documents.catalogue.values(), documents.fabric) if documents.profile else {}
    required = {c.id for c in documents.catalogue.values() if c.required}
    owed = set(documents.profile.owed) - without.keys() if documents.profile else required
    wanted = {c for m in documents.plan.measurements for c in m.criteria}
    return VerdictDoc(
        run=documents.info.run,
        fabric=documents.info.fabric,
        site=documents.info.site,
        sign_off="INCOMPLETE",
        outcome="incomplete",
        headline="This run was not judged, for verdict.json is missing. "
        f"{planned - len(missing)} of {planned} planned measurements have a result.",
        planned=planned,
        measured=planned - len(missing),
        missing=missing,
        criteria=tuple(
            CriterionVerdict(
                id=c.id,
                statement=c.statement,
                source=c.source,
                required=c.required,
                owed=c.id in owed,
                not_owed="" if c.id in owed else without.get(c.id, "reported for information"),
                verdict="not-measured",
                reason_code="missing-result" if c.id in wanted else "not-selected",
                reason=_NOT_JUDGED if c.id in wanted else "not part of this run's plan",
                coverage=NONE,
            )
            for c in documents.catalogue.values()
        ),
        findings=(),
        profile=documents.profile.agreed() if documents.profile else None,
        notes=(f"Finish the run with: {documents.info.resume(documents.info.run)}",),
    )
