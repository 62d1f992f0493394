"""What is left out of a run by --without is not measured, says so, and is planned the same again."""

from __future__ import annotations

import pytest

from tests.support.site import CRITERIA, LAB, criterion, judged, plan_of
from validation.model import RunInfo
from validation.plan.suites import WITHOUT, PlanError
from validation.rules.fabric import load_fabric
from validation.run.conflicts import _other_plan

ASKED = {WITHOUT: "pf.converged"}


def test_it_is_not_planned_and_the_plan_says_why():
    plan = plan_of(LAB, ("preflight", "as-built"), options=ASKED)
    assert "converged" not in {m.kind for m in plan.measurements}
    assert "as-built" in {m.kind for m in plan.measurements}
    assert plan.left_out[-1].criteria == ("pf.converged",)
    assert "converged" in {m.kind for m in plan_of(LAB, ("preflight", "as-built")).measurements}
    assert criterion(judged(lambda m: None, plan=plan), "pf.converged").verdict == "not-measured"


@pytest.mark.parametrize("suites", [("preflight", "as-built"), ("preflight",)])
def test_the_run_is_what_its_documents_would_plan(suites):
    plan = plan_of(LAB, suites, options=ASKED)
    info = RunInfo.model_construct(run=plan.run, suites=suites, options=ASKED)
    assert not list(_other_plan(info, LAB, plan, load_fabric("tcp10"), CRITERIA))
    assert list(_other_plan(info.model_copy(update={"options": {}}), LAB, plan, load_fabric("tcp10"), CRITERIA))


def test_an_option_of_training_still_wants_its_suite():
    with pytest.raises(PlanError, match="suite training"):
        plan_of(LAB, ("preflight",), options={**ASKED, "models": "resnet50"})
