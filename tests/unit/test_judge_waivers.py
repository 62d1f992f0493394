"""Waivers: a named person's decision, shown, and without effect once expired."""

from __future__ import annotations

import datetime

import pytest
from engine_case import LAB, PLAN, criterion, judged, results_of, spoil, verdict_of

from validation.waiver import Waiver

SICK = spoil("tcp-bandwidth", lambda a, b: "gpu2" in (a, b), 0.0985)


def waiver(**changes):
    day = datetime.date(2026, 11, 1)
    values = {"criterion": "tr.tcpbw", "who": "A. Person", "when": day, "why": "cable on order"}
    return Waiver(**{**values, "expires": datetime.date(2026, 12, 31), **changes})


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
        ({"expires": datetime.date(2026, 11, 20)}, "valid from"),
        ({"when": datetime.date(2026, 11, 22)}, "valid from"),
        ({"criterion": "tr.netlat"}, "nothing to waive"),
        ({"criterion": "tr.nothing"}, "no such criterion"),
        ({"subject": "gpu9"}, "nothing to waive"),
    ],
)
def test_an_expired_or_unused_waiver_has_no_effect_and_is_told(changes, words):
    verdict = judged(SICK, waivers=[waiver(**changes)])
    assert verdict.exit_code == 1
    assert any(words in note for note in verdict.notes)


def test_a_waiver_excuses_only_the_measurement_that_it_covers():
    gone = "tcp-bandwidth.gpu1-fab0.gpu2-fab0"
    results = [r for r in results_of(PLAN) if r.measurement != gone]
    assert verdict_of(LAB, PLAN, results, [waiver(subject="gpu1/fab0>gpu2/fab0")]).exit_code == 0
    assert verdict_of(LAB, PLAN, results, [waiver(subject="gpu2/fab0>gpu1/fab0")]).exit_code == 3
