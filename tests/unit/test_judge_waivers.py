"""Waivers: a named person's decision, shown, and without effect once expired."""

from __future__ import annotations

import datetime
import re
from types import SimpleNamespace

import pytest

from tests.support.site import (
    CRITERIA,
    LAB,
    PLAN,
    REAL,
    REAL_FACTS,
    criterion,
    healthy,
    judged,
    plan_of,
    results_of,
    spoil,
    verdict_of,
    waive_all,
    waiver,
    with_facts,
)
from validation.verdict.owed import _mostly_waived

SICK = spoil("tcp-bandwidth", lambda a, b: "gpu2" in (a, b), 0.0985)


def test_a_waiver_lifts_a_failure_and_is_shown():
    verdict = judged(SICK, waivers=[waiver()])
    tcpbw = criterion(verdict, "tr.tcpbw")
    assert (tcpbw.verdict, verdict.exit_code) == ("waived", 0)
    assert "A. Person" in tcpbw.reason
    assert "cable on order" in tcpbw.reason
    assert "was fail" in tcpbw.reason
    assert not verdict.findings


def test_a_waiver_of_one_subject_leaves_the_others():
    verdict = judged(SICK, waivers=[waiver(subject="gpu1/fab0>gpu2/fab0")])
    assert verdict.exit_code == 1
    assert sum(j.verdict == "waived" for j in criterion(verdict, "tr.tcpbw").judgements) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expires": datetime.date(2026, 11, 20)}, "it expired on 2026-11-20, before the day of the run (2026-11-21)"),
        ({"criterion": "tr.netlat"}, "nothing to waive"),
        ({"criterion": "tr.nothing"}, "no such criterion"),
        ({"subject": "gpu9"}, "nothing to waive: no such subject"),
        ({"subject": "gpu1/fab0>gpu3/fab0"}, "did you mean gpu1/fab0>gpu2/fab0?"),
    ],
)
def test_an_expired_or_unused_waiver_has_no_effect_and_is_told(changes, words):
    verdict = judged(SICK, waivers=[waiver(**changes)])
    assert verdict.exit_code == 1
    assert any(words in note for note in verdict.notes)


def test_a_waiver_excuses_only_the_measurement_that_it_covers():
    gone = "tcp-bandwidth.gpu1-fab0.gpu2-fab0"
    results = [r for r in results_of(PLAN) if r.measurement != gone]

    def waived(subject: str) -> int:
        both = [waiver(criterion=id_, subject=subject) for id_ in ("tr.tcpbw", "tr.tcploss")]  # what it was planned for
        return verdict_of(LAB, PLAN, results, both).exit_code

    assert waived("gpu1/fab0>gpu2/fab0") == 0
    assert waived("gpu2/fab0>gpu1/fab0") == 3


def test_a_decision_taken_after_the_run_counts_and_is_shown_with_its_day():
    """People decide when they have seen what came out; what counts is that the waiver still held on the run's day."""
    verdict = judged(SICK, waivers=[waiver(when=datetime.date(2026, 11, 25))])
    assert verdict.exit_code == 0
    assert "on 2026-11-25 until" in criterion(verdict, "tr.tcpbw").reason
    (use,) = verdict.waivers
    assert (use.who, use.when, use.without_effect) == ("A. Person", "2026-11-25", "")
    assert "gpu1/fab0>gpu2/fab0" in use.covered


def real(m):
    return healthy(m, 10.0, facts=REAL_FACTS)


def test_no_waiver_stands_for_nodes_that_were_not_measured():
    """D21: facts of all nodes, one pair measured, all else waived by a person: 5 of 43 measured is no acceptance."""
    plan = plan_of(REAL)
    measured = [m for m in plan.measurements if m.kind == "facts" or m.id == "tcp-bandwidth.gpu1-fab0.gpu2-fab0"]
    assert len(measured) == 5
    results = [real(m) for m in measured]
    verdict = verdict_of(REAL, plan, results, waive_all(verdict_of(REAL, plan, results)))
    assert (verdict.sign_off, verdict.exit_code) == ("INCOMPLETE", 3)
    assert criterion(verdict, "tr.tcpbw").verdict == "not-measured"
    told = next(n for n in verdict.notes if "no waiver stands for a node that was not measured" in n)
    few, all_ = map(int, re.findall(r"\(client1: (\d+) of (\d+) ", told)[0])
    own = ("client1", "client1/fab0")
    assert few == sum(j.verdict == "pass" for c in verdict.criteria for j in c.judgements if j.subject in own)
    assert few < all_ / 2


def test_one_node_of_which_all_but_its_facts_were_lost_cannot_be_waived():
    plan = plan_of(REAL)
    results = [real(m) for m in plan.measurements if m.kind == "facts" or "gpu2" not in m.nodes]
    verdict = verdict_of(REAL, plan, results, waive_all(verdict_of(REAL, plan, results)))
    assert verdict.sign_off == "INCOMPLETE"
    assert {j.subject for j in criterion(verdict, "tr.tcpbw").judgements if j.verdict == "not-measured"} == {
        f"{a}/fab0>{b}/fab0" for a in REAL_NAMES for b in REAL_NAMES if a != b and "gpu2" in (a, b)
    }


REAL_NAMES = [n.name for n in REAL.nodes]


def test_what_is_mostly_waived_is_not_accepted():
    """Every pair misses every bound, and a person waives all of it: measured, but hardly anything passes."""
    plan = plan_of(REAL, ("preflight", "transport"))

    def bad(m):
        if m.kind == "facts":
            return with_facts(real(m), model="other", os="other")
        if m.kind == "cabling":
            return None
        return spoil(m.kind, lambda a, b: True, {"tcp-latency": 900, "path-mtu": 1500}.get(m.kind, 0.1))(m)

    results = results_of(plan, bad)
    verdict = verdict_of(REAL, plan, results, waive_all(verdict_of(REAL, plan, results)))
    assert (verdict.outcome, verdict.sign_off) == ("incomplete", "INCOMPLETE")
    assert any(re.search(r"mostly waived: 2 of \d+ criteria", note) for note in verdict.notes)


def test_what_does_not_apply_is_no_debt_that_waivers_could_stand_for():
    def said(id_, verdict, code):
        return SimpleNamespace(id=id_, verdict=verdict, reason_code=code, owed=True)

    case = SimpleNamespace(criteria=CRITERIA, applies=lambda c: True, virtual=False)
    first = [said("pf.bom", "pass", "within-bounds"), said("pf.stack", "waived", "waived")]
    without = [said(id_, "not-applicable", "not-applicable") for id_ in ("tr.h2d", "tr.p2p")]
    assert _mostly_waived(case, [*first, *without]) == ""
    for verdict, code in (("not-measured", "missing-result"), ("not-applicable", "reported")):
        unproven = [said(id_, verdict, code) for id_ in ("tr.h2d", "tr.p2p")]
        assert "1 of 4" in _mostly_waived(case, [*first, *unproven])
