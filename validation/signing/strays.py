"""Files of a run that nothing of it speaks of: what they say is not checked, and follows from nothing."""

from __future__ import annotations

from collections.abc import Iterable

from validation.report.customer import FILES as BROUGHT
from validation.report.customer import NAME as REPORT_YML
from validation.report.customer import customer_of
from validation.report.formats import FILES
from validation.report.pdf_record import NAME as PDF_RECORD
from validation.run.names import PLAN, RESULTS, RUN, TOPOLOGY, VERDICT
from validation.run.raw_logs import log_of
from validation.run.read import Run
from validation.signing.readme import README

SUPERSEDED = "superseded/"
_FIXED = frozenset((RUN, TOPOLOGY, PLAN, RESULTS, VERDICT, README, *FILES.values()))


def ignored(run: Run) -> list[str]:
    """What of results.jsonl counts nowhere, one line each."""
    planned = {m.id for m in run.plan.measurements}
    others = dict.fromkeys(r.measurement for r in run.whole_results if r.measurement not in planned)
    found = [f"{RESULTS}: {', '.join(list(others)[:3])}: in no plan, so it counts nowhere"] if others else []
    return found + ([run.torn] if run.torn else [])


def strays(run: Run, names: Iterable[str]) -> list[str]:
    """Of the files `names` of a run those that are none of its documents, reports and raw logs.

    What lies under `superseded/` is looked at by itself (superseded.py).
    """
    customer = customer_of(run.folder)
    planned = {m.id: m for m in run.plan.measurements}
    known = {*_FIXED, *(name for name in run.info.documents if "/" not in name or name.endswith(".yml"))}
    known |= {
        log.path
        for r in run.whole_results
        if (m := planned.get(r.measurement)) is not None
        for log in r.provenance.raw
        if log_of(m, log.path)
    }
    if (run.folder / FILES["pdf"]).is_file():
        known.add(PDF_RECORD)
    if (run.folder / REPORT_YML).is_file():
        known |= {REPORT_YML, *([customer.logo] if customer.logo else ())}
    folder = f"{customer.templates or BROUGHT}/" if customer.templates else None
    return [
        name
        for name in names
        if name not in known
        and not name.startswith(SUPERSEDED)
        and not (folder is not None and name.startswith(folder) and "/" not in name[len(folder) :])
    ]
