"""What burn-ins found, as figures for Prometheus: of each subject by the newest run that burnt it in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.parser import text_string_to_metric_families

from tests.support.burn_in_case import document, report
from tests.support.site import CRITERIA, hardware, plan_of, result, run_info, verdict_of
from validation.kinds import parse
from validation.model import VerdictDoc
from validation.model.run_info import UnitPart
from validation.run.read import Run
from validation.trend.metrics import MOST_FINDINGS, metrics_text
from validation.trend.model import Trend
from validation.trend.soaks import SoakFinding, soaks_of

EXACT = "bi.exact"


NODES = ("gpu1", "gpu2", "gpu3")


def burnt_in(
    run: str, wrong: Mapping[str, int | None], suite: str = "burn-in", others: tuple[str, ...] = NODES
) -> tuple[Run, VerdictDoc]:
    """A unit's run: node -> wrong results of its first GPU, None for a segment without a result. others: all nodes."""
    site = hardware(tuple(wrong))
    plan = plan_of(site, (suite,), run=run, options={"minutes": 10})
    results = []
    for m in plan.measurements if suite == "burn-in" else ():
        count = wrong[m.nodes[0]]
        if m.kind != "burn-in" or count is None:
            continue
        found = report()
        found["devices"][0]["wrong"] = count
        samples, facts = parse("burn-in", document(found), m.params)  # type: ignore[arg-type]
        results.append(result(m, samples, facts=facts, run=run))
    part = UnitPart(elsewhere=tuple(set(others) - set(wrong)), within=("unit",), apart=())
    info = run_info(site, plan).model_copy(update={"part": part, "unit": "unit"})
    stub = SimpleNamespace(info=info, criteria=CRITERIA, topology=site)
    return cast(Run, stub), verdict_of(site, plan, results)


def exact(found: Sequence[SoakFinding]) -> list[tuple[str, str]]:
    return [(one.subject, one.found) for one in found if one.criterion == EXACT]


FIRST = burnt_in("2026-11-21T10-00-00Z-tcp10", {"gpu1": 3, "gpu2": None, "gpu3": 0})


def test_wrong_results_and_a_segment_without_a_result_are_findings_failures_first() -> None:
    found = soaks_of([FIRST])
    assert exact(found) == [("gpu1, GPU 0", "failed"), ("gpu2", "broken-off")]
    words = [one.found for one in found]
    assert words == sorted(words, reverse=True), "failures first"


def test_only_a_later_burn_in_of_the_same_node_takes_a_finding_away() -> None:
    other = burnt_in("2026-11-23T10-00-00Z-tcp10", {"gpu1": 0, "gpu2": 0}, suite="preflight")
    assert exact(soaks_of([other, FIRST])) == exact(soaks_of([FIRST]))
    alone = burnt_in("2026-11-22T10-00-00Z-tcp10", {"gpu1": 0})
    assert exact(soaks_of([FIRST, other, alone])) == [("gpu2", "broken-off")]
    both = burnt_in("2026-11-24T10-00-00Z-tcp10", {"gpu2": 1})
    assert exact(soaks_of([FIRST, alone, both])) == [("gpu2, GPU 0", "failed")]
    assert soaks_of([other]) == ()


def test_findings_of_a_node_end_when_it_left_the_site() -> None:
    left = burnt_in("2026-11-22T10-00-00Z-tcp10", {"gpu1": 0}, suite="preflight", others=("gpu1", "gpu3"))
    assert exact(soaks_of([FIRST, left])) == [("gpu1, GPU 0", "failed")]
    back = burnt_in("2026-11-23T10-00-00Z-tcp10", {"gpu1": 0}, suite="preflight")
    assert exact(soaks_of([FIRST, left, back])) == exact(soaks_of([FIRST]))
    old = cast(Run, SimpleNamespace(**{**vars(left[0]), "info": left[0].info.model_copy(update={"part": None})}))
    assert exact(soaks_of([FIRST, (old, left[1])])) == exact(soaks_of([FIRST])), "it knows its unit's nodes alone"
    assert soaks_of([]) == ()


def told(soaks: Sequence[SoakFinding]) -> dict[str, list[tuple[dict[str, str], float]]]:
    run: dict[str, Any] = {"run": "r", "created": "2026-11-21T10:00:00Z", "day": 0.0, "sign_off": "INSPECTION",
                           "outcome": "passed", "headline": "", "toolkit_version": "1"}  # fmt: skip
    trend = Trend.model_validate(
        {"site": "rack", "fabric": "tcp10", "rehearsal": False, "headline": "", "runs": (run,), "quantities": (),
         "drifts": (), "tested": 0, "level": 0.01, "notes": ()}
    )  # fmt: skip
    families = text_string_to_metric_families(metrics_text(trend, 60, soaks).decode())
    return {f.name: [(s.labels, s.value) for s in f.samples] for f in families}


def test_findings_are_series_and_their_number_has_an_end() -> None:
    few = told(soaks_of([FIRST]))
    common = {"site": "rack", "fabric": "tcp10", "rehearsal": "false"}
    assert ({**common, "criterion": EXACT, "subject": "gpu1, GPU 0", "found": "failed"}, 1) in few[
        "elastic_ai_site_soak_findings"
    ]
    many = [SoakFinding(EXACT, f"gpu{n}", "failed", 1) for n in range(200)]
    assert len(told(many)["elastic_ai_site_soak_findings"]) == MOST_FINDINGS
