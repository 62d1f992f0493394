"""Preflight asks the inventory's time servers from the node, and not those that are nodes of the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functional.test_taken_over import run

pytestmark = pytest.mark.systems


def test_servers_outside_the_site_are_asked_and_a_silent_one_is_named(tmp_path: Path) -> None:
    said, called = run(
        tmp_path,
        {"time_servers": {"192.0.2.1": "no answer within 3 s"}},
        "--tags",
        "preflight",
        base_chrony_servers=["192.0.2.1", "node1"],
    )
    assert "none of its time servers gives the time (192.0.2.1: no answer within 3 s)" in said
    assert "failed=0" in said, "a note"
    (asked,) = [call["args"]["time_servers"] for call in called if call["module"] == "node_preflight"]
    assert asked == ["192.0.2.1"]
