"""The suite itself: what is left out is listed, what is skipped is seen, and Control-C is what it is."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.computes

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
    collect = [sys.executable, "-c", COLLECTS, "-q", "--collect-only", "-p", "no:cacheprovider", "--rest"]
    run, left = set[str](), set[str]()
    # Apart, as bin/test runs them: each folder has a conftest of its own, and tests import theirs by that name.
    for folders in (["tests/integration", "tests/functional", "tests/engine"], ["tests/engine_torch"]):
        done = subprocess.run([*collect, *folders], cwd=ROOT, capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            is_rest, _, name = line.partition(" tests/")
            if is_rest in ("True", "False"):
                (left if is_rest == "True" else run).add(re.sub(r"\[.*", "", name.split("/", 1)[1]))
    left -= run  # a name of which some parameters run
    assert left, "nothing is marked"
    files = {name.split("::")[0] for name in left}
    whole = {file for file in files if not any(name.startswith(f"{file}::") for name in run)}
    names = whole | {name for name in left if name.split("::")[0] not in whole}
    assert listed() == scenarios | names


#: pytest that prints of each test whether it is marked `rest`; that such a test is left out is the next tests' subject.
COLLECTS = """
import sys, pytest
class Marks:
    def pytest_collection_finish(self, session):
        for item in session.items:
            print(item.get_closest_marker("rest") is not None, item.nodeid)
sys.exit(pytest.main(sys.argv[1:], plugins=[Marks()]))
"""
PLANTED = """
import signal, pytest

def test_skipped(): pytest.skip("{reason}")
def test_control_c(): assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
@pytest.mark.rest
def test_left_out(): raise AssertionError
"""


def planted(folder: Path, reason: str, *arguments: str, complete: str = "1") -> subprocess.CompletedProcess[str]:
    """pytest, started with SIGINT ignored, on three tests under the suite's conftest."""
    shutil.copy(ROOT / "tests/conftest.py", folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = rest\n")
    (folder / "test_planted.py").write_text(PLANTED.format(reason=reason))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=folder, env={**os.environ, "ELASTIC_AI_COMPLETE": complete, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_tool_that_is_missing_is_a_failure_where_all_were_installed(tmp_path: Path) -> None:
    """A skip for want of a tool fails in bin/test; by hand, and for what the machine is, it stays a skip."""
    missing = planted(tmp_path, "sshd is not installed here")
    assert missing.returncode == 1
    assert "skipped, and bin/test must run it: sshd is not installed here" in missing.stdout
    assert "1 failed, 1 passed, 1 deselected" in missing.stdout
    assert "test_planted.py::test_control_c" in missing.stdout.partition("the slowest 2, and what each")[2]
    assert "1 passed, 1 skipped" in planted(tmp_path, "sshd is not installed here", complete="").stdout
    assert planted(tmp_path, "this machine has no clock").returncode == 0


def test_what_is_left_out_runs_when_everything_does(tmp_path: Path) -> None:
    """`--rest` brings the marked tests back."""
    assert "1 failed, 1 passed, 1 skipped" in planted(tmp_path, "this machine", "--rest").stdout


def test_no_test_builds_on_another_files_tests() -> None:
    """What several share is in tests/support."""
    files = [*ROOT.glob("tests/*/*.py")]
    assert len(files) > 100
    assert [f.name for f in files if re.search(r"^\s*(from|import) test_", f.read_text(), re.MULTILINE)] == []
