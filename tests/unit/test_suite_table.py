"""docs/testing.md names every test that bin/test leaves to `--all`, and no other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def listed() -> set[str]:
    """First column of the table; every row has a proof and a reason."""
    text = (ROOT / "docs/testing.md").read_text().partition("\n## Left to ")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert all(len(row) == 3 and all(row) for row in rows)
    return {row[0] for row in rows[2:]}


def test_the_table_lists_what_is_left_out_and_nothing_else() -> None:
    """The reasons that bin/test prints at its end are those of the tests that it left out."""
    scenarios = {f"molecule/{path.parent.name}" for path in ROOT.glob("molecule/*/molecule.yml")}
    collect = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "tests/integration"]
    found = []
    for more in ([], ["--rest"]):
        done = subprocess.run([*collect, *more], cwd=ROOT, capture_output=True, text=True, check=True)
        found.append({re.sub(r"\[.*", "", line) for line in done.stdout.splitlines() if "::" in line})
    run, everything = found
    left = {name.removeprefix("tests/integration/") for name in everything - run}
    assert left, "nothing is marked"
    files = {name.split("::")[0] for name in left}
    whole = {file for file in files if not any(name.startswith(f"tests/integration/{file}::") for name in run)}
    names = whole | {name for name in left if name.split("::")[0] not in whole}
    assert listed() == scenarios | names
