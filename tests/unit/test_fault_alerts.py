"""Each fault that a lab can plant fires an alert, or it is said why none does."""

from __future__ import annotations

import re

import pytest

from tests.support.alert_rules import ALERTS, ROLE
from tests.support.fault_alerts import EXPECTED
from toolkit.lab.faults import FAULTS

SLOW = {"bmc": 300}  # seconds between two readings of a BMC, unless the site says otherwise
UNITS = {"s": 1, "m": 60, "h": 3600}
#: Seconds between a figure's reading by a node's program, by Prometheus, its evaluation and the notification.
READ_S, SCRAPE_S, EVALUATE_S, GROUP_S = 15, 15, 5, 5


def seconds(words: str) -> int:
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smh])", words))


def test_every_fault_of_a_lab_has_its_row() -> None:
    assert set(EXPECTED) == set(FAULTS)


@pytest.mark.parametrize("kind", EXPECTED)
def test_its_alert_is_one_that_there_is_and_comes_in_time(kind: str) -> None:
    """Within a minute of the fault, where it is not said for what it waits."""
    row = EXPECTED[kind]
    assert bool(row.why) == (not row.alert or row.waits_s > 0), "a reason for none and for a wait, and for nothing else"
    assert {row.alert, *row.also} - {""} <= set(ALERTS)
    if row.alert:
        rule = ALERTS[row.alert]
        assert row.told == (rule["labels"]["severity"] in ("critical", "warning"))
        waited = seconds(rule["for"])
        read_s = SLOW["bmc"] if "elastic_ai_bmc" in rule["expr"] else 0
        assert row.waits_s == (waited if waited > 30 else read_s)
        most = READ_S + SCRAPE_S + EVALUATE_S + GROUP_S + waited
        of_node = "elastic_ai_" in rule["expr"]  # node-exporter's own figures are read without a program between
        assert row.waits_s or most - (0 if of_node else READ_S) <= 60


def test_the_seconds_are_those_of_the_role() -> None:
    assert "monitoring_interval_s: 15" in (ROLE / "defaults/main.yml").read_text("utf-8")
    assert f"group_wait: {GROUP_S}s" in (ROLE / "templates/alertmanager.yml.j2").read_text("utf-8")
