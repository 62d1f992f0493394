"""Dashboards of role monitoring: made from their panels, and each query answered by a real Prometheus on lab data."""

from __future__ import annotations

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.alert_rules import RULES
from tests.support.alerting import ROLE
from tests.support.recorded_prometheus import asked, recorded
from tools.make_dashboards import DASHBOARDS, text

NAMES = ["pool", *(one.name for one in DASHBOARDS)]
ENDS = 1795871185


def panels(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((ROLE / f"files/{name}.json").read_text("utf-8"))["panels"]
    return found


def expressions(name: str) -> list[tuple[str, str]]:
    """(title, query) with a node and a user chosen, and with the rules' own text for what they record."""
    recorded = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
    found = []
    for panel in panels(name):
        for target in panel["targets"]:
            query = target["expr"].replace("$node", "gpu1").replace("$user", "ann")
            for name_of, expression in recorded.items():
                query = query.replace(name_of, f"({expression})")
            found.append((panel["title"], query))
    return found


@pytest.mark.parametrize("one", DASHBOARDS, ids=lambda one: one.name)
def test_the_files_are_what_their_panels_say(one: Any) -> None:
    assert (ROLE / f"files/{one.name}.json").read_text("utf-8") == text(one), (
        "renew it: python tools/make_dashboards.py"
    )


def test_the_role_brings_them_all() -> None:
    assert f"src: [{', '.join(f'{name}.json' for name in NAMES)}]" in (ROLE / "vars/main.yml").read_text("utf-8")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address; with the lab's figures as its past."""
    if shutil.which("prometheus") is None:
        pytest.skip("no Prometheus here: Debian's package prometheus")
    with recorded(tmp_path_factory.mktemp("prometheus"), ENDS) as base:
        yield base


@pytest.mark.parametrize("name", NAMES)
def test_no_panel_is_empty(prometheus: str, name: str) -> None:
    empty = []
    for title, query in expressions(name):
        words = urllib.parse.urlencode({"query": query, "time": ENDS})
        if not json.loads(asked(f"{prometheus}/api/v1/query?{words}"))["data"]["result"]:
            empty.append(f"{title}: {query}")
    assert empty == []
