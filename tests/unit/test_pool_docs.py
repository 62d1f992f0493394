"""docs/explanation/pool-security.md names a test for each attempt: there is one of that name in that file."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "unit": "unit",
    "functional": "functional",
    "engine": "engine",
    "torch": "engine_torch",
    "lab": "integration",
}


def test_every_attempt_names_tests_that_there_are() -> None:
    text = (ROOT / "docs/explanation/pool-security.md").read_text("utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    named = []
    for *_, attempt, _stops, tests, _end in (row for row in rows if row[-2].strip() != "test"):
        found = re.findall(r"\b(\w+) `(\w+\.py)`: ((?:`\w+`(?: \([^)]*\))?(?:, )?)+)", tests)
        assert found, f"no test: {attempt}"
        assert len(re.findall(r"\w+\.py", tests)) == len(found), tests
        for where, file, names in found:
            source = (ROOT / "tests" / FOLDERS[where] / file).read_text("utf-8")
            for name in re.findall(r"`(\w+)`", names):
                assert re.search(rf"^ *def {name}\(", source, re.MULTILINE), f"{where} {file} has no {name}"
                named.append((where, name))
    assert len(named) > 60
