"""The alerts of burn-ins: roles/monitoring/files/rules/elastic-ai-rules-site.yml."""

from __future__ import annotations

from tests.support.alert_cases import OF_SITE, SITE, Case, inside, steady

WRONG = {"criterion": "bi.exact", "subject": "gpu3", "found": "failed"}
BROKEN = {"criterion": "bi.events", "subject": "gpu4", "found": "broken-off"}
METRIC = "elastic_ai_site_soak_findings"

SOAK = [
    Case(
        "SoakFailed",
        {f"{METRIC}{inside({**OF_SITE, **WRONG})}": steady(1)},
        {f"{METRIC}{inside({**OF_SITE, **BROKEN})}": steady(1)},
        1,
        {**OF_SITE, **WRONG},
        "bi.exact failed on gpu3 in its newest burn-in of rack; keep it out of the pool until a burn-in passes. The "
        "report on head says what it found",
    ),
    Case(
        "SoakBrokenOff",
        {f"{METRIC}{inside({**OF_SITE, **BROKEN})}": steady(2)},
        # where burn-ins found nothing there is no series
        {f"elastic_ai_site_passed{SITE}": steady(1)},
        1,
        {**OF_SITE, **BROKEN},
        "A segment of the newest burn-in of gpu4 has no result (bi.events); the report on head says why. It is not "
        "burnt in",
    ),
]
