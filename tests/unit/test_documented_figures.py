"""Figures that pages show of a run are those that this release prints."""

from __future__ import annotations

import re
from pathlib import Path

from validation.plan.offered import DEFAULT
from validation.run.catalogue import load_criteria

ROOT = Path(__file__).parents[2]
HOUR = (ROOT / "docs/tutorial/first-hour.md").read_text(encoding="utf-8")
_VERDICT = re.compile(
    r"^ +(?:PASSED|FAILED) \(rehearsal\)   (?:(?P<failed>\d+) failed, )?(?P<passed>\d+) passed, "
    r"(?P<not_measured>\d+) not measured of (?P<of>\d+) .*?not measured: (?P<why>.+?)\(--details\)",
    re.MULTILINE | re.DOTALL,
)


def test_verdicts_of_the_first_hour_are_of_the_criteria_that_there_are() -> None:
    shown = list(_VERDICT.finditer(HOUR))
    assert len(shown) == 2
    criteria = load_criteria()
    left_out = sum(one.suite not in DEFAULT for one in criteria)
    for found in shown:
        assert int(found["of"]) == len(criteria)
        why = {words.strip(): int(number) for number, words in re.findall(r"(\d+) ([^,]+)", found["why"])}
        assert sum(why.values()) == int(found["not_measured"])
        assert why["suite not selected"] == left_out
    good, broken = shown
    assert int(broken["passed"]) + int(broken["failed"]) == int(good["passed"])
    sentence = f"{good['passed']} criteria passed. {good['not_measured']} were not measured"
    judged = f"all {good['passed']} judged criteria pass ({good['not_measured']} not measured)"
    assert (HOUR.count(sentence), HOUR.count(judged)) == (1, 2)
