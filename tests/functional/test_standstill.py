"""What is repeated where a machine stands still, by a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.standstill import MOST_REPEATED, SHARED

pytestmark = pytest.mark.computes

ROOT = Path(__file__).parents[2]
CONFTEST = """
import pytest
from tests.support import standstill
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    standstill.protocol(item, nextitem)
    return True
def pytest_terminal_summary(terminalreporter, config):
    standstill.summary(terminalreporter, config)
"""
#: `still` holds the interpreter, so that no thread of it is scheduled, as where the machine is taken away.
TESTS = """
import ctypes, os, pytest
libc = ctypes.PyDLL(None)
made, ended, tries = [], [], {}
def still(seconds):
    libc.usleep(int(seconds * 1e6))
@pytest.fixture(scope="module")
def shared():
    made.append(1)
    yield made
    print("shared ended")
@pytest.fixture
def own(tmp_path):
    yield tmp_path
    ended.append(tmp_path)
def once(name):
    tries[name] = tries.get(name, 0) + 1
    return tries[name] == 1
"""
KINDS = {
    "spoilt": "def test_spoilt(shared, own):\n"
    "    if once('spoilt'):\n        still(1.4)\n        assert 0, 'too late'\n"
    "    assert shared == [1]\n    assert len(ended) == 1 and own not in ended\n",
    "faulty": "def test_faulty(shared):\n    still(1.4)\n    assert 0, 'always'\n",
    "quick": "def test_quick(shared):\n    assert once('quick') and 0, 'a fault'\n",
}


def played(folder: Path, tests: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS + tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("kind", "ended", "repeated"),
    [("spoilt", "1 passed", True), ("faulty", "1 failed", True), ("quick", "1 failed", False)],
)
def test_a_failure_under_a_standstill_is_repeated_once_and_listed(
    tmp_path: Path, kind: str, ended: str, repeated: bool
) -> None:
    said = played(tmp_path, KINDS[kind])
    assert ended in said.splitlines()[-1], said
    assert ("= repeated: 1 =" in said) == repeated, said
    assert ("its first failure" in said) == repeated
    assert not repeated or {"spoilt": "too late", "faulty": "always"}[kind] in said.partition("its first failure")[2]


def test_a_clock_that_a_test_put_in_is_left_to_it(tmp_path: Path) -> None:
    tests = """
def test_clock(monkeypatch):
    import time
    looked, sleep = [], time.sleep
    monkeypatch.setattr(time, "monotonic", lambda: looked.append(1) or float(len(looked)))
    sleep(0.5)
    assert looked == []
"""
    assert "1 passed" in played(tmp_path, tests)


def test_no_more_than_a_few_are_repeated(tmp_path: Path) -> None:
    """A machine that always stands still, or a fault in all of them, does not double the time of a run."""
    one = "def test_{0}():\n    still(1.2)\n    assert once('{0}') == False, '{0}'\n"
    said = played(tmp_path, "".join(one.format(name) for name in "abcdefg"[: MOST_REPEATED + 1]))
    assert f"1 failed, {MOST_REPEATED} passed" in said.splitlines()[-1], said
    assert f"= repeated: {MOST_REPEATED} =" in said


@pytest.mark.parametrize("folder", SHARED)
def test_a_failure_of_real_programs_is_repeated_once_and_listed(tmp_path: Path, folder: str) -> None:
    """They share this machine: what one of them does a second later is no fault, and what fails twice is one."""
    tests = "def test_late():\n    assert not once('late'), 'too early'\n" + KINDS["quick"]
    said = played(tmp_path / folder, tests)
    assert "1 failed, 1 passed" in said.splitlines()[-1], said
    assert "= repeated: 2 =" in said
    assert "too early" in said.partition("its first failure")[2]
